"""isa/arm64.isa against capstone, which shares nothing with binutils: random words of each row, and of all.

Both must know the same words, by the same mnemonic. What is knowingly different is in a file, a line each with its
reason, and each line must be needed. Debian's newest capstone is fetched and verified as the guests' kernels are; one
newer than the list may know more: that is told and is no failure.
"""
import collections
import ctypes
import glob
import pathlib
import random
import re
import subprocess
import sys

sys.dont_write_bytecode = True
root, show, seed, per_row, at_large = pathlib.Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])
sys.path.insert(0, str(root / "tools"))
import isabits  # noqa: E402
from guestlib import packages  # noqa: E402

SEED = 20261  # with it, every line of the differences is needed
ARCH_ARM64, OPTION_SKIPDATA, ON = 1, 5, 3  # capstone.h, 5.0


class Insn(ctypes.Structure):
    """struct cs_insn of capstone.h, 5.0"""
    _fields_ = [("id", ctypes.c_uint), ("address", ctypes.c_uint64), ("size", ctypes.c_uint16),
                ("bytes", ctypes.c_uint8 * 24), ("mnemonic", ctypes.c_char * 32), ("operands", ctypes.c_char * 160),
                ("detail", ctypes.c_void_p)]


def capstone():
    """The library and its version."""
    suite = packages.newest()
    with packages.lock():
        suite.update()
        records = suite.alone(["libcapstone5"])
        tree = suite.unpack(records, "libcapstone5")
    library = ctypes.CDLL(glob.glob(tree + "/usr/lib/*/libcapstone.so.5")[0])
    return library, re.search(r"_([\d.]+)", records[0][1]).group(1)


def mnemonics(library, words):
    """Of each word, empty where capstone knows none."""
    handle, found = ctypes.c_size_t(), ctypes.POINTER(Insn)()
    assert library.cs_open(ARCH_ARM64, 0, ctypes.byref(handle)) == 0
    library.cs_option(handle, OPTION_SKIPDATA, ctypes.c_size_t(ON))
    library.cs_disasm.restype = ctypes.c_size_t
    code = b"".join(word.to_bytes(4, "little") for word in words)
    count = library.cs_disasm(handle, code, ctypes.c_size_t(len(code)), ctypes.c_uint64(0), ctypes.c_size_t(0),
                              ctypes.byref(found))
    assert count == len(words)
    return [found[index].mnemonic.decode() if found[index].id else "" for index in range(count)]


def sample(table):
    chosen = random.Random(seed)
    for row in table.rows:
        for _ in range(per_row):
            yield chosen.getrandbits(32) & ~row.mask | row.value
    for _ in range(at_large):
        yield chosen.getrandbits(32)


def differences():
    """The lines: ({(kind, name): whether it may be met by no word}, the version that they are of)."""
    lines, version = {}, ""
    for line in (pathlib.Path(__file__).parent / "differences_capstone").read_text().splitlines():
        if line.startswith("# capstone "):
            version = line.split()[2].rstrip(".")
        elif line and not line.startswith("#"):
            rare = line.startswith("rare ")
            kind, *names = line.removeprefix("rare ").partition(":")[0].split()
            lines.update({(kind, name): rare for name in names})
    return lines, version


def main():
    table = isabits.parse(isabits.read(root / "isa/arm64.isa")[0])
    isabits.check(table)
    library, version = capstone()
    listed, known = differences()
    words = list(sample(table))
    shown = subprocess.run([show], input="".join(f"{word:x} {4 * index:x}\n" for index, word in enumerate(words)),
                           capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(shown) == len(words)
    found, needed = collections.Counter(), set()
    first = {}
    for word, line, theirs in zip(words, shown, mnemonics(library, words)):
        row, _, _, _, text = line.split("|", 4)
        if (row == "unknown") == (theirs == "") and (row == "unknown" or text.split(" ")[0] == theirs):
            continue
        kind, name = ("less", theirs) if row == "unknown" else ("more" if theirs == "" else "text", row)
        if (kind, name) in listed:
            needed.add((kind, name))
            continue
        found[kind, name] += 1
        first.setdefault((kind, name), f"{word:08x} is '{text}', capstone '{theirs}'")
    for (kind, name), times in found.items():
        print(f"{times} times: {kind} {name}: {first[kind, name]}")
    unneeded = sorted(key for key in set(listed) - needed if not listed[key]) if (seed, version) == (SEED, known) else []
    for kind, name in unneeded:
        print(f"not needed: {kind} {name}")
    print(f"capstone {version}, seed {seed}, {len(words)} words, {len(found)} differences that no line names")
    return 1 if version == known and (found or unneeded) else 0


sys.exit(main())

"""The gate of isa/riscv.isa against the assembler and disassembler of binutils.

Each example assembles, is decoded by its own row, prints as objdump prints it (without aliases), and what is
printed assembles to the same word. Random words of each row print as objdump prints them. Of all compressed
words, and of random ones of 32 bits, both know the same ones. What is knowingly different is in the file
`differences`: each line must be needed.
"""
import collections
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
show = sys.argv[2]
seed = int(sys.argv[3])
per_row, at_large = int(sys.argv[4]), int(sys.argv[5])
here = pathlib.Path(__file__).parent
sys.path.insert(0, str(root / "tools"))
sys.dont_write_bytecode = True
import isabits  # noqa: E402

TOOLS = os.environ.get("TL_RISCV_BINUTILS", "") + "riscv64-linux-gnu-"
ARCH = ("rv64gc_zba_zbb_zbc_zbs_zbkb_zbkc_zbkx_zknd_zkne_zknh_zksed_zksh_zkr_zfh_zawrs_zihintpause_zicbom_zicbop_"
        "zicboz_v")
# What only newer binutils than Debian 12's know; with those the other file of differences is read.
ARCH_NEWER = ("_zicond_zfa_zacas_zabha_zcb_zimop_zcmop_zvbb_zvbc_zvkg_zvkned_zvknhb_zvksed_zvksh_zfbfmin_zvfh_zvfbfmin_"
              "zvfbfwma_zicfiss_zicfilp")
SEED = 20261  # with it, every line of `differences` is needed
C_NOP = 0x0001
OLD = [0x00200073, 0x20200073]  # uret, hret: so that their line is needed
random_from = random.Random(seed)
failures = []


is_newer = subprocess.run([TOOLS + "as", f"-march={ARCH}{ARCH_NEWER}", "-o", "/dev/null", "/dev/null"],
                          stderr=subprocess.DEVNULL).returncode == 0
ARCH += ARCH_NEWER if is_newer else ""


def is_short(word):
    return word & 3 != 3


def run_tool(tool, *arguments):
    run = subprocess.run([TOOLS + tool, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{tool}: {run.stderr[:2000]}")
    return run.stdout


def assemble(text, folder):
    """The object of a source, in which all the extensions are known."""
    source, output = folder / "in.s", folder / "out.o"
    source.write_text(".option norelax\n" + text)
    run_tool("as", f"-march={ARCH}", "-o", output, source)
    return output


def is_unknown(text):
    """No instruction, or of floating point with a rounding mode that is none."""
    return text.startswith((".", "0x")) or re.fullmatch(r"f\w+\.\w.*,unknown", text) is not None


def objdump(words, folder):
    """What objdump prints for words that lie 4 bytes one behind the other from address 0."""
    data = b"".join((word if not is_short(word) else word & 0xffff | C_NOP << 16).to_bytes(4, "little")
                    for word in words)
    (folder / "words.bin").write_bytes(data)
    output = assemble(f".rept {len(words)}\nxori a0, a0, 5\n.endr\n", folder)
    run_tool("objcopy", "--update-section", f".text={folder / 'words.bin'}", output)
    texts = {}
    for line in run_tool("objdump", "-d", "-z", "-M", "no-aliases", output).splitlines():
        match = re.match(r" *([0-9a-f]+):\t[0-9a-f ]+\t(.*)", line)
        if match:
            texts[int(match[1], 16)] = re.sub(r"\s+", " ", re.sub(r" <.*?>| #.*", "", match[2])).strip()
    found = [texts[4 * index] for index in range(len(words))]
    return ["" if is_unknown(text) else text for text in found]


Shown = collections.namedtuple("Shown", "row flow reloc refusal text")


def shown(words):
    lines = "".join(f"{word:x} {4 * index:x}\n" for index, word in enumerate(words))
    run = subprocess.run([show], input=lines, capture_output=True, text=True, check=True)
    rows = [Shown(*line.split("|", 4)) for line in run.stdout.splitlines()]
    assert len(rows) == len(words)
    return rows


# Ways in which our line may differ from objdump's: more: we know a word that it does not; less: it knows
# one that we refuse; text: another text. By row, for less by the first word of objdump's text. Each has its line.
differences, needed = {}, set()
for number, line in enumerate((here / ("differences-newer" if is_newer else "differences")).read_text().splitlines(), 1):
    if line and not line.startswith("#"):
        kind, *names = line.partition(":")[0].split()
        for name in names:
            differences[kind, name] = number


def normal(text):
    """objdump prints targets without 0x."""
    match = re.fullmatch(r"((?:jal|b(?:eq|ne|lt|ge)u?|c\.j|c\.b\w+) (?:.*,)?)([0-9a-f]+)", text)
    return f"{match[1]}0x{match[2]}" if match else text


def compare(word, ours, theirs):
    theirs = normal(theirs)
    if ours.text == theirs or (ours.row == "unknown" and not theirs):
        return
    if ours.row == "unknown":
        key = "less", theirs.split()[0]
    elif not theirs:
        key = "more", ours.row
    else:
        key = "text", ours.row
    if key in differences:
        needed.add(differences[key])
    else:
        failures.append(f"{key[0]} {key[1]}: {word:08x} is '{ours.text}', objdump '{theirs}'")


def words_of(texts, folder):
    """The words of texts, each at its own multiple of 4."""
    full = "".join(f".balign 4\n{text}\n" if text.startswith(("c.", ".half")) else
                   f".balign 4\n.option push\n.option norvc\n{text}\n.option pop\n" for text in texts)
    output = assemble(full + ".balign 4\n", folder)
    run_tool("objcopy", "-O", "binary", "-j", ".text", output, folder / "out.bin")
    data = (folder / "out.bin").read_bytes()
    words = [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
    return [word & 0xffff if is_short(word) else word for word in words]


def at_zero(text, index):
    """A target as we print it, for the assembler: relative to the instruction."""
    match = re.fullmatch(r"((?:jal|b(?:eq|ne|lt|ge)u?|c\.j|c\.b\w+) (?:.*,)?)0x([0-9a-f]+)", text)
    return f"{match[1]}.+{int(match[2], 16) - 4 * index}" if match else text


def check_examples(table, folder):
    examples = [(row, text) for row in table.rows for _, text in row.examples]
    words = words_of([text for _, text in examples], folder)
    assert len(words) == len(examples)
    printed = []
    for (row, text), word, ours, theirs in zip(examples, words, shown(words), objdump(words, folder)):
        if ours.row != row.name:
            failures.append(f"row {row.name}: '{text}' is {word:08x}, which row {ours.row} has")
        compare(word, ours, theirs)
        same = ours.text == normal(theirs)
        printed.append(ours.text if same else f".half 0x{word:04x}" if is_short(word) else f".word 0x{word:08x}")
    again = words_of([at_zero(text, index) for index, text in enumerate(printed)], folder)
    for word, other, text in zip(words, again, printed):
        if word != other:
            failures.append(f"'{text}' was {word:08x} and assembles to {other:08x}")


def row_words(row):
    """Random words of a row, registers 0, 1, 2, 5 more often than by chance, and some that miss it by one bit."""
    fixed = [bit for bit in range(row.width) if row.mask >> bit & 1]
    words = []
    for turn in range(per_row):
        word = random_from.getrandbits(row.width)
        for name, (shift, width) in row.places.items():
            if width == 5 and turn % 3 == 0 and random_from.random() < 0.5:
                word = word & ~(31 << shift) | random_from.choice([0, 1, 2, 5]) << shift
        word = word & ~row.mask | row.value
        if turn % 4 == 3:
            word ^= 1 << random_from.choice(fixed)
        words.append(word)
    return words


def is_one_or_two(word):
    """Not longer than 4 bytes."""
    return is_short(word) and word >> 16 == 0 or not is_short(word) and word & 31 != 31


table = isabits.parse(isabits.read(root / "isa" / "riscv.isa")[0])
isabits.check(table)
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    check_examples(table, folder)
    words = [word for row in table.rows for word in row_words(row)]
    words += OLD
    words += range(1 << 16)
    words += [random_from.getrandbits(32) & ~31 | random_from.randrange(32) | 3 for _ in range(at_large)]
    words = [word for word in words if is_one_or_two(word)]
    for word, ours, theirs in zip(words, shown(words), objdump(words, folder)):
        compare(word, ours, theirs)
if seed == SEED:
    for number in sorted(set(differences.values()) - needed):
        failures.append(f"differences: line {number} is not needed")
for kind, lines in collections.Counter(line.split(":")[0] for line in failures).most_common(100):
    print(f"{lines} times: {next(line for line in failures if line.startswith(kind + ':'))}")
print(f"seed {seed}, {len(words)} words, {len(failures)} failures")
sys.exit(1 if failures else 0)

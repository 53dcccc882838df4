"""The gate of isa/arm64.isa against the assembler and disassembler of Debian's newest binutils.

They are fetched and verified as the guests' kernels are (tools/guestlib), for a table that knows more than an older
objdump can't be compared with it. A binutils newer than `differences` may know more: that is told and is no failure.

Each example assembles, is decoded by its own row, prints as objdump prints it, and what is printed assembles
to the same word. Random words of each row print as objdump prints them. Of random words of all, both know
the same ones. What is knowingly different is in the file `differences`: each line must be needed.
"""
import collections
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
from guestlib import packages  # noqa: E402

starter, folder_of_tools = packages.binutils("aarch64-linux-gnu")
SEED = 20261  # with it, every line of `differences` is needed
random_from = random.Random(seed)
failures, told = [], []


def tool(name, *arguments, check=True):
    return subprocess.run([*starter, f"{folder_of_tools}/aarch64-linux-gnu-{name}", *arguments], capture_output=True,
                          text=True, check=check)


version = tool("objdump", "--version").stdout.split("\n")[0].split()[-1]


def objdump(words, folder):
    """What objdump prints for words that lie one behind the other at address 0, without its remarks."""
    file = folder / "words.bin"
    file.write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
    run = tool("objdump", "-D", "-z", "-b", "binary", "-m", "aarch64", "-M", "no-notes", file)
    texts = []
    for line in run.stdout.splitlines():
        parts = line.split("\t", 2)
        if len(parts) == 3 and parts[0].strip().endswith(":"):
            texts.append(re.sub(r"\s+", " ", parts[2].split("//")[0]).strip())
    assert len(texts) == len(words)
    return ["" if text.startswith(".inst") or "undefined" in text else text for text in texts]


def assemble(texts, folder):
    """The words of texts, each placed as if it were at address 0 onward."""
    source, output = folder / "in.s", folder / "out.o"
    source.write_text("".join(f"{text}\n" for text in texts))
    run = tool("as", "-march=all", "-o", output, source, check=False)
    if run.returncode != 0:
        sys.exit("an example does not assemble:\n" + run.stderr[:2000])
    tool("objcopy", "-O", "binary", "-j", ".text", output, folder / "out.bin")
    data = (folder / "out.bin").read_bytes()
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]


Shown = collections.namedtuple("Shown", "row flow reloc refusal text")


def shown(words):
    lines = "".join(f"{word:x} {4 * index:x}\n" for index, word in enumerate(words))
    run = subprocess.run([show], input=lines, capture_output=True, text=True, check=True)
    rows = [Shown(*line.split("|", 4)) for line in run.stdout.splitlines()]
    assert len(rows) == len(words)
    return rows


# Ways in which our line may differ from objdump's: more: we know a word that it does not; less: it knows
# one that we refuse; text: another text. By row, for less by the first word of objdump's text. Each has its line.
differences, needed, known_version = {}, set(), ""
for number, line in enumerate((here / "differences").read_text().splitlines(), 1):
    if line.startswith("# binutils "):
        known_version = line.split()[2].rstrip(".")
    elif line and not line.startswith("#"):
        kind, *names = line.partition(":")[0].split()
        for name in names:
            differences["less" if kind == "rare" else kind, name] = number
        if kind == "rare":  # too few words for a sample to meet one for certain
            needed.add(number)


def compare(word, ours, theirs):
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
    elif key[0] == "less" and version != known_version:
        told.append(f"{key[1]}: {word:08x} is '{theirs}' in binutils {version}")
    else:
        failures.append(f"{key[0]} {key[1]}: {word:08x} is '{ours.text}', objdump '{theirs}'")


def check_examples(table, folder):
    examples = [(row, text) for row in table.rows for _, text in row.examples]
    words = assemble([text for _, text in examples], folder)
    assert len(words) == len(examples)
    printed = []
    for (row, text), word, ours, theirs in zip(examples, words, shown(words), objdump(words, folder)):
        if ours.row != row.name:
            failures.append(f"row {row.name}: '{text}' is {word:08x}, which row {ours.row} has")
        compare(word, ours, theirs)
        printed.append(ours.text if theirs == ours.text else f".inst 0x{word:08x}")
    for word, again, text in zip(words, assemble([at_zero(text, index) for index, text in enumerate(printed)],
                                                 folder), printed):
        if word != again:
            failures.append(f"'{text}' was {word:08x} and assembles to {again:08x}")


def at_zero(text, index):
    """A target as objdump prints it, for the assembler: relative to the instruction."""
    match = re.fullmatch(r"((?:b|bl|b\.\w+|bc\.\w+|cb\w+|(?:reta|auti)[ab]sppc|tbn?z|adrp?|ldr|ldrsw|prfm) (?:.*, )?)0x([0-9a-f]+)", text)
    if not match:
        return text
    if match[1].startswith("adrp"):
        return f"{match[1]}.+{int(match[2], 16)}"
    return f"{match[1]}.+{int(match[2], 16) - 4 * index}"


def row_words(row):
    """Random words of a row, register 31 more often than by chance, and some that miss it by one bit."""
    fixed = [bit for bit in range(32) if row.mask >> bit & 1]
    words = []
    for turn in range(per_row):
        word = random_from.getrandbits(32)
        for name, (shift, width) in row.places.items():
            if width == 5 and turn % 3 == 0 and random_from.random() < 0.4:
                word |= 31 << shift
        word = word & ~row.mask | row.value
        if turn % 4 == 3:
            word ^= 1 << random_from.choice(fixed)
        words.append(word)
    return words


table = isabits.parse(isabits.read(root / "isa" / "arm64.isa")[0])
isabits.check(table)
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    check_examples(table, folder)
    words = [word for row in table.rows for word in row_words(row)]
    words += [random_from.getrandbits(32) for _ in range(at_large)]
    for word, ours, theirs in zip(words, shown(words), objdump(words, folder)):
        compare(word, ours, theirs)
if seed == SEED and version == known_version:
    for number in sorted(set(differences.values()) - needed):
        failures.append(f"differences: line {number} is not needed")
for kind, lines in collections.Counter(line.split(":")[0] for line in failures).most_common(100):
    print(f"{lines} times: {next(line for line in failures if line.startswith(kind))}")
for line in told[:20]:
    print(f"told: {line}")
print(f"binutils {version}, seed {seed}, {len(words)} words, {len(failures)} failures")
sys.exit(1 if failures else 0)

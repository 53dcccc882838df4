"""The gate of a table of bits (isa/*.isa) against the assembler and disassembler of Debian's newest binutils.

They are fetched and verified as the guests' kernels are (tools/guestlib), for a table that knows more than an older
objdump can't be compared with it. A binutils newer than the list of differences may know more: that is told and is
no failure.

Each example assembles, is decoded by its own row, prints as objdump prints it, and what is printed assembles
to the same word. Words that the test chooses print as objdump prints them, and both know the same ones. What is
knowingly different is in a file, a line each with its reason, and each line must be needed.
"""
import collections
import pathlib
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
SEED = 20261  # with it, every line of the differences is needed
Shown = collections.namedtuple("Shown", "row flow reloc refusal text")


class Gate:
    """One table. A test says how its tools are called, and which words are asked."""

    def __init__(self, table, target, differences):
        root, self.show = pathlib.Path(sys.argv[1]), sys.argv[2]
        self.seed, self.per_row, self.at_large = map(int, sys.argv[3:6])
        sys.path.insert(0, str(root / "tools"))
        import isabits  # pylint: disable=import-outside-toplevel
        from guestlib import packages  # pylint: disable=import-outside-toplevel
        self.table = isabits.parse(isabits.read(root / "isa" / table)[0])
        isabits.check(self.table)
        self.starter, tools = packages.binutils(target)
        self.prefix = f"{tools}/{target}-"
        self.version = self.tool("objdump", "--version").split("\n")[0].split()[-1]
        self.random = random.Random(self.seed)
        self.folder = None  # for the tools' files
        self.failures, self.told = [], []
        self.differences, self.needed, self.known_version = {}, set(), ""
        for number, line in enumerate(pathlib.Path(differences).read_text().splitlines(), 1):
            self.difference(number, line)

    def difference(self, number, line):
        if line.startswith("# binutils "):
            self.known_version = line.split()[2].rstrip(".")
        elif line and not line.startswith("#"):
            kind, *names = line.partition(":")[0].split()
            if kind == "rare":  # too few words for a sample to meet one for certain
                kind = "less"
                self.needed.add(number)
            self.differences.update({(kind, name): number for name in names})

    def tool(self, name, *arguments):
        """What a program of binutils prints."""
        run = subprocess.run([*self.starter, self.prefix + name, *arguments], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{name}: {run.stderr[:2000]}")
        return run.stdout

    def objdump(self, words):
        """What objdump prints for words, each 4 bytes behind the one before, from address 0. Empty: unknown."""
        raise NotImplementedError

    def assemble(self, texts):
        """The words of texts, each 4 bytes behind the one before, from address 0."""
        raise NotImplementedError

    def at_zero(self, text, index):
        """A text as we print it, its target as the assembler wants it at that place."""
        raise NotImplementedError

    def raw(self, word):
        """A text of the assembler's that is just that word."""
        raise NotImplementedError

    def words(self):
        """All that is asked beside the examples."""
        raise NotImplementedError

    def shown(self, words):
        lines = "".join(f"{word:x} {4 * index:x}\n" for index, word in enumerate(words))
        run = subprocess.run([self.show], input=lines, capture_output=True, text=True, check=True)
        rows = [Shown(*line.split("|", 4)) for line in run.stdout.splitlines()]
        assert len(rows) == len(words)
        return rows

    def row_words(self, row, often):
        """Random words of a row, some registers more often than by chance, and some that miss it by one bit."""
        fixed = [bit for bit in range(row.width) if row.mask >> bit & 1]
        for turn in range(self.per_row):
            word = self.random.getrandbits(row.width)
            for shift, width in row.places.values():
                if width == 5 and turn % 3 == 0 and self.random.random() < 0.4:
                    word = word & ~(31 << shift) | self.random.choice(often) << shift
            word = word & ~row.mask | row.value
            if turn % 4 == 3:
                word ^= 1 << self.random.choice(fixed)
            yield word

    def compare(self, word, ours, theirs):
        """more: we know a word that objdump does not; less: it knows one that we refuse; text: another text.
        By row, or by the first word of the text; for less by that of objdump's."""
        if ours.text == theirs or (ours.row == "unknown" and not theirs):
            return
        if ours.row == "unknown":
            kind, names = "less", [theirs.split()[0]]
        else:
            kind, names = "text" if theirs else "more", [ours.row, ours.text.split()[0]]
        found = [self.differences[kind, name] for name in names if (kind, name) in self.differences]
        self.needed |= set(found)
        if not found and kind == "less" and self.version != self.known_version:
            self.told.append(f"{names[0]}: {word:08x} is '{theirs}' in binutils {self.version}")
        elif not found:
            self.failures.append(f"{kind} {names[0]}: {word:08x} is '{ours.text}', objdump '{theirs}'")

    def check_examples(self):
        examples = [(row, text) for row in self.table.rows for _, text in row.examples]
        words = self.assemble([text for _, text in examples])
        assert len(words) == len(examples)
        printed = []
        for (row, text), word, ours, theirs in zip(examples, words, self.shown(words), self.objdump(words)):
            if ours.row != row.name:
                self.failures.append(f"row {row.name}: '{text}' is {word:08x}, which row {ours.row} has")
            self.compare(word, ours, theirs)
            printed.append(ours.text if theirs == ours.text else self.raw(word))
        again = self.assemble([self.at_zero(text, index) for index, text in enumerate(printed)])
        for word, other, text in zip(words, again, printed):
            if word != other:
                self.failures.append(f"'{text}' was {word:08x} and assembles to {other:08x}")

    def run(self):
        """The status for exit."""
        with tempfile.TemporaryDirectory() as name:
            self.folder = pathlib.Path(name)
            self.check_examples()
            words = list(self.words())
            for word, ours, theirs in zip(words, self.shown(words), self.objdump(words)):
                self.compare(word, ours, theirs)
        if self.seed == SEED and self.version == self.known_version:
            for number in sorted(set(self.differences.values()) - self.needed):
                self.failures.append(f"differences: line {number} is not needed")
        for kind, lines in collections.Counter(line.split(":")[0] for line in self.failures).most_common(100):
            print(f"{lines} times: {next(line for line in self.failures if line.startswith(kind + ':'))}")
        for line in self.told[:20]:
            print(f"told: {line}")
        print(f"binutils {self.version}, seed {self.seed}, {len(words)} words, {len(self.failures)} failures")
        return 1 if self.failures else 0

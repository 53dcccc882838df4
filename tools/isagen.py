#!/usr/bin/env python3
"""Turns a behaviour table (isa/NAME.isa) into plain C, or into SUPPORT.md.

Reads one table, checks it, writes one file. Knows the table's language, nothing of instructions:
that a Zydis name exists is checked by the C compiler, that an example belongs to its row by a test.
Every mistake in a table ends the run with "FILE:LINE: what is wrong" and status 1.
"""
import argparse
import sys

import isabits
from isabits import TableError

FORMS = ["plain", "rel", "ind", "far", "rel16", "ind16", "priv", "int80"]
FLOWS = ["next", "cond", "jump", "ijump", "call", "icall", "ret", "stop"]
RELOCS = ["copy", "branch", "cond", "loop", "call", "icall", "ijump", "refuse"]
PCRELS = ["adjust", "none"]
FAULTS = ["never", "memory", "fp", "always"]
SIMULATORS = ["none", "nop", "push", "pop", "ret", "call", "icall", "jump", "ijump", "cond", "loop", "lea"]
TRAITS = ["syscall", "landing", "nop", "short", "weak", "shift", "fetch", "logic"]
# A direct branch is never displaced by copying, and each kind of copy belongs to one kind of flow.
FLOW_OF_RELOC = {
    "copy": ("next", "ret"),
    "branch": ("jump",),
    "cond": ("cond",),
    "loop": ("cond",),
    "call": ("call",),
    "icall": ("icall",),
    "ijump": ("ijump",),
    "refuse": tuple(FLOWS),
}
# A simulator leaves an instruction as its flow says.
FLOW_OF_SIMULATOR = {"ret": "ret", "call": "call", "icall": "icall", "jump": "jump", "ijump": "ijump",
                     "cond": "cond", "loop": "cond"}
SINGLE = ["say", "flow", "reloc", "refuse", "pcrel", "fault", "simulate"]
LISTS = ["category", "mnemonic", "bytes", "form", "traits"]
EXAMPLE_SIZE_MAX = 100  # characters
ROWS_MAX = 1000
BYTES_MAX = 8  # of a leading-bytes pick


class Row:
    def __init__(self, name, line):
        self.name = name
        self.line = line
        self.single = {}
        self.lists = {key: [] for key in LISTS}
        self.examples = []

    def get(self, key, default=None):
        return self.single.get(key, default)

    def forms(self):
        return self.lists["form"] or FORMS


def parse(text):
    rows = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.split("#", 1)[0].strip() if raw.lstrip().startswith("#") else raw.strip()
        if not line:
            continue
        key, _, rest = line.partition(" ")
        rest = rest.strip()
        if not rest:
            raise TableError(number, f"'{key}' says nothing")
        if key == "row":
            rows.append(Row(rest, number))
            continue
        if not rows:
            raise TableError(number, "a line before the first row")
        row = rows[-1]
        if key in SINGLE:
            if key in row.single:
                raise TableError(number, f"row {row.name}: '{key}' twice")
            row.single[key] = rest
        elif key in LISTS:
            row.lists[key] += rest.split()
        elif key == "example":
            row.examples.append((number, rest))
        else:
            raise TableError(number, f"unknown word '{key}'")
    if not rows:
        raise TableError(1, "no rows")
    if len(rows) > ROWS_MAX:
        raise TableError(rows[ROWS_MAX].line, f"more than {ROWS_MAX} rows")
    return rows


def check_words(row):
    """Each word is one the language has, and nothing is missing."""
    def fail(text):
        raise TableError(row.line, f"row {row.name}: {text}")

    for key in ["say", "flow", "reloc", "pcrel", "fault"]:
        if key not in row.single:
            fail(f"no '{key}'")
    for key, words in [("flow", FLOWS), ("reloc", RELOCS), ("pcrel", PCRELS), ("fault", FAULTS)]:
        if row.single[key] not in words:
            fail(f"'{row.single[key]}' is no {key}")
    if row.single.get("simulate", "none") not in SIMULATORS:
        fail(f"'{row.single['simulate']}' is no simulator")
    for key, words in [("form", FORMS), ("traits", TRAITS)]:
        for word in row.lists[key]:
            if word not in words:
                fail(f"'{word}' is no word for {key}")
    for key in LISTS:
        if len(set(row.lists[key])) != len(row.lists[key]):
            fail(f"a word twice in '{key}'")
    if not (row.lists["category"] or row.lists["mnemonic"] or row.lists["bytes"]):
        fail("picks nothing")
    for word in row.lists["bytes"]:
        if len(word) % 2 or len(word) > 2 * BYTES_MAX or set(word) - set("0123456789abcdef"):
            fail(f"'{word}' are no leading bytes")
    if not row.examples:
        fail("no example")
    for number, example in row.examples:
        if len(example) > EXAMPLE_SIZE_MAX or '"' in example or "\\" in example:
            raise TableError(number, f"row {row.name}: example too long, or with a quote")


def check_sense(row):
    """What one row says fits together."""
    def fail(text):
        raise TableError(row.line, f"row {row.name}: {text}")

    reloc, flow = row.single["reloc"], row.single["flow"]
    if flow not in FLOW_OF_RELOC[reloc]:
        fail(f"flow {flow} does not go with reloc {reloc}")
    if (reloc == "refuse") != ("refuse" in row.single):
        fail("a refusal needs its reason, and only a refusal has one")
    simulator = row.single.get("simulate", "none")
    if simulator != "none" and FLOW_OF_SIMULATOR.get(simulator, "next") != flow:
        fail(f"simulator {simulator} does not go with flow {flow}")
    if simulator != "none" and reloc == "refuse":
        fail("what is refused is not simulated")
    if "syscall" in row.lists["traits"] and reloc != "refuse":
        fail("a system call is never displaced")
    if ("short" in row.lists["traits"]) != (reloc == "loop"):
        fail("the short-only branches are those with reloc loop")
    if reloc in ("branch", "cond", "loop", "call") and row.forms() != ["rel"]:
        fail(f"reloc {reloc} is for the form rel only")
    if reloc in ("icall", "ijump") and row.forms() != ["ind"]:
        fail(f"reloc {reloc} is for the form ind only")
    if reloc == "copy" and row.lists["form"] and "rel" in row.lists["form"]:
        fail("a direct branch is never copied")
    for number, example in row.examples:
        if "rip" in example and row.single["pcrel"] != "adjust" and reloc != "refuse":
            raise TableError(number, f"row {row.name}: a pc-relative operand would be copied as it is")
    if row.single["pcrel"] == "adjust":
        if reloc not in ("copy", "icall", "ijump"):
            fail(f"pcrel adjust does not go with reloc {reloc}")
        if not any("rip" in example for _, example in row.examples):
            fail("adjusts pc-relative operands but has no example of one")


def check_overlap(rows):
    """No two rows pick the same instruction; no two rows have one name."""
    names = {}
    picks = {}
    for row in rows:
        if row.name in names:
            raise TableError(row.line, f"row {row.name}: the name is taken by line {names[row.name]}")
        names[row.name] = row.line
        for kind in ("category", "mnemonic", "bytes"):
            for word in row.lists[kind]:
                for form in row.forms():
                    other = picks.setdefault((kind, word, form), row)
                    if other is not row:
                        raise TableError(
                            row.line,
                            f"row {row.name}: {kind} {word} (form {form}) is also in row {other.name}")
    marks = [word for row in rows for word in row.lists["bytes"]]
    for one in marks:
        for two in marks:
            if one is not two and two.startswith(one):
                raise TableError(1, f"leading bytes {one} and {two} overlap")


def check(rows):
    for row in rows:
        check_words(row)
        check_sense(row)
    check_overlap(rows)


def c_mask(prefix, words):
    return " | ".join(f"{prefix}_{word.upper()}" for word in words) or "0"


def c_row(row):
    single = row.single
    forms = c_mask("FORM", row.lists["form"]) if row.lists["form"] else "FORM_ANY"
    return (f'    {{"{row.name}", TL_FLOW_{single["flow"].upper()}, '
            f'TL_RELOC_{single["reloc"].upper()}, TL_REFUSE_{single.get("refuse", "NONE")}, '
            f'PCREL_{single["pcrel"].upper()}, FAULT_{single["fault"].upper()}, {forms}, '
            f'SIMULATE_{single.get("simulate", "none").upper()}, '
            f'{c_mask("TRAIT", row.lists["traits"])}}},')


def c_picks(rows, kind):
    """Index of the first row of each pick, and chains of rows for picks with several forms."""
    chains = {}
    for index, row in enumerate(rows, 1):
        for word in row.lists[kind]:
            chains.setdefault(word, []).append(index)
    return chains


def write_c(rows, name, out):
    out.write(f"// Made from isa/{name}.isa by tools/isagen.py. Do not edit.\n")
    out.write("static const struct row table[] = {\n")
    out.write('    {"unknown", TL_FLOW_STOP, TL_RELOC_REFUSE, TL_REFUSE_UNKNOWN_INSN, PCREL_NONE, '
              "FAULT_ALWAYS, FORM_ANY, SIMULATE_NONE, 0},\n")
    for row in rows:
        out.write(c_row(row) + "\n")
    out.write("};\n\n")
    # Lists of row numbers, each ended by 0; a pick holds the place of its list.
    lists, places = [0], {}
    for kind in ("mnemonic", "category"):
        for word, chain in c_picks(rows, kind).items():
            key = tuple(chain)
            if key not in places:
                places[key] = len(lists)
                lists += chain + [0]
    kind_type = "uint8_t" if max(len(lists), len(rows)) < 256 else "uint16_t"
    out.write(f"static const {kind_type} row_lists[] = {{{', '.join(map(str, lists))}}};\n\n")
    for kind in ("mnemonic", "category"):
        prefix = f"ZYDIS_{kind.upper()}"
        out.write(f"static const {kind_type} {kind}_rows[{prefix}_MAX_VALUE + 1] = {{\n")
        for word, chain in sorted(c_picks(rows, kind).items()):
            out.write(f"    [{prefix}_{word}] = {places[tuple(chain)]},\n")
        out.write("};\n\n")
    out.write("static const struct mark marks[] = {\n")
    for word, chain in sorted(c_picks(rows, "bytes").items()):
        data = ", ".join(f"0x{word[i:i + 2]}" for i in range(0, len(word), 2))
        out.write(f"    {{{{{data}}}, {len(word) // 2}, {chain[0]}}},\n")
    out.write("};\n")


def write_examples(rows, name, out):
    out.write(f"// Made from isa/{name}.isa by tools/isagen.py. Do not edit.\n")
    out.write("static const struct example examples[] = {\n")
    for row in rows:
        for _, example in row.examples:
            out.write(f'    {{"{row.name}", "{example}"}},\n')
    out.write("};\n")


DOES = {
    "copy": "displaced by copying",
    "pcrel": "displaced, its pc-relative operand made absolute",
    "branch": "displaced, widened and retargeted",
    "cond": "displaced, widened and retargeted",
    "loop": "displaced around a short branch",
    "call": "displaced with the original return address",
    "icall": "displaced with the original return address",
    "ijump": "displaced by copying",
}
EXAMPLES_SHOWN = 3
SHOWN_NAMES = {"x86_64": "x86-64", "riscv": "riscv64"}


def row_does(row, sentences):
    """What the jump and slot rungs do with a row's instructions."""
    if row.get("reloc") == "refuse":
        return "refused: " + sentences.get(row.get("refuse"), row.get("refuse"))
    more = "; a pc-relative operand is adjusted" if row.get("pcrel") == "adjust" else ""
    return DOES[row.get("reloc")] + more


def shown_examples(rows):
    """The first example of each row, then the rest; raw bytes only where there is nothing else."""
    texts = [row.examples[0][1] for row in rows] + [text for row in rows for _, text in row.examples[1:]]
    readable = [text for text in texts if not text.startswith(".")] or texts[:1]
    return ", ".join(f"`{text}`" for text in readable[:EXAMPLES_SHOWN])


def support_lines(table):
    """(what it is, its rows) for each line: a row, or the rows of a group that fare alike."""
    for row in getattr(table, "groups", table):
        if isinstance(row, Row):
            yield f"{row.name}: {row.single['say']}", [row]
            continue
        alike = {}
        for one in table.rows:
            if one.group is row:
                alike.setdefault((one.get("reloc"), one.get("refuse"), one.get("simulate", "none")), []).append(one)
        for rows in alike.values():
            names = "" if len(alike) == 1 else f" ({', '.join(one.name for one in rows)})"
            yield f"{row.name}: {row.say}{names}", rows


def write_support(tables, out, sentences):
    files = [f"`isa/{name}.isa`" for name, _ in tables]
    names = " and ".join([", ".join(files[:-1]), files[-1]]) if len(files) > 1 else files[0]
    out.write(f"""# What can be probed

Made from {names} by `tools/isagen.py`; a test compares it. An instruction that no line
describes is refused: {sentences.get("UNKNOWN_INSN", "unknown")}.

The rungs jump, slot and step run the instruction displaced, the rung simulate does its work on the saved
registers, and the rung kernel leaves it to the kernel's own probes where those do it right. What is refused
is refused on every rung of ours; system calls and what uses its own address are still offered to the kernel.
""")
    for name, table in tables:
        out.write(f"""
## {SHOWN_NAMES.get(name, name)}

| instructions | displaced (jump, slot, step) | simulated by | for example |
| --- | --- | --- | --- |
""")
        for what, rows in support_lines(table):
            out.write(f"| {what} | {row_does(rows[0], sentences)} | "
                      f"{rows[0].get('simulate', 'none').replace('none', '')} | {shown_examples(rows)} |\n")


def read_sentences(path):
    """The refusals' sentences, from the X table in include/trapless/refusal.h."""
    sentences = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.strip()
            if text.startswith("X(") and '"' in text:
                key, _, rest = text[2:].partition(",")
                sentences[key.strip()] = rest.split('"')[1]
    return sentences


def load(path, sentences):
    """A checked table and its language."""
    text, places = isabits.read(path)
    language = isabits if isabits.is_bits(text) else sys.modules[__name__]
    try:
        table = language.parse(text)
        language.check(table)
        for row in getattr(table, "rows", table):
            refusal = row.get("refuse", "NONE")
            if sentences and refusal not in sentences:
                raise TableError(row.line, f"row {row.name}: no refusal {refusal}")
    except TableError as error:
        error.file, error.line = places[error.line - 1]
        raise
    return table, language


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="+", help="one, or several for --support")
    parser.add_argument("-o", "--output", help="file to write; standard output if absent")
    parser.add_argument("--examples", action="store_true", help="write the examples as C")
    parser.add_argument("--support", action="store_true", help="write SUPPORT.md")
    parser.add_argument("--refusals", help="include/trapless/refusal.h, for the sentences")
    options = parser.parse_args()
    tables = []
    for path in options.table:
        try:
            sentences = read_sentences(options.refusals) if options.refusals else {}
            table, language = load(path, sentences)
        except TableError as error:
            print(f"{error.file}:{error.line}: {error}", file=sys.stderr)
            return 1
        except (OSError, UnicodeDecodeError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 1
        tables.append((path.rsplit("/", 1)[-1].removesuffix(".isa"), table))
    out = open(options.output, "w", encoding="utf-8") if options.output else sys.stdout
    with out:
        if options.support:
            write_support(tables, out, sentences)
        elif options.examples:
            language.write_examples(table, tables[0][0], out)
        else:
            language.write_c(table, tables[0][0], out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

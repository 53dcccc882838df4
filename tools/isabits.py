"""The language of the tables for instruction sets that are bit patterns (isa/arm64.isa).

Parses one, checks it, writes plain C. Knows patterns, fields and register sets in general, no instruction.
tools/isagen.py is its command. Every mistake is a TableError with its line.
"""
import pathlib
import re

FLOWS = ["next", "cond", "jump", "ijump", "call", "icall", "ret", "stop"]
RELOCS = ["copy", "pcrel", "branch", "cond", "call", "icall", "ijump", "refuse"]
FLOW_OF_RELOC = {
    "copy": ("next", "ret"),
    "pcrel": ("next",),
    "branch": ("jump",),
    "cond": ("cond",),
    "call": ("call",),
    "icall": ("icall",),
    "ijump": ("ijump",),
    "refuse": tuple(FLOWS),
}
NEEDS_TARGET = ("pcrel", "branch", "cond", "call")
FAULTS = ["never", "memory", "fp", "always"]
TRAITS = ["syscall", "landing", "nop", "exclusive_load", "exclusive_store", "signs_link", "lea", "page",
          "based", "joined"]
SIMULATORS = ["none", "nop", "landing", "pair", "single", "literal", "prefetch", "branch", "call", "cond", "cbz",
              "tbz", "ibranch", "icall", "ret", "adr", "add"]
FLOW_OF_SIMULATOR = {"branch": "jump", "call": "call", "cond": "cond", "cbz": "cond", "tbz": "cond",
                     "ibranch": "ijump", "icall": "icall", "ret": "ret"}
SINGLE = ["flow", "reloc", "refuse", "fault", "simulate"]  # a group's are its rows' too
ROW_SINGLE = ["bits", "target"]
SETS = ["read", "write"]
# What a register field's number means: the zero register is none, or the stack pointer; a condition; 8 more.
KINDS = {"": "ZR", "sp": "SP", "cond": "COND", "c": "C"}
ROWS_MAX = 4000
PIECES_MAX = 8
EXAMPLE_SIZE_MAX = 100


class TableError(Exception):
    def __init__(self, line, text):
        super().__init__(text)
        self.line = line  # of the whole table; isagen.load turns it into the file's own
        self.file = None


def read(path):
    """A table's text with the included files in their places, and the (file, line) of each of its lines."""
    lines, places = [], []
    for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").split("\n"), 1):
        more = None
        if line.startswith("include "):
            more = pathlib.Path(path).parent / line.partition(" ")[2].strip()
        found = more.read_text(encoding="utf-8").split("\n") if more else [line]
        lines += found
        places += [(more, at) for at in range(1, len(found) + 1)] if more else [(path, number)]
    return "\n".join(lines), places


class Table:
    def __init__(self):
        self.widths = []  # of its words, the widest first
        self.fields = {}  # name -> width
        self.values = {}  # name -> (pieces, signed, scale)
        self.asks = {}    # way to print -> field that it looks at too
        self.names = {}   # name of a fixed register or set -> C expression
        self.groups = []
        self.rows = []


class Group:
    def __init__(self, name, line):
        self.name, self.line = name, line
        self.say = ""
        self.single, self.traits = {}, []


class Row:
    def __init__(self, name, line, group):
        self.name, self.line, self.group = name, line, group
        self.single, self.traits = {}, []
        self.sets = {key: [] for key in SETS}
        self.nots, self.over, self.examples = [], [], []
        self.width = 0
        self.mask = self.value = 0
        self.places = {}  # field -> (shift, width)
        self.holes = []   # (mask, value): words of the pattern that are not this row
        self.lines = []   # (line, conditions, template) of text and alias
        self.texts = []   # what place_texts makes of them

    def get(self, key, default=None):
        return self.single.get(key, self.group.single.get(key, default))

    def all_traits(self):
        return self.group.traits + self.traits

    def fail(self, text):
        raise TableError(self.line, f"row {self.name}: {text}")


def is_bits(text):
    """Whether a table is in this language: it begins with the width of its words."""
    return re.search(r"^width\s", text, re.MULTILINE) is not None


def parse_head(table, key, rest, number):
    """A line before the first group."""
    words = rest.split()
    if key == "width":
        table.widths = [int(word) for word in words]
    elif key == "field":
        width = int(words[-1])
        for name in words[:-1]:
            table.fields[name] = width
    elif key == "value":
        if len(words) < 3 or words[1] != "=":
            raise TableError(number, "a value is NAME = FIELD:FIELD... [signed] [*SCALE]")
        scale = [int(word[1:]) for word in words[3:] if word.startswith("*")]
        table.values[words[0]] = (words[2].split(":"), "signed" in words[3:], scale[0] if scale else 1)
    elif key == "asks":
        for kind in words[:-1]:
            table.asks[kind] = words[-1]
    elif key == "name":
        table.names[words[0]] = " ".join(words[2:])
    else:
        raise TableError(number, f"'{key}' before the first group")


def parse(text):
    table = Table()
    holder = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = "" if raw.lstrip().startswith("#") else raw.strip()
        if not line:
            continue
        key, _, rest = line.partition(" ")
        rest = rest.strip()
        if not rest:
            raise TableError(number, f"'{key}' says nothing")
        if key == "group":
            holder = Group(rest, number)
            table.groups.append(holder)
        elif not table.groups:
            parse_head(table, key, rest, number)
        elif key == "row":
            holder = Row(rest, number, table.groups[-1])
            table.rows.append(holder)
        elif isinstance(holder, Group) and key == "say":
            holder.say = rest
        elif key in SINGLE or (key in ROW_SINGLE and isinstance(holder, Row)):
            if key in holder.single:
                raise TableError(number, f"'{key}' twice in {holder.name}")
            holder.single[key] = rest
        elif key == "traits":
            holder.traits += rest.split()
        elif isinstance(holder, Row) and key in SETS:
            holder.sets[key] += rest.split()
        elif isinstance(holder, Row) and key == "not":
            holder.nots.append((number, rest.split()))
        elif isinstance(holder, Row) and key == "text":
            holder.lines.append((number, [], rest))
        elif isinstance(holder, Row) and key == "alias":
            conditions, _, template = rest.partition(" : ")
            holder.lines.append((number, conditions.split(), template.strip()))
        elif isinstance(holder, Row) and key == "over":
            holder.over += rest.split()
        elif isinstance(holder, Row) and key == "example":
            holder.examples.append((number, rest))
        else:
            raise TableError(number, f"unknown word '{key}'")
    if not table.rows:
        raise TableError(1, "no rows")
    if len(table.rows) > ROWS_MAX:
        raise TableError(table.rows[ROWS_MAX].line, f"more than {ROWS_MAX} rows")
    return table


def pattern_word(table, row, word):
    """(name of a field or None, bits) of a word of the pattern."""
    if re.fullmatch("[01.]+", word):
        return None, len(word)
    name, _, width = word.partition(":")
    if not width and name not in table.fields:
        row.fail(f"'{name}' is no field")
    return name, int(width) if width else table.fields[name]


def place_pattern(table, row):
    """The pattern's words, from the highest bit down, become mask, value and the places of fields. A row
    that is not of the widest words has the lowest bits, and the others may be anything."""
    if "bits" not in row.single:
        row.fail("no bits")
    words = row.single["bits"].split()
    at = row.width = sum(pattern_word(table, row, word)[1] for word in words)
    if row.width not in table.widths:
        row.fail(f"the pattern has {row.width} bits, not {' or '.join(map(str, table.widths))}")
    for word in words:
        name, bits = pattern_word(table, row, word)
        at -= bits
        if name is None:
            row.mask |= int(word.replace("0", "1").replace(".", "0"), 2) << at
            row.value |= int(word.replace(".", "0"), 2) << at
            continue
        if name in row.places:
            row.fail(f"field {name} twice")
        row.places[name] = (at, bits)


def field_bits(row, number, word):
    """FIELD=BITS as mask and value. '.' is any bit."""
    name, _, bits = word.partition("=")
    if name not in row.places or len(bits) != row.places[name][1] or set(bits) - set("01."):
        raise TableError(number, f"row {row.name}: '{word}' is no FIELD=BITS of it")
    shift = row.places[name][0]
    return (int(bits.replace("0", "1").replace(".", "0"), 2) << shift,
            int(bits.replace(".", "0"), 2) << shift)


def place_holes(row):
    """not FIELD=BITS ...: words where all of these hold are not of this row."""
    for number, words in row.nots:
        mask = value = 0
        for word in words:
            more = field_bits(row, number, word)
            mask, value = mask | more[0], value | more[1]
        row.holes.append((mask, value))


def place_choice(row, number, fields, words):
    """A choice has a word for each number of its fields; '-' is a number that the row has not."""
    width = sum(row.places[name][1] for name in fields)
    if len(words) != 1 << width:
        raise TableError(number, f"row {row.name}: {len(words)} words for a choice of {1 << width}")
    for pick, word in enumerate(words):
        if word != "-":
            continue
        mask = value = 0
        left = width
        for name in fields:
            shift, bits = row.places[name]
            left -= bits
            mask |= ((1 << bits) - 1) << shift
            value |= (pick >> left & ((1 << bits) - 1)) << shift
        if (mask, value) not in row.holes:
            row.holes.append((mask, value))


def merge_holes(holes):
    """The same words by fewer holes: two that differ in one bit become one."""
    holes = set(holes)
    while True:
        pair = next(((one, bit) for one in sorted(holes) for bit in range(32)
                     if one[0] >> bit & 1 and (one[0], one[1] ^ 1 << bit) in holes), None)
        if pair is None:
            return sorted(holes)
        (mask, value), bit = pair
        holes -= {(mask, value), (mask, value ^ 1 << bit)}
        holes.add((mask & ~(1 << bit), value & ~(1 << bit)))


def place_text(table, row, number, template):
    """A template as pieces: (literal before, kind, fields, signed, scale, words of a choice)."""
    pieces, used = [], set()
    for literal, item in re.findall(r"([^{]*)(?:\{([^}]*)\})?", template):
        if not item:
            if literal:
                pieces.append((literal, "NONE", [], False, 1, []))
            continue
        expr, equals, words = item.partition("=")
        kind = "CHOICE"
        if not equals:
            expr, _, kind = item.partition(":")
        fields, signed, scale = table.values.get(expr, (expr.split("+") if expr else [], False, 1))
        for name in fields:
            if name not in row.places:
                raise TableError(number, f"row {row.name}: '{name}' in '{item}' is no field")
        if not kind.isidentifier():
            raise TableError(number, f"row {row.name}: '{item}' says not how it is printed")
        if equals:
            place_choice(row, number, fields, words.split("|"))
        used |= set(fields) | {table.asks.get(kind)}
        pieces.append((literal, kind.upper(), fields, signed, scale, words.split("|") if equals else []))
    return pieces, used


def place_texts(table, row):
    """Every field is printed, or asked by a condition or a hole."""
    used = {word.partition("=")[0] for _, words in row.nots for word in words}
    for number, conditions, template in row.lines:
        mask = value = 0
        same, check = None, "NONE"
        for word in conditions:
            name, _, bits = word.partition("=")
            used.add(name)
            if word.startswith("?"):
                check = word[1:].upper()
            elif bits in row.places and name in row.places:
                same = (row.places[name][0], row.places[bits][0])
                used.add(bits)
            else:
                more = field_bits(row, number, word)
                mask, value = mask | more[0], value | more[1]
        pieces, more = place_text(table, row, number, template)
        used |= more
        row.texts.append((mask, value, same, check, pieces))
    if not row.lines:
        return
    if row.lines[-1][1]:
        row.fail("its last text must be without a condition")
    for name in row.places:
        if name not in used:
            row.fail(f"field {name} is in none of its texts")


def check_words(table, row):
    for key, words in [("flow", FLOWS), ("reloc", RELOCS), ("fault", FAULTS), ("simulate", SIMULATORS)]:
        if row.get(key, "none" if key == "simulate" else "") not in words:
            row.fail(f"'{row.get(key, '')}' is no {key}")
    for word in row.all_traits():
        if word not in TRAITS:
            row.fail(f"'{word}' is no trait")
    for key in SETS:
        for word in row.sets[key]:
            base = re.split(r"[.+]", word)[0]
            if word not in table.names and base not in row.places:
                row.fail(f"'{word}' is no field or register")
            if word not in table.names and not re.fullmatch(r"\w+(\.(sp|cond|c))?(\+1)?", word):
                row.fail(f"'{word}' is no way to name a register")
    if not row.examples:
        row.fail("no example")
    for number, example in row.examples:
        if len(example) > EXAMPLE_SIZE_MAX or '"' in example or "\\" in example:
            raise TableError(number, f"row {row.name}: example too long, or with a quote")


def check_sense(table, row):
    reloc, flow = row.get("reloc"), row.get("flow")
    if flow not in FLOW_OF_RELOC[reloc]:
        row.fail(f"flow {flow} does not go with reloc {reloc}")
    if (reloc == "refuse") != (row.get("refuse") is not None):
        row.fail("a refusal needs its reason, and only a refusal has one")
    simulator = row.get("simulate", "none")
    if simulator != "none" and FLOW_OF_SIMULATOR.get(simulator, "next") != flow:
        row.fail(f"simulator {simulator} does not go with flow {flow}")
    if simulator != "none" and reloc == "refuse":
        row.fail("what is refused is not simulated")
    traits = row.all_traits()
    if "syscall" in traits and reloc != "refuse":
        row.fail("a system call is never displaced")
    if ("exclusive_load" in traits or "exclusive_store" in traits) and reloc != "refuse":
        row.fail("an end of an exclusive region is never displaced")
    target = row.get("target")
    if target is None:
        if reloc in NEEDS_TARGET:
            row.fail(f"reloc {reloc} needs a target")
        return
    if reloc not in NEEDS_TARGET and reloc != "refuse":
        row.fail("a pc-relative instruction is never copied as it is")
    if target not in table.values:
        row.fail(f"'{target}' is no value")
    for piece in table.values[target][0]:
        if piece not in row.places:
            row.fail(f"target {target} needs the field {piece}")


def covered(mask, value, holes):
    """Whether the holes together hold all words with these bits."""
    holes = [hole for hole in holes if (hole[1] ^ value) & hole[0] & mask == 0]
    if any(hole_mask & ~mask == 0 for hole_mask, _ in holes):
        return True
    if not holes:
        return False
    bit = holes[0][0] & ~mask
    bit &= -bit
    return covered(mask | bit, value, holes) and covered(mask | bit, value | bit, holes)


def overlaps(one, two):
    """Whether some word is of both rows."""
    if (one.value ^ two.value) & one.mask & two.mask:
        return False
    return not covered(one.mask | two.mask, one.value | two.value, one.holes + two.holes)


def inside(one, two):
    """Whether every word of row one is of row two's pattern."""
    return two.mask & ~one.mask == 0 and (one.value & two.mask) == two.value


def check_overlap(table):
    """No word is of two rows, but for declared exceptions, which lie inside."""
    names = {}
    for row in table.rows:
        if row.name in names:
            row.fail(f"the name is taken by line {names[row.name].line}")
        names[row.name] = row
    for row in table.rows:
        for name in row.over:
            if name not in names:
                row.fail(f"it goes over {name}, which is no row")
            if not inside(row, names[name]):
                row.fail(f"it goes over {name} but does not lie inside it")
    for index, row in enumerate(table.rows):
        for other in table.rows[:index]:
            if overlaps(row, other) and other.name not in row.over and row.name not in other.over:
                row.fail(f"overlaps with row {other.name}")


def check(table):
    if not all(8 <= width <= 32 and width % 8 == 0 for width in table.widths):
        raise TableError(1, "no width of 8 to 32 bits")
    for row in table.rows:
        place_pattern(table, row)
        place_holes(row)
        place_texts(table, row)
        row.holes = merge_holes(row.holes)
        check_words(table, row)
        check_sense(table, row)
    check_overlap(table)


def depth(table, row):
    """Exceptions of exceptions come first."""
    by_name = {other.name: other for other in table.rows}
    return 1 + max((depth(table, by_name[name]) for name in row.over), default=0)


LEAF = 5     # rows a leaf of the tree may hold
NODE_BITS = 6


class Tree:
    """A decision tree over the rows, as one array. A node is its shift and width, then its children; a
    child is the place of a node, or of a leaf with the leaf bit set: a list of row numbers ended by 0."""

    def __init__(self, table):
        self.words = [0]
        self.width = max(table.widths)
        self.leaves, self.nodes = {}, {}
        numbered = [(number, row) for number, row in enumerate(table.rows, 1)]
        depths = {number: depth(table, row) for number, row in numbered}
        numbered.sort(key=lambda pair: -depths[pair[0]])
        self.root = self.node([(number, row.mask, row.value) for number, row in numbered])

    def leaf(self, rows):
        key = tuple(number for number, _, _ in rows)
        if key not in self.leaves:
            self.leaves[key] = len(self.words)
            self.words += list(key) + [0]
        return 0x8000 | self.leaves[key]

    def node(self, rows):
        best = None
        if len(rows) > LEAF:
            for width in range(1, NODE_BITS + 1):
                for shift in range(0, self.width - width + 1):
                    sizes = self.split_sizes(rows, shift, width)
                    cost = (max(sizes) + sum(sizes) / len(sizes)) * (1 + width / 12)
                    if max(sizes) < len(rows) and (best is None or cost < best[0]):
                        best = (cost, shift, width)
        if best is None:
            return self.leaf(rows)
        _, shift, width = best
        node = (shift << 8 | width,) + tuple(self.node(self.pick(rows, shift, width, pick))
                                             for pick in range(1 << width))
        if node not in self.nodes:
            self.nodes[node] = len(self.words)
            self.words += node
        return self.nodes[node]

    @staticmethod
    def pick(rows, shift, width, pick):
        field = ((1 << width) - 1) << shift
        return [row for row in rows if (row[2] ^ (pick << shift)) & row[1] & field == 0]

    @classmethod
    def split_sizes(cls, rows, shift, width):
        field = (1 << width) - 1
        sizes = [0] * (1 << width)
        for _, mask, value in rows:
            fixed, want = mask >> shift & field, value >> shift & field
            free = field & ~fixed
            sub = free
            while True:
                sizes[want & fixed | sub] += 1
                if sub == 0:
                    break
                sub = (sub - 1) & free
        return sizes


def c_uses(table, row, key):
    """The register fields of a set, and the fixed part of it as a C expression."""
    uses, fixed = [], []
    for word in row.sets[key]:
        if word in table.names:
            fixed.append(table.names[word])
            continue
        name, kind, plus = re.fullmatch(r"(\w+?)(?:\.(\w+))?(\+1)?", word).groups()
        shift, width = row.places[name]
        uses.append(f"{{{shift}, {width}, USE_{KINDS[kind or '']}, {1 if plus else 0}}}")
    return uses, " | ".join(fixed) or "0"


class Values:
    """The numbers in pieces that rows have, each once."""

    def __init__(self):
        self.lines = {"{{{0, 0}}, 0, 0, 0}": 0}

    def add(self, row, fields, signed, scale):
        if not fields:
            return 0
        if len(fields) > PIECES_MAX:
            row.fail(f"a number of more than {PIECES_MAX} pieces")
        placed = ", ".join("{%d, %d}" % row.places[name] for name in fields)
        line = f"{{{{{placed}}}, {len(fields)}, {1 if signed else 0}, {scale.bit_length() - 1}}}"
        return self.lines.setdefault(line, len(self.lines))


def c_texts(row, values, pieces):
    """Its texts as C; their pieces go to `pieces`."""
    lines = []
    for mask, value, same, check, items in row.texts:
        same_a, same_b = same or (0, 0)
        lines.append(f"{{0x{mask:08x}, 0x{value:08x}, {len(pieces)}, {len(items)}, {same_a}, {same_b}, "
                     f"CHECK_{check}}}")
        for literal, kind, fields, signed, scale, words in items:
            number = values.add(row, fields, signed, scale)
            choice = '"' + "|".join(words) + '"' if words else "NULL"
            pieces.append(f'{{"{literal}", {choice}, PRINT_{kind}, {number}}}')
    return lines


def write_c(table, name, out):
    out.write(f"// Made from isa/{name}.isa by tools/isagen.py. Do not edit.\n")
    uses, holes, lines, texts, pieces, values = [], [], [], [], [], Values()
    for row in table.rows:
        read, read_set = c_uses(table, row, "read")
        write, write_set = c_uses(table, row, "write")
        value = values.add(row, *table.values[row.get("target")]) if row.get("target") else 0
        traits = " | ".join(f"TRAIT_{word.upper()}" for word in row.all_traits()) or "0"
        lines.append(
            f'    {{"{row.name}", 0x{row.mask:08x}, 0x{row.value:08x}, {read_set}, {write_set}, '
            f"{len(uses)}, {len(holes)}, {len(texts)}, {len(read)}, {len(write)}, {len(row.holes)}, "
            f"{len(row.texts)}, {value}, "
            f"TL_FLOW_{row.get('flow').upper()}, TL_RELOC_{row.get('reloc').upper()}, "
            f"TL_REFUSE_{row.get('refuse', 'NONE')}, FAULT_{row.get('fault').upper()}, "
            f"SIMULATE_{row.get('simulate', 'none').upper()}, {row.width // 8}, {traits}}},")
        texts += c_texts(row, values, pieces)
        uses += read + write
        holes += [f"{{0x{mask:08x}, 0x{value:08x}}}" for mask, value in row.holes]
    out.write("static const struct row table[] = {\n")
    out.write('    {"unknown", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TL_FLOW_STOP, TL_RELOC_REFUSE, '
              "TL_REFUSE_UNKNOWN_INSN, FAULT_ALWAYS, SIMULATE_NONE, 0, 0},\n")
    out.write("\n".join(lines) + "\n};\n\n")
    for kind, what in [("use", uses), ("hole", holes), ("value", values.lines), ("text", texts),
                       ("piece", pieces)]:
        out.write(f"static const struct {kind} {kind}s[] = {{\n    " + ",\n    ".join(what) + ",\n};\n\n")
    tree = Tree(table)
    if len(tree.words) >= 0x8000:
        raise TableError(1, "the decision tree is too large")
    out.write(f"#define TREE_ROOT {tree.root}\n")
    out.write("static const uint16_t tree[] = {\n")
    for at in range(0, len(tree.words), 16):
        out.write("    " + ", ".join(map(str, tree.words[at:at + 16])) + ",\n")
    out.write("};\n")


def write_examples(table, name, out):
    out.write(f"// Made from isa/{name}.isa by tools/isagen.py. Do not edit.\n")
    out.write("static const struct example examples[] = {\n")
    for row in table.rows:
        for _, example in row.examples:
            out.write(f'    {{"{row.name}", "{example}"}},\n')
    out.write("};\n")

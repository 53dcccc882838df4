"""The gate of isa/arm64.isa against binutils (table_gate.py): random words of each row, and of all."""
import pathlib
import re
import sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent))
from table_gate import Gate  # noqa: E402

OFTEN = [31]
# What has a target, before it.
LABELLED = r"((?:b|bl|b\.\w+|bc\.\w+|cb\w+|(?:reta|auti)[ab]sppc|tbn?z|adrp?|ldr|ldrsw|prfm) (?:.*, )?)"


class Arm64(Gate):
    def objdump(self, words):
        file = self.folder / "words.bin"
        file.write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
        texts = []
        for line in self.tool("objdump", "-D", "-z", "-b", "binary", "-m", "aarch64", "-M", "no-notes", file).splitlines():
            parts = line.split("\t", 2)
            if len(parts) == 3 and parts[0].strip().endswith(":"):
                texts.append(re.sub(r"\s+", " ", parts[2].split("//")[0]).strip())
        assert len(texts) == len(words)
        return ["" if text.startswith(".inst") or "undefined" in text else text for text in texts]

    def assemble(self, texts):
        source, output = self.folder / "in.s", self.folder / "out.o"
        source.write_text("".join(f"{text}\n" for text in texts))
        self.tool("as", "-march=all", "-o", output, source)
        self.tool("objcopy", "-O", "binary", "-j", ".text", output, self.folder / "out.bin")
        data = (self.folder / "out.bin").read_bytes()
        return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]

    def at_zero(self, text, index):
        match = re.fullmatch(LABELLED + "0x([0-9a-f]+)", text)
        if not match:
            return text
        place = 0 if match[1].startswith("adrp") else 4 * index  # of its page
        return f"{match[1]}.+{int(match[2], 16) - place}"

    def raw(self, word):
        return f".inst 0x{word:08x}"

    def words(self):
        for row in self.table.rows:
            yield from self.row_words(row, OFTEN)
        yield from (self.random.getrandbits(32) for _ in range(self.at_large))


sys.exit(Arm64("arm64.isa", "aarch64-linux-gnu", here / "differences").run())

"""The gate of isa/riscv.isa against binutils (table_gate.py), without aliases: all compressed words, random ones of
each row, and random ones of 32 bits."""
import pathlib
import re
import sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent))
from table_gate import Gate  # noqa: E402

ARCH = ("rv64gc_zba_zbb_zbc_zbs_zbkb_zbkc_zbkx_zknd_zkne_zknh_zksed_zksh_zkr_zfh_zawrs_zihintpause_zicbom_zicbop_"
        "zicboz_v_zicond_zfa_zacas_zabha_zcb_zimop_zcmop_zvbb_zvbc_zvkg_zvkned_zvknhb_zvksed_zvksh_zfbfmin_zvfh_"
        "zvfbfmin_zvfbfwma_zicfiss_zicfilp")
OFTEN = [0, 1, 2, 5]
C_NOP = 0x0001
BRANCH = r"((?:jal|b(?:eq|ne|lt|ge)u?|c\.j|c\.b\w+) (?:.*,)?)"  # before its target


def is_short(word):
    return word & 3 != 3


def shown_by_objdump(text):
    """Its text as ours: a target has 0x; no instruction, or one with a rounding mode that is none, is empty."""
    text = re.sub(r"\s+", " ", re.sub(r" <.*?>| #.*", "", text)).strip()
    if text.startswith((".", "0x")) or re.fullmatch(r"f\w+\.\w.*,unknown", text):
        return ""
    return re.sub(f"^{BRANCH}([0-9a-f]+)$", r"\g<1>0x\2", text)


class Riscv(Gate):
    def built(self, text):
        """The object of a source, in which all the extensions are known."""
        source, output = self.folder / "in.s", self.folder / "out.o"
        source.write_text(".option norelax\n" + text)
        self.tool("as", f"-march={ARCH}", "-o", output, source)
        return output

    def objdump(self, words):
        data = b"".join((word & 0xffff | C_NOP << 16 if is_short(word) else word).to_bytes(4, "little")
                        for word in words)
        (self.folder / "words.bin").write_bytes(data)
        output = self.built(f".rept {len(words)}\nxori a0, a0, 5\n.endr\n")
        self.tool("objcopy", "--update-section", f".text={self.folder / 'words.bin'}", output)
        texts = {}
        for line in self.tool("objdump", "-d", "-z", "-M", "no-aliases", output).splitlines():
            match = re.match(r" *([0-9a-f]+):\t[0-9a-f ]+\t(.*)", line)
            if match:
                texts[int(match[1], 16)] = match[2]
        return [shown_by_objdump(texts[4 * index]) for index in range(len(words))]

    def assemble(self, texts):
        full = "".join(f".balign 4\n{text}\n" if text.startswith(("c.", ".half")) else
                       f".balign 4\n.option push\n.option norvc\n{text}\n.option pop\n" for text in texts)
        output = self.built(full + ".balign 4\n")
        self.tool("objcopy", "-O", "binary", "-j", ".text", output, self.folder / "out.bin")
        data = (self.folder / "out.bin").read_bytes()
        words = [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
        return [word & 0xffff if is_short(word) else word for word in words]

    def at_zero(self, text, index):
        match = re.fullmatch(f"{BRANCH}0x([0-9a-f]+)", text)
        return f"{match[1]}.+{int(match[2], 16) - 4 * index}" if match else text

    def raw(self, word):
        return f".half 0x{word:04x}" if is_short(word) else f".word 0x{word:08x}"

    def words(self):
        yield from (word for word in range(1 << 16) if is_short(word))
        chosen = [word for row in self.table.rows for word in self.row_words(row, OFTEN)]
        chosen += [self.random.getrandbits(32) | 3 for _ in range(self.at_large)]
        for word in chosen:
            if is_short(word):
                yield word & 0xffff
            elif word & 31 != 31:  # 48 bits and more have no row
                yield word


sys.exit(Riscv("riscv.isa", "riscv64-linux-gnu", here / "differences").run())

// What the riscv64 decoder says of words: hexadecimal words and addresses come in, one line each
// goes out. test_table.py asks it.
#include "arch/riscv64/riscv64.h"
#include "arch/riscv64/table.h"

#include <inttypes.h>
#include <stdio.h>

int main(void)
{
    uint32_t word;
    uint64_t addr;
    while (scanf("%" SCNx32 " %" SCNx64, &word, &addr) == 2) {
        uint8_t bytes[] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                           (uint8_t)(word >> 24)};
        struct tl_insn insn;
        char text[160];
        if (tl_riscv64_decode(bytes, sizeof(bytes), addr, &insn) != 0)
            return 1;
        tl_riscv64_print(&insn, text, sizeof(text));
        printf("%s|%u|%u|%s|%s\n", tl_riscv64_row(insn.row)->name, insn.flow, insn.reloc,
               tl_refusal_text((enum tl_refusal)insn.refusal), text);
    }
    return 0;
}

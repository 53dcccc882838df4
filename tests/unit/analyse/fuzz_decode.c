// Fuzz target: one instruction from any bytes, of every instruction set.
#include "../../fuzz/fuzz.h"

#include "arch/arch.h"

#include <string.h>

static void check_insn(const struct tl_insn *insn, const uint8_t *data, size_t size)
{
    bool refused = insn->reloc == TL_RELOC_REFUSE;
    require(insn->size > 0 && insn->size <= size, "the size is within the input");
    require(memcmp(insn->bytes, data, insn->size) == 0, "the bytes are kept");
    require(refused == (insn->refusal != TL_REFUSE_NONE),
            "a refusal has its reason, and only that");
    require(insn->disp_off + insn->disp_size <= insn->size, "the displacement is inside");
    require((insn->flags & TL_INSN_SYSCALL) == 0 || refused, "a system call is never displaced");
    require((insn->flags & TL_INSN_PCREL_DATA) == 0 || insn->reloc != TL_RELOC_COPY,
            "a pc-relative operand is never copied");
    require(insn->flow != TL_FLOW_COND || refused || insn->reloc == TL_RELOC_COND ||
                insn->reloc == TL_RELOC_LOOP,
            "a conditional branch is never copied");
    require(insn->flow != TL_FLOW_JUMP || refused || insn->reloc == TL_RELOC_BRANCH,
            "a jump is never copied");
    require(((insn->written & TL_REGSET_FLAGS) != 0) ==
                ((insn->written & TL_REGSET_EACH_FLAG) == TL_REGSET_EACH_FLAG),
            "the flags are written when each flag is");
    if ((insn->flags & TL_INSN_PCREL_DATA) != 0 && insn->disp_size != 0) {
        int32_t disp;
        memcpy(&disp, insn->bytes + insn->disp_off, sizeof(disp));
        require(insn->target == insn->addr + insn->size + (uint64_t)(int64_t)disp,
                "the operand is where the displacement says");
    }
}

static void check_definitions(const struct tl_arch *arch, const struct tl_insn *insn)
{
    unsigned none = (unsigned)(64 - __builtin_clzll(arch->general_regs));
    for (unsigned reg = 0; reg <= none; reg++) {
        struct tl_definition def;
        arch->define(insn, reg == none ? TL_DEF_REG_NONE : reg, &def);
        require(def.kind != TL_DEF_COPY || def.a < none, "a copy comes from a register");
        require(def.kind != TL_DEF_KEEP || reg == none || (insn->written >> reg & 1) == 0 ||
                    insn->reloc == TL_RELOC_REFUSE || insn->flow == TL_FLOW_CALL ||
                    insn->flow == TL_FLOW_ICALL || reg == 0,
                "what is written is not kept");
    }
}

static void decode_at(const struct tl_arch *arch, const uint8_t *data, size_t size, tl_addr addr)
{
    struct tl_insn insn, skimmed, again;
    char text[64];
    int status = arch->decode(data, size, addr, &insn);
    int skim = arch->skim(data, size, addr, &skimmed);
    require(skim == 0 || status != 0, "what is decoded can be skimmed");
    if (status != 0)
        return;
    check_insn(&insn, data, size);
    require(insn.size % arch->insn_align == 0, "the size is one that instructions have");
    require(insn.size == skimmed.size && insn.flow == skimmed.flow &&
                insn.reloc == skimmed.reloc && insn.target == skimmed.target,
            "both ways of decoding agree");
    require(arch->decode(insn.bytes, insn.size, insn.addr, &again) == 0 &&
                memcmp(&insn, &again, sizeof(insn)) == 0,
            "an instruction does not depend on what follows");
    arch->print(&insn, text, sizeof(text));
    require(text[0] != '\0', "there is a text");
    check_definitions(arch, &insn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tl_arch *const archs[] = {&tl_arch_x86_64, &tl_arch_arm64, &tl_arch_riscv64};
    for (size_t i = 0; i < TL_ARRAY_COUNT(archs); i++)
        for (size_t off = 0; off < size; off += archs[i]->insn_align)
            decode_at(archs[i], data + off, size - off, 0x400000 + off);
    return 0;
}

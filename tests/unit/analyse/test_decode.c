// Facts of single instructions: every example of the table decodes to its row, and chosen
// instructions have exactly the facts written here.
#include "assemble.h"

#include "arch/arch.h"
#include "arch/x86_64/x86_64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct example {
    const char *row, *text;
};
#include "isa_x86_64_examples.inc"

#define AT 0x10000

static void examples_decode_to_their_rows(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(examples)];
    for (size_t i = 0; i < TL_ARRAY_COUNT(examples); i++)
        snippets[i].text = examples[i].text;
    assert_true(assemble(snippets, TL_ARRAY_COUNT(examples)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(examples); i++) {
        struct tl_insn insn, skimmed;
        const uint8_t *bytes = snippets[i].bytes;
        if (snippets[i].size == 0)
            fail_msg("%s: not assembled", examples[i].text);
        if (tl_arch_x86_64.decode(bytes, snippets[i].size, AT, &insn) != 0)
            fail_msg("%s: not decoded", examples[i].text);
        if (strcmp(tl_x86_64_row_name(insn.row), examples[i].row) != 0)
            fail_msg("%s: row %s, not %s", examples[i].text, tl_x86_64_row_name(insn.row),
                     examples[i].row);
        assert_int_equal(insn.size, snippets[i].size);
        assert_memory_equal(insn.bytes, bytes, insn.size);
        // A pc-relative operand is never copied.
        if (strstr(examples[i].text, "rip") != NULL && (insn.flags & TL_INSN_NOP) == 0 &&
            insn.reloc != TL_RELOC_REFUSE) {
            assert_true((insn.flags & TL_INSN_PCREL_DATA) != 0);
            assert_int_not_equal(insn.reloc, TL_RELOC_COPY);
            assert_int_equal(insn.disp_size, 4);
            int32_t disp;
            memcpy(&disp, bytes + insn.disp_off, 4);
            assert_int_equal(insn.target, AT + insn.size + (uint64_t)(int64_t)disp);
        }
        // The quick form says the same.
        assert_int_equal(tl_arch_x86_64.skim(bytes, snippets[i].size, AT, &skimmed), 0);
        assert_int_equal(skimmed.size, insn.size);
        assert_int_equal(skimmed.flow, insn.flow);
        assert_int_equal(skimmed.reloc, insn.reloc);
        assert_int_equal(skimmed.refusal, insn.refusal);
        assert_int_equal(skimmed.target, insn.target);
        assert_int_equal(skimmed.disp_off, insn.disp_off);
        // Cut short by one byte it is no instruction, or at least not this one.
        if (tl_arch_x86_64.decode(bytes, insn.size - 1u, AT, &skimmed) == 0)
            assert_int_not_equal(skimmed.size, insn.size);
    }
}

#define R(n) ((tl_regset)1 << (n))
#define AX R(0)
#define CX R(1)
#define DX R(2)
#define BX R(3)
#define SP R(4)
#define BP R(5)
#define SI R(6)
#define DI R(7)
#define FL (TL_REGSET_FLAGS | TL_REGSET_EACH_FLAG)
#define CF (TL_REGSET_CF | TL_REGSET_FLAGS)
#define ZF (TL_REGSET_ZF | TL_REGSET_FLAGS)
#define ST (TL_INSN_WRITES_SP | TL_INSN_FAULT_STACK)
#define ALL (TL_REGSET_ALL | TL_REGSET_EACH_FLAG)

static const struct fact {
    const char *text;
    enum tl_flow flow;
    enum tl_reloc reloc;
    tl_regset read, written;
    unsigned flags; // without FAULT
    bool fault;
} facts[] = {
    {"mov al, 1", TL_FLOW_NEXT, TL_RELOC_COPY, 0, 0, 0, false},
    {"mov ax, cx", TL_FLOW_NEXT, TL_RELOC_COPY, CX, 0, 0, false},
    {"mov eax, ecx", TL_FLOW_NEXT, TL_RELOC_COPY, CX, AX, 0, false},
    {"mov ah, cl", TL_FLOW_NEXT, TL_RELOC_COPY, CX, 0, 0, false},
    {"mov dl, ch", TL_FLOW_NEXT, TL_RELOC_COPY, CX, 0, 0, false},
    {"mov sil, dil", TL_FLOW_NEXT, TL_RELOC_COPY, DI, 0, 0, false},
    {"mov r8b, r9b", TL_FLOW_NEXT, TL_RELOC_COPY, R(9), 0, 0, false},
    {"movzx eax, cl", TL_FLOW_NEXT, TL_RELOC_COPY, CX, AX, 0, false},
    {"movsx ax, cl", TL_FLOW_NEXT, TL_RELOC_COPY, CX, 0, 0, false},
    {"mov [rdi+rcx*4], rdx", TL_FLOW_NEXT, TL_RELOC_COPY, DI | CX | DX, 0, 0, true},
    {"lea rax, [rdi+rcx*4]", TL_FLOW_NEXT, TL_RELOC_COPY, DI | CX, AX, 0, false},
    {"xor eax, eax", TL_FLOW_NEXT, TL_RELOC_COPY, 0, AX | FL, 0, false},
    {"sub r9, r9", TL_FLOW_NEXT, TL_RELOC_COPY, 0, R(9) | FL, 0, false},
    {"xor ax, ax", TL_FLOW_NEXT, TL_RELOC_COPY, AX, FL, 0, false},
    {"sbb eax, eax", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CF,
     AX | (TL_REGSET_EACH_FLAG & ~TL_REGSET_AF), 0, false},
    {"add rax, rdx", TL_FLOW_NEXT, TL_RELOC_COPY, AX | DX, AX | FL, 0, false},
    {"add al, dl", TL_FLOW_NEXT, TL_RELOC_COPY, AX | DX, FL, 0, false},
    {"inc eax", TL_FLOW_NEXT, TL_RELOC_COPY, AX, AX | (TL_REGSET_EACH_FLAG & ~TL_REGSET_CF), 0,
     false},
    {"cmovz eax, edx", TL_FLOW_NEXT, TL_RELOC_COPY, DX | ZF, 0, 0, false},
    {"setnz al", TL_FLOW_NEXT, TL_RELOC_COPY, ZF, 0, 0, false},
    {"adc rax, 0", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CF, AX | FL, 0, false},
    {"shl rax, cl", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CX, AX, 0, false},
    {"shl rax, 0", TL_FLOW_NEXT, TL_RELOC_COPY, AX, AX, 0, false},
    {"shl rax, 64", TL_FLOW_NEXT, TL_RELOC_COPY, AX, AX, 0, false},
    {"bsf eax, edx", TL_FLOW_NEXT, TL_RELOC_COPY, DX, 0, 0, false},
    {"tzcnt rax, rdx", TL_FLOW_NEXT, TL_RELOC_COPY, DX, 0, 0, false},
    {"mul rcx", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CX, AX | DX | TL_REGSET_CF | TL_REGSET_OF, 0,
     false},
    {"div rcx", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CX | DX, AX | DX, 0, true},
    {"cqo", TL_FLOW_NEXT, TL_RELOC_COPY, AX, DX, 0, false},
    {"cdqe", TL_FLOW_NEXT, TL_RELOC_COPY, AX, AX, 0, false},
    {"cpuid", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CX, AX | BX | CX | DX, 0, true},
    {"rdtsc", TL_FLOW_NEXT, TL_RELOC_COPY, 0, AX | DX, 0, true},
    {"rdsspq rax", TL_FLOW_NEXT, TL_RELOC_COPY, 0, 0, 0, true},
    {"cmpxchg [rdi], rdx", TL_FLOW_NEXT, TL_RELOC_COPY, AX | DX | DI, FL, 0, true},
    {"xchg rax, rdx", TL_FLOW_NEXT, TL_RELOC_COPY, AX | DX, AX | DX, 0, false},
    {"rep movsb", TL_FLOW_NEXT, TL_RELOC_COPY, CX | SI | DI, 0, 0, true},
    {"rep stosq", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CX | DI, 0, 0, true},
    {"repnz scasb", TL_FLOW_NEXT, TL_RELOC_COPY, AX | CX | DI | ZF, 0, 0, true},
    {"rep lodsd", TL_FLOW_NEXT, TL_RELOC_COPY, CX | SI, 0, 0, true},
    {"lodsd", TL_FLOW_NEXT, TL_RELOC_COPY, SI, AX, 0, true},
    {"push rbp", TL_FLOW_NEXT, TL_RELOC_COPY, BP | SP, SP, ST, true},
    {"push [rdi]", TL_FLOW_NEXT, TL_RELOC_COPY, DI | SP, SP, TL_INSN_WRITES_SP, true},
    {"pop r12", TL_FLOW_NEXT, TL_RELOC_COPY, SP, SP | R(12), ST, true},
    {"pushfq", TL_FLOW_NEXT, TL_RELOC_COPY, SP | FL, SP, ST, true},
    {"popfq", TL_FLOW_NEXT, TL_RELOC_COPY, SP, SP | FL, ST, true},
    {"lahf", TL_FLOW_NEXT, TL_RELOC_COPY, FL & ~TL_REGSET_OF, 0, 0, false},
    {"leave", TL_FLOW_NEXT, TL_RELOC_COPY, SP | BP, SP | BP, TL_INSN_WRITES_SP, true},
    {"add rsp, 8", TL_FLOW_NEXT, TL_RELOC_COPY, SP, SP | FL, TL_INSN_WRITES_SP, false},
    {"nop dword ptr [rax+rcx]", TL_FLOW_NEXT, TL_RELOC_COPY, 0, 0, TL_INSN_NOP, false},
    {"endbr64", TL_FLOW_NEXT, TL_RELOC_COPY, 0, 0, TL_INSN_NOP | TL_INSN_LANDING, false},
    {"prefetcht0 [rdi]", TL_FLOW_NEXT, TL_RELOC_COPY, DI, 0, 0, false},
    {"pxor xmm0, xmm0", TL_FLOW_NEXT, TL_RELOC_COPY, 0, 0, 0, false},
    {"addsd xmm0, xmm1", TL_FLOW_NEXT, TL_RELOC_COPY, 0, 0, 0, true},
    {"movq rax, xmm0", TL_FLOW_NEXT, TL_RELOC_COPY, 0, AX, 0, false},
    {"pextrb eax, xmm0, 1", TL_FLOW_NEXT, TL_RELOC_COPY, 0, AX, 0, false},
    {"ucomisd xmm0, xmm1", TL_FLOW_NEXT, TL_RELOC_COPY, 0, FL, 0, true},
    {"mulx rax, rcx, rbx", TL_FLOW_NEXT, TL_RELOC_COPY, DX | BX, AX | CX, 0, false},
    {"vpgatherdd xmm0, [rax+xmm1*4], xmm2", TL_FLOW_NEXT, TL_RELOC_COPY, AX, 0, 0, true},
    {"jmp .+0x100", TL_FLOW_JUMP, TL_RELOC_BRANCH, 0, 0, 0, false},
    {"jz .+0x100", TL_FLOW_COND, TL_RELOC_COND, ZF, 0, 0, false},
    {"jrcxz .+8", TL_FLOW_COND, TL_RELOC_LOOP, CX, 0, TL_INSN_SHORT_ONLY, false},
    {"loopz .+8", TL_FLOW_COND, TL_RELOC_LOOP, CX | ZF, CX, TL_INSN_SHORT_ONLY, false},
    {"jmp rax", TL_FLOW_IJUMP, TL_RELOC_IJUMP, AX, 0, 0, false},
    {"notrack jmp [rdi+8]", TL_FLOW_IJUMP, TL_RELOC_IJUMP, DI, 0, 0, true},
    {"call .+0x100", TL_FLOW_CALL, TL_RELOC_CALL, SP, SP, ST, true},
    {"call rdx", TL_FLOW_ICALL, TL_RELOC_ICALL, SP | DX, SP, ST, true},
    {"ret", TL_FLOW_RET, TL_RELOC_COPY, SP, SP, ST, true},
    {"syscall", TL_FLOW_NEXT, TL_RELOC_REFUSE, ALL, 0, TL_INSN_SYSCALL, false},
    {"ud2", TL_FLOW_STOP, TL_RELOC_REFUSE, ALL, 0, 0, true},
};

static void facts_are_exact(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(facts)];
    for (size_t i = 0; i < TL_ARRAY_COUNT(facts); i++)
        snippets[i].text = facts[i].text;
    assert_true(assemble(snippets, TL_ARRAY_COUNT(facts)));
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(facts); i++) {
        struct tl_insn insn;
        const struct fact *fact = &facts[i];
        assert_int_equal(tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, AT, &insn), 0);
        if (insn.flow == fact->flow && insn.reloc == fact->reloc && insn.read == fact->read &&
            insn.written == fact->written &&
            (insn.flags & ~(unsigned)TL_INSN_MAY_FAULT) == fact->flags &&
            ((insn.flags & TL_INSN_MAY_FAULT) != 0) == fact->fault)
            continue;
        wrong++;
        print_error(
            "%s: flow %u reloc %u read %#llx written %#llx flags %x, not %u %u %#llx %#llx %x%s\n",
            fact->text, insn.flow, insn.reloc, (unsigned long long)insn.read,
            (unsigned long long)insn.written, insn.flags, fact->flow, fact->reloc,
            (unsigned long long)fact->read, (unsigned long long)fact->written, fact->flags,
            fact->fault ? " fault" : "");
    }
    assert_int_equal(wrong, 0);
}

// Bytes that no assembler writes, and what must be said of them.
static const struct raw {
    const char *name;
    uint8_t bytes[16];
    uint8_t size;
    int status;
    enum tl_refusal refusal;
} raws[] = {
    {"66 90 is a nop", {0x66, 0x90}, 2, 0, TL_REFUSE_NONE},
    {"many prefixes", {0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x90}, 7, 0, TL_REFUSE_NONE},
    {"fifteen prefixes are no instruction",
     {0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e,
      0x90},
     16,
     TL_E_FORMAT,
     TL_REFUSE_NONE},
    {"66 e8", {0x66, 0xe8, 0, 1, 0, 0}, 6, 0, TL_REFUSE_VENDOR},
    {"66 jmp rax", {0x66, 0xff, 0xe0}, 3, 0, TL_REFUSE_VENDOR},
    {"66 48 e8 is the call of the TLS sequence",
     {0x66, 0x66, 0x48, 0xe8, 0, 1, 0, 0},
     8,
     0,
     TL_REFUSE_NONE},
    {"eip-relative", {0x67, 0x48, 0x8b, 0x05, 0, 1, 0, 0}, 8, 0, TL_REFUSE_PC_USE},
    {"invalid in 64-bit mode", {0x06}, 1, TL_E_FORMAT, TL_REFUSE_NONE},
    {"int3", {0xcc}, 1, 0, TL_REFUSE_TRAP},
    {"kvm prefix", {0x0f, 0x0b, 'k', 'v', 'm', 0x0f, 0xa2}, 7, 0, TL_REFUSE_EMULATE},
    {"xen prefix", {0x0f, 0x0b, 'x', 'e', 'n', 0x0f, 0xa2}, 7, 0, TL_REFUSE_EMULATE},
    {"xbegin", {0xc7, 0xf8, 0, 0, 0, 0}, 6, 0, TL_REFUSE_TRANSACTION},
    {"xabort", {0xc6, 0xf8, 1}, 3, 0, TL_REFUSE_TRANSACTION},
    {"lret 8", {0xca, 8, 0}, 3, 0, TL_REFUSE_FAR},
    {"rex lret", {0x48, 0xcb}, 2, 0, TL_REFUSE_FAR},
    {"nothing", {0}, 0, TL_E_FORMAT, TL_REFUSE_NONE},
};

static void odd_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(raws); i++) {
        struct tl_insn insn = {0};
        int status = tl_arch_x86_64.decode(raws[i].bytes, raws[i].size, AT, &insn);
        if (status != raws[i].status || (status == 0 && insn.refusal != raws[i].refusal) ||
            (status == 0 && raws[i].size < 16 && insn.size != raws[i].size) ||
            (status == 0 && (insn.reloc == TL_RELOC_REFUSE) != (insn.refusal != TL_REFUSE_NONE)))
            fail_msg("%s: status %d refusal '%s' size %u", raws[i].name, status,
                     tl_refusal_text(insn.refusal), insn.size);
    }
}

static void displacements_before_immediates(void **state)
{
    (void)state;
    struct snippet snippets[] = {{.text = "cmp byte ptr [rip+0x11223344], 7"},
                                 {.text = "cmp dword ptr [rip+0x11223344], 0x55667788"},
                                 {.text = "mov qword ptr [rip+0x11223344], 0x55667788"},
                                 {.text = "test byte ptr [rip+0x11223344], 7"},
                                 {.text = "imul eax, [rip+0x11223344], 0x55667788"}};
    assert_true(assemble(snippets, TL_ARRAY_COUNT(snippets)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(snippets); i++) {
        static const uint8_t disp[] = {0x44, 0x33, 0x22, 0x11};
        struct tl_insn insn;
        assert_int_equal(tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, AT, &insn), 0);
        assert_memory_equal(insn.bytes + insn.disp_off, disp, 4);
        assert_int_equal(insn.target, AT + insn.size + 0x11223344);
    }
}

static void faults_of_the_unnamed_stack(void **state)
{
    (void)state;
    static const bool stack[] = {true, true, true, false, false, false};
    struct snippet snippets[] = {{.text = "push rbp"},       {.text = "pop r12"},
                                 {.text = "pushfq"},         {.text = "push [rdi]"},
                                 {.text = "mov [rsp], rax"}, {.text = "push [rip+8]"}};
    assert_true(assemble(snippets, TL_ARRAY_COUNT(snippets)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(snippets); i++) {
        struct tl_insn insn;
        assert_int_equal(tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, AT, &insn), 0);
        assert_true((insn.flags & TL_INSN_MAY_FAULT) != 0);
        assert_int_equal((insn.flags & TL_INSN_FAULT_STACK) != 0, stack[i]);
    }
}

static void text_is_cut_and_terminated(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x48, 0x8b, 0x05, 0, 1, 0, 0};
    struct tl_insn insn;
    char buf[8] = "zzzzzzz";
    assert_int_equal(tl_arch_x86_64.decode(bytes, sizeof(bytes), AT, &insn), 0);
    tl_arch_x86_64.print(&insn, buf, sizeof(buf));
    assert_string_equal(buf, "mov rax");
    tl_arch_x86_64.print(&insn, buf, 1);
    assert_string_equal(buf, "");
}

#define NONE TL_DEF_REG_NONE

// What an instruction does to rsp (4) and rbp (5).
static void steps_of_the_stack(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct tl_stack_step step;
    } table[] = {
        {"nop", {4, 5, NONE, 0, 0, 0, 0, 0}},
        {"push rbx", {4, 5, NONE, -8, 0, 0, 0, 0}},
        {"push word ptr [rdi]", {4, 5, NONE, -2, 0, 0, 0, 0}},
        {"push 4", {4, 5, NONE, -8, 0, 0, 0, 0}},
        {"pushfq", {4, 5, NONE, -8, 0, 0, 0, 0}},
        {"pop rbx", {4, 5, NONE, 8, 0, 0, 0, 0}},
        {"pop rbp", {4, NONE, NONE, 8, 0, 0, 0, 0}},
        {"pop rsp", {NONE, 5, NONE, 0, 0, 0, 0, 0}},
        {"sub rsp, 0x18", {4, 5, NONE, -0x18, 0, 0, 0, 0}},
        {"add rsp, -128", {4, 5, NONE, -128, 0, 0, 0, 0}},
        {"sub rsp, rax", {NONE, 5, NONE, 0, 0, 0, 0, 0}},
        {"and rsp, -32", {NONE, 5, NONE, 0, 0, 0, 0, 0}},
        {"lea rsp, [rbp-40]", {5, 5, NONE, -40, 0, 0, 0, 0}},
        {"lea rsp, [r10-8]", {10, 5, NONE, -8, 0, 0, 0, 0}},
        {"lea rsp, [rsp+rax*8]", {NONE, 5, NONE, 0, 0, 0, 0, 0}},
        {"mov rsp, rbp", {5, 5, NONE, 0, 0, 0, 0, 0}},
        {"mov rsp, [rdi]", {NONE, 5, NONE, 0, 0, 0, 0, 0}},
        {"xchg rsp, rax", {NONE, 5, NONE, 0, 0, 0, 0, 0}},
        {"leave", {5, NONE, NONE, 8, 0, 0, 0, 0}},
        {"mov rbp, rsp", {4, 4, NONE, 0, 0, 0, 0, 0}},
        {"lea rbp, [rsp+16]", {4, 4, NONE, 0, 16, 0, 0, 0}},
        {"mov ebp, edi", {4, NONE, NONE, 0, 0, 0, 0, 0}},
        {"mov rbx, rsp", {4, 5, 3, 0, 0, 0, 0, 0}},
        {"lea r10, [rsp+8]", {4, 5, 10, 0, 0, 8, 0, 0}},
        {"cmp rsp, [r14+16]", {4, 5, NONE, 0, 0, 0, 0, 0}},
        {"test rsp, rsp", {4, 5, NONE, 0, 0, 0, 0, 0}},
        {"call rax", {4, 5, NONE, 0, 0, 0, 0, 0}},
    };
    static struct snippet snippets[TL_ARRAY_COUNT(table)];
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++)
        snippets[i].text = table[i].text;
    assert_true(assemble(snippets, TL_ARRAY_COUNT(table)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        const struct tl_stack_step *want = &table[i].step;
        struct tl_stack_step step;
        struct tl_insn insn;
        assert_int_equal(tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, AT, &insn), 0);
        tl_arch_x86_64.stack(&insn, &step);
        if (step.sp_from != want->sp_from || step.fp_from != want->fp_from ||
            step.copy_reg != want->copy_reg)
            fail_msg("%s: sp from %u, fp from %u, copy in %u", table[i].text, step.sp_from,
                     step.fp_from, step.copy_reg);
        // A constant means nothing where the register is not known.
        if ((step.sp_from != NONE && step.sp_plus != want->sp_plus) ||
            (step.fp_from != NONE && step.fp_plus != want->fp_plus) ||
            (step.copy_reg != NONE && step.copy_plus != want->copy_plus))
            fail_msg("%s: sp %+d, fp %+d, copy %+d", table[i].text, step.sp_plus, step.fp_plus,
                     step.copy_plus);
    }
}

// Linux on x86-64 takes whatever has the opcode of nop for one; for the others see their arch.c.
static void what_a_kernel_probe_breaks(void **state)
{
    (void)state;
    static const struct {
        const struct tl_arch *arch;
        uint8_t bytes[4];
        uint8_t size;
        bool breaks;
    } table[] = {
        {&tl_arch_x86_64, {0x49, 0x90}, 2, true},               // xchg %rax, %r8
        {&tl_arch_x86_64, {0x41, 0x90}, 2, true},               // xchg %eax, %r8d
        {&tl_arch_x86_64, {0x66, 0x41, 0x90}, 3, true},         // xchg %ax, %r8w
        {&tl_arch_x86_64, {0x90}, 1, false},                    // nop
        {&tl_arch_x86_64, {0x66, 0x90}, 2, false},              // xchg %ax, %ax
        {&tl_arch_x86_64, {0x48, 0x90}, 2, false},              // rex.W nop
        {&tl_arch_x86_64, {0xf3, 0x90}, 2, false},              // pause
        {&tl_arch_x86_64, {0x49, 0x91}, 2, false},              // xchg %rax, %r9
        {&tl_arch_x86_64, {0x0c, 0x90}, 2, false},              // or $0x90, %al
        {&tl_arch_x86_64, {0xb0, 0x90}, 2, false},              // mov $0x90, %al
        {&tl_arch_x86_64, {0x83, 0xc1, 0x90}, 3, false},        // add $-112, %ecx
        {&tl_arch_x86_64, {0x83, 0x41, 0x49, 0x90}, 4, false},  // addl $-112, 0x49(%rcx)
        {&tl_arch_arm64, {0x40, 0x00, 0x00, 0x1c}, 4, true},    // ldr s0, .+8
        {&tl_arch_arm64, {0x40, 0x00, 0x00, 0x18}, 4, false},   // ldr w0, .+8
        {&tl_arch_arm64, {0x50, 0x00, 0x00, 0x54}, 4, true},    // bc.eq .+8
        {&tl_arch_arm64, {0x40, 0x00, 0x00, 0x54}, 4, false},   // b.eq .+8
        {&tl_arch_riscv64, {0x02, 0x85}, 2, true},              // c.jr a0
        {&tl_arch_riscv64, {0x02, 0x95}, 2, true},              // c.jalr a0
        {&tl_arch_riscv64, {0x82, 0x80}, 2, false},             // c.jr ra
        {&tl_arch_riscv64, {0x0a, 0x85}, 2, false},             // c.mv a0, sp
        {&tl_arch_riscv64, {0x67, 0x00, 0x05, 0x00}, 4, false}, // jr a0
        {&tl_arch_riscv64, {0x63, 0x20, 0x05, 0x00}, 4, true},  // a branch with a reserved code
        {&tl_arch_riscv64, {0x63, 0x30, 0x05, 0x00}, 4, true},
        {&tl_arch_riscv64, {0x63, 0x10, 0x05, 0x00}, 4, false}, // bne a0, zero
        {&tl_arch_riscv64, {0x17, 0x10, 0x00, 0x00}, 4, true},  // lpad 1
        {&tl_arch_riscv64, {0x17, 0x15, 0x00, 0x00}, 4, false}, // auipc a0, 1
        {&tl_arch_riscv64, {0x2f, 0x25, 0x05, 0x10}, 4, true},  // lr.w a0, (a0)
        {&tl_arch_riscv64, {0x2f, 0x25, 0xb5, 0x18}, 4, true},  // sc.w a0, a1, (a0)
        {&tl_arch_riscv64, {0x2f, 0x25, 0xb5, 0x00}, 4, false}, // amoadd.w a0, a1, (a0)
        {&tl_arch_riscv64, {0x1f, 0x00}, 2, true},              // of 48 bits: its first 16
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        const struct tl_arch *arch = table[i].arch;
        struct tl_insn insn;
        assert_int_equal(arch->decode(table[i].bytes, table[i].size, AT, &insn), 0);
        assert_int_equal(insn.size, table[i].size);
        if (arch->uprobe_breaks(&insn) != table[i].breaks)
            fail_msg("entry %zu", i);
    }
}

static void what_a_mask_leaves_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const struct tl_arch *arch;
        size_t size;
        uint8_t bytes[7];
        unsigned reg;
        uint64_t count; // 0: nothing is known
    } table[] = {
        {&tl_arch_x86_64, 3, {0x83, 0xe0, 0x07}, 0, 8},        // and $7, %eax
        {&tl_arch_x86_64, 4, {0x66, 0x83, 0xe0, 0x07}, 0, 0},  // and $7, %ax: the rest stays
        {&tl_arch_x86_64, 4, {0x48, 0x83, 0xe1, 0x0f}, 1, 16}, // and $15, %rcx
        {&tl_arch_x86_64, 7, {0x41, 0x81, 0xe1, 0xff, 0xff, 0xff, 0x7f}, 9, 0x80000000},
        {&tl_arch_x86_64, 4, {0x48, 0x83, 0xe2, 0xff}, 2, 0},   // and $-1, %rdx
        {&tl_arch_x86_64, 3, {0x83, 0xc8, 0x07}, 0, 0},         // or $7, %eax
        {&tl_arch_arm64, 4, {0x00, 0x04, 0x00, 0x12}, 0, 4},    // and w0, w0, #3
        {&tl_arch_arm64, 4, {0xe5, 0x1c, 0x40, 0x92}, 5, 256},  // and x5, x7, #255
        {&tl_arch_arm64, 4, {0xe5, 0x1c, 0x78, 0x92}, 5, 0},    // and x5, x7, #0xff00
        {&tl_arch_arm64, 4, {0xe5, 0x04, 0x00, 0x92}, 5, 0},    // and x5, x7, #0x300000003
        {&tl_arch_arm64, 4, {0x63, 0x08, 0x00, 0x72}, 3, 8},    // ands w3, w3, #7
        {&tl_arch_arm64, 4, {0x63, 0x08, 0x00, 0x32}, 3, 0},    // orr w3, w3, #7
        {&tl_arch_arm64, 4, {0x63, 0x08, 0x00, 0x52}, 3, 0},    // eor w3, w3, #7
        {&tl_arch_arm64, 4, {0x29, 0x10, 0x03, 0x53}, 9, 4},    // ubfx w9, w1, #3, #2
        {&tl_arch_arm64, 4, {0x29, 0x7c, 0x1d, 0x53}, 9, 8},    // lsr w9, w1, #29
        {&tl_arch_arm64, 4, {0x29, 0x70, 0x1d, 0x53}, 9, 0},    // lsl w9, w1, #3
        {&tl_arch_arm64, 4, {0x29, 0xfc, 0x7c, 0xd3}, 9, 16},   // lsr x9, x1, #60
        {&tl_arch_riscv64, 4, {0x13, 0xf5, 0x75, 0x00}, 10, 8}, // andi a0, a1, 7
        {&tl_arch_riscv64, 2, {0x3d, 0x8a}, 12, 16},            // c.andi a2, 15
        {&tl_arch_riscv64, 2, {0x41, 0x9a}, 12, 0},             // c.andi a2, -16
        {&tl_arch_riscv64, 4, {0x13, 0xf5, 0xf5, 0xff}, 10, 0}, // andi a0, a1, -1
        {&tl_arch_riscv64, 4, {0x13, 0xf5, 0xf5, 0x7f}, 10, 2048},
        {&tl_arch_riscv64, 4, {0x13, 0xe5, 0x75, 0x00}, 10, 0}, // ori a0, a1, 7
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_insn insn;
        unsigned reg = 99;
        uint64_t count = 0;
        assert_int_equal(table[i].arch->decode(table[i].bytes, table[i].size, AT, &insn), 0);
        bool found = table[i].arch->below(&insn, &reg, &count);
        if (found != (table[i].count != 0) ||
            (found && (reg != table[i].reg || count != table[i].count)))
            fail_msg("entry %zu: %u below %llu", i, reg, (unsigned long long)count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_mask_leaves_is_bounded),
        cmocka_unit_test(examples_decode_to_their_rows),
        cmocka_unit_test(facts_are_exact),
        cmocka_unit_test(odd_bytes),
        cmocka_unit_test(displacements_before_immediates),
        cmocka_unit_test(faults_of_the_unnamed_stack),
        cmocka_unit_test(steps_of_the_stack),
        cmocka_unit_test(what_a_kernel_probe_breaks),
        cmocka_unit_test(text_is_cut_and_terminated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

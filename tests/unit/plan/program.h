// Small random programs, and facts about them as the analysis would give them.
#ifndef TESTS_UNIT_PLAN_PROGRAM_H
#define TESTS_UNIT_PLAN_PROGRAM_H

#include "machine.h"
#include "plan/plan.h"

#define PROGRAM_SIZE 0x3000u // text, then data from PROGRAM_DATA on
#define PROGRAM_DATA 0x2000u
#define PROGRAM_VADDR 0x1000u
#define PROGRAM_INSNS_MAX 2048u
#define PROGRAM_FUNCTIONS_MAX 16u

struct program {
    uint8_t bytes[PROGRAM_SIZE];            // as at vaddr PROGRAM_VADDR
    unsigned size;                          // of the text
    struct tl_insn insn[PROGRAM_INSNS_MAX]; // vaddrs, in order
    bool target[PROGRAM_INSNS_MAX];         // a branch leads here
    unsigned function_of[PROGRAM_INSNS_MAX];
    unsigned insn_count;
    struct tl_range function[PROGRAM_FUNCTIONS_MAX]; // without padding
    unsigned function_count;
    struct tl_range padding[PROGRAM_FUNCTIONS_MAX + 1];
    unsigned padding_count;
    struct tl_text text;
};

// By hand: begin, functions in order of their addresses, each with padding behind it, then end.
void program_begin(struct program *program);
void program_function(struct program *program, const void *bytes, unsigned size, unsigned padding);
void program_end(struct program *program);
void program_random(struct program *program, struct machine *m);
// The facts of instruction `index`.
void program_facts(const struct program *program, unsigned index, struct tl_site_facts *out);
// tl_plan_module.site: analysis is a struct program.
int program_site(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                 struct tl_diag *diag);
// Index of the instruction at vaddr, or insn_count.
unsigned program_at(const struct program *program, tl_addr vaddr);

#endif

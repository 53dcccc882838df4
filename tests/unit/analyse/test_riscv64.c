// What lies between lr and sc in a riscv64 victim that leaves by branches of several instructions. The victim is
// assembled when the test runs, and read the whole way, from its ELF file on.
#include "bare_victim.h"

#include "arch/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FUNCTION(name, body)                                                                       \
    ".globl " name "\n.type " name ",%function\n.p2align 2\n" name ":\n" body "\n.size " name      \
    ",.-" name "\n"
// What compilers write for an exchange that may fail, and then the function's end.
#define LOOP(name) "1: lr.d a5, (a0)\nbnez a5, 2f\nat_" name "_in: sc.d a4, a1, (a0)\nbnez a4, 1b\n2:\n"
#define FAR(rest) "auipc t1, %pcrel_hi(" rest ")\njalr zero, %pcrel_lo(9b)(t1)\n"

// clang-format off
static const char victim_text[] =
    ".option norelax\n.text\n"
    FUNCTION("callee", "mv a0, a1\nret")
    FUNCTION("closes", "at_closes0: nop\nnop\nat_closes: nop\nsc.d a4, a1, (a0)\nat_closes9: nop\nret")
    FUNCTION("plain", LOOP("plain") "at_plain: nop\nret")
    // To a function's start: a call. The exit and what follows it are free.
    FUNCTION("tail", LOOP("tail") "at_tail: nop\n9: " FAR("callee"))
    // Into another function, where a store is.
    FUNCTION("middle", LOOP("middle") "at_middle: nop\n9: " FAR("at_closes"))
    // Into another function, where none is.
    FUNCTION("elsewhere", LOOP("elsewhere") "at_elsewhere: nop\n9: " FAR("at_rest"))
    FUNCTION("rest", "nop\nat_rest: nop\nret")
    // To the store of its own.
    FUNCTION("own", LOOP("own") "at_own: nop\n9: " FAR("at_own_in"))
    // Where the register comes from two sides the address is not known.
    FUNCTION("joined", LOOP("joined") "at_joined: nop\nbnez a2, 3f\n9: auipc t1, %pcrel_hi(callee)\n"
                       "3: jalr zero, %pcrel_lo(9b)(t1)\n")
    FUNCTION("unknown", LOOP("unknown") "at_unknown: nop\njr t1\n");
// clang-format on

static struct bare_victim shared;

static int victim_setup(void **state)
{
    (void)state;
    return bare_victim_open(&shared, "riscv64-linux-gnu", victim_text, "rv64gc");
}

static int victim_teardown(void **state)
{
    (void)state;
    bare_victim_close(&shared);
    return 0;
}

static void an_exclusive_is_open_where_a_store_may_follow(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tl_refusal refusal;
    } table[] = {
        {"at_plain_in", TL_REFUSE_EXCLUSIVE}, {"at_plain", TL_REFUSE_NONE},
        {"at_tail_in", TL_REFUSE_EXCLUSIVE},  {"at_tail", TL_REFUSE_NONE},
        {"at_middle", TL_REFUSE_EXCLUSIVE},   {"at_elsewhere", TL_REFUSE_NONE},
        {"at_own", TL_REFUSE_EXCLUSIVE},      {"at_joined", TL_REFUSE_EXCLUSIVE},
        {"at_unknown", TL_REFUSE_EXCLUSIVE},
    };
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_site_facts site;
        tl_addr addr = elf_facts_find(&shared.elf, table[i].name, NULL);
        if (addr == 0)
            fail_msg("no %s in the victim", table[i].name);
        assert_int_equal(tl_analysis_site(shared.analysis, addr, &site, NULL), 0);
        if (site.refusal == table[i].refusal)
            continue;
        wrong++;
        print_error("%s: '%s', not '%s'\n", table[i].name,
                    tl_refusal_text((enum tl_refusal)site.refusal),
                    tl_refusal_text(table[i].refusal));
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exclusive_is_open_where_a_store_may_follow),
    };
    return cmocka_run_group_tests(tests, victim_setup, victim_teardown);
}

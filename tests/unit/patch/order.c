// Where regions go, and in which order patches are written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "attach/isa.h"
#include "patch/install.h"

static struct tl_write patch_at(tl_addr addr, uint8_t size, uint8_t relied, size_t plan,
                                uint8_t order)
{
    return (struct tl_write){
        .patch = {.addr = addr, .size = size, .relied = relied}, .plan = plan, .order = order};
}

static void patches_are_found_by_address(void **state)
{
    (void)state;
    struct tl_write list[] = {patch_at(0x100, 5, 0, 0, 0), patch_at(0x105, 2, 3, 1, 0),
                              patch_at(0x110, 5, 0, 2, 0)};
    const struct tl_writes writes = {list, 3};
    assert_ptr_equal(tl_writes_at(&writes, 0x100), &list[0]);
    assert_ptr_equal(tl_writes_at(&writes, 0x104), &list[0]);
    assert_ptr_equal(tl_writes_at(&writes, 0x106), &list[1]);
    assert_null(tl_writes_at(&writes, 0x107)); // relied on, not written
    assert_null(tl_writes_at(&writes, 0xff));
    assert_null(tl_writes_at(&writes, 0x115));
    assert_null(tl_writes_at(&(struct tl_writes){NULL, 0}, 0x100));
}

static void islands_come_before_what_leads_there(void **state)
{
    (void)state;
    // A site at the low address, its island above; the island is the plan's first patch.
    struct tl_write list[] = {patch_at(0x100, 2, 0, 0, 1), patch_at(0x170, 5, 0, 0, 0)};
    struct tl_writes writes = {list, 2};
    tl_writes_rank(&writes);
    assert_int_equal(list[1].rank, 0);
    assert_int_equal(list[0].rank, 1);
}

static void a_pun_comes_after_the_bytes_it_relies_on(void **state)
{
    (void)state;
    // Plan 0 puns over plan 1's first byte, which is the second patch of its site; plan 2 puns over
    // plan 0. Each must come after what it relies on.
    struct tl_write list[] = {patch_at(0x0fe, 2, 3, 2, 0), patch_at(0x100, 3, 2, 0, 0),
                              patch_at(0x103, 2, 0, 1, 1), patch_at(0x150, 5, 0, 1, 0)};
    struct tl_writes writes = {list, 4};
    tl_writes_rank(&writes);
    assert_int_equal(list[3].rank, 0);
    assert_int_equal(list[2].rank, 1);
    assert_int_equal(list[1].rank, 2);
    assert_int_equal(list[0].rank, 3);
}

static void lone_patches_need_no_order(void **state)
{
    (void)state;
    struct tl_write list[] = {patch_at(0x100, 5, 0, 0, 0), patch_at(0x110, 5, 0, 1, 0)};
    struct tl_writes writes = {list, 2};
    tl_writes_rank(&writes);
    assert_int_equal(list[0].rank, 0);
    assert_int_equal(list[1].rank, 0);
}

#define GIB (UINT64_C(1) << 30)

static void regions_go_into_the_widest_gap_below_its_end(void **state)
{
    (void)state;
    const struct tl_range used[] = {{0x400000, 0x500000},
                                    {0x555555554000, 0x5555c0000000},
                                    {0x7ffff0000000, 0x7ffff7fff000},
                                    {0x7fffff000000, 0x7ffffffff000}};
    tl_addr addr = tl_region_place(used, TL_ARRAY_COUNT(used), 64 << 10);
    assert_true(addr > 0x500000 && addr + (64 << 10) <= 0x555555554000);
    assert_int_equal(addr % TL_PAGE_SIZE, 0);
    assert_true(0x555555554000 - addr >= 4 * GIB); // what grows down has room
    const struct tl_range full[] = {{0, 0x7ffffffff000}};
    assert_int_equal(tl_region_place(full, 1, 4096), 0);
    const struct tl_range tight[] = {{0, 0x10000}, {0x12000, 0x7ffffffff000}};
    assert_int_equal(tl_region_place(tight, 2, 0x2000), 0x10000);
    assert_int_equal(tl_region_place(tight, 2, 0x3000), 0);
}

static int start_compare(const void *a, const void *b)
{
    const struct tl_range *left = a, *right = b;
    return (left->start > right->start) - (left->start < right->start);
}

// What earlier attaches left must not drive the next farther and farther away.
static void regions_go_beside_what_was_put_there_before(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, TIMES = 40 };
    const tl_addr program = 0x555555554000;
    struct tl_range used[TIMES + 2] = {{program, 0x5555c0000000}, {0x7ffff0000000, 0x7ffff7fff000}};
    size_t count = 2;
    for (unsigned i = 0; i < TIMES; i++) {
        tl_addr addr = tl_region_place(used, count, SIZE);
        assert_true(addr != 0 && addr + SIZE <= program);
        assert_true(program - (addr + SIZE) >= tl_place_distance / 2);
        assert_true(program - addr <= tl_place_distance + SIZE + TL_PAGE_SIZE);
        for (size_t k = 0; k < count; k++)
            assert_true(addr >= used[k].end || addr + SIZE <= used[k].start);
        used[count++] = (struct tl_range){addr, addr + SIZE};
        qsort(used, count, sizeof *used, start_compare);
    }
    // No room there: below what is there, as far as from anything.
    struct tl_range full[] = {{program - tl_place_distance, program - TL_PAGE_SIZE}, used[count - 2], used[count - 1]};
    tl_addr addr = tl_region_place(full, TL_ARRAY_COUNT(full), SIZE);
    assert_true(addr + SIZE + tl_place_distance <= full[0].start);
}

// A branch that puts a register on the stack may fault there, half done: at its site, or in the island that the site leads to.
static void branches_that_store_have_fault_rows(void **state)
{
    (void)state;
    // addi sp, sp, -16; sd t2, 0(sp); auipc t2, 0; jr t2
    static const uint8_t spill[] = {0x41, 0x11, 0x1e, 0xe0, 0x97, 0x03, 0, 0, 0x67, 0x80, 0x03, 0};
    // auipc t2, 0; jr t2
    static const uint8_t far[] = {0x97, 0x03, 0, 0, 0x67, 0x80, 0x03, 0};
    static const uint8_t leads[] = {0x6f, 0x00, 0x00, 0x10}; // j +0x100
    struct tl_patch patch[] = {{.addr = 0x2100, .size = sizeof spill},
                               {.addr = 0x2000, .size = sizeof leads},
                               {.addr = 0x3000, .size = sizeof spill},
                               {.addr = 0x4000, .size = sizeof far},
                               {.addr = 0x5000, .size = 8}}; // takes a register back
    memcpy(patch[0].after, spill, sizeof spill);
    memcpy(patch[1].after, leads, sizeof leads);
    memcpy(patch[2].after, spill, sizeof spill);
    memcpy(patch[3].after, far, sizeof far);
    assert_true(tl_arch_riscv64.emit_reload(0x5000, 0x5100, 7, false, patch[4].after));
    const struct tl_plan plan = {.patch = patch, .patch_count = TL_ARRAY_COUNT(patch)};
    static const struct {
        size_t count;
        tl_addr pc, site;
    } rows[] = {{1, 0x2102, 0x2000}, {0, 0, 0}, {1, 0x3002, 0x3000}, {0, 0, 0}, {0, 0, 0}};
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        struct tl_fault_row row = {.pc = 0};
        assert_int_equal(tl_faults_branch_rows(&tl_arch_riscv64, &plan, &patch[i], NULL), rows[i].count);
        assert_int_equal(tl_faults_branch_rows(&tl_arch_riscv64, &plan, &patch[i], &row), rows[i].count);
        assert_int_equal(row.pc, rows[i].pc);
        assert_int_equal(row.site, rows[i].site);
        assert_int_equal(row.sp_bytes, 16 * rows[i].count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_go_beside_what_was_put_there_before),
        cmocka_unit_test(patches_are_found_by_address),
        cmocka_unit_test(islands_come_before_what_leads_there),
        cmocka_unit_test(a_pun_comes_after_the_bytes_it_relies_on),
        cmocka_unit_test(lone_patches_need_no_order),
        cmocka_unit_test(branches_that_store_have_fault_rows),
        cmocka_unit_test(regions_go_into_the_widest_gap_below_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

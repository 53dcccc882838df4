// What stage analyse is told: functions, data, pointers, landing pads, restartable sequences.
#include <string.h>

#include "victims.h"

static const struct tl_module_facts *facts_of(struct tl_image *image)
{
    const struct tl_module_facts *facts = NULL;
    struct tl_diag diag = {""};
    int error = tl_image_facts(image, &facts, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(error, 0);
    return facts;
}

static const struct tl_extent *extent_at(const struct tl_module_facts *facts, tl_addr vaddr)
{
    for (size_t i = 0; i < facts->function_count; i++) {
        if (facts->functions[i].vaddr == vaddr)
            return &facts->functions[i];
    }
    return NULL;
}

static const char *const files[] = {
    "basic",     "basic-nopie",    "basic-static", "basic-one-segment", "basic-static-pie",
    "basic-lld", "basic-lld-relr", "basic-mold",   "basic-gold",        "basic-musl",
    "overload",  "libversions.so", "rseq",         "segments",          "basic-sectionless",
};

// The promises of analyse.h about the order and contents of the lists.
static void lists_keep_their_promises(void **state)
{
    (void)state;
    for (size_t f = 0; f < TL_ARRAY_COUNT(files); f++) {
        if (!victim_path(files[f]))
            continue;
        struct tl_image *image = victim_open(files[f], NULL, NULL);
        const struct tl_module_facts *facts = facts_of(image);
        for (size_t i = 0; i < facts->function_count; i++) {
            assert_true(i == 0 || facts->functions[i - 1].vaddr < facts->functions[i].vaddr);
            assert_true(facts->functions[i].size > 0);
            const char *section = tl_image_section_at(image, facts->functions[i].vaddr);
            if (!facts_text(facts, facts->functions[i].vaddr, facts->functions[i].size))
                fail_msg("%s: function 0x%llx is not in text (%s)", files[f],
                         (unsigned long long)facts->functions[i].vaddr, section ? section : "?");
        }
        for (size_t i = 0; i < facts->pointer_count; i++) {
            assert_true(i == 0 || facts->pointers[i - 1] < facts->pointers[i]);
            const struct tl_segment *segment;
            size_t count = tl_image_segments(image, &segment);
            bool text = false;
            for (size_t j = 0; j < count; j++)
                text |= segment[j].prot & TL_PROT_EXEC &&
                        facts->pointers[i] - segment[j].vaddr < segment[j].file_size;
            assert_true(text);
        }
        // Code and data never share a byte.
        for (size_t i = 0; i < facts->text_count; i++) {
            for (size_t j = 0; j < facts->data_count; j++)
                assert_true(facts->text[i].vaddr + facts->text[i].size <= facts->data[j].vaddr ||
                            facts->data[j].vaddr + facts->data[j].size <= facts->text[i].vaddr);
        }
        tl_image_close(image);
    }
}

static void fixed_programs_are_told(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("basic-nopie", NULL, NULL);
    assert_true(facts_of(image)->position_fixed);
    tl_image_close(image);
    image = victim_open("basic", NULL, NULL);
    assert_false(facts_of(image)->position_fixed);
    tl_image_close(image);
}

// Symbols and unwind entries become one list; a stripped file keeps the extents.
static void extents_join_symbols_and_unwind(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("basic", NULL, NULL);
    struct tl_image *bare = victim_open("basic-stripped", NULL, NULL);
    const struct tl_module_facts *facts = facts_of(image), *left = facts_of(bare);
    static const char *const names[] = {"main", "split", "alias_one", "dispatch", "other_worker"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(names); i++) {
        const struct tl_symbol *symbol = symbol_named(image, names[i]);
        assert_non_null(symbol);
        const struct tl_extent *one = extent_at(facts, symbol->vaddr);
        const struct tl_extent *other = extent_at(left, symbol->vaddr);
        assert_non_null(one);
        assert_non_null(other);
        assert_true(one->symbol && !one->guessed && one->size == symbol->size);
        assert_true(!other->symbol && other->size == symbol->size);
    }
    const struct tl_symbol *marker = symbol_named(image, "marker"); // hand-written: no unwind entry
    assert_non_null(extent_at(facts, marker->vaddr));
    assert_null(extent_at(left, marker->vaddr));
    tl_image_close(image);
    tl_image_close(bare);
}

static size_t pointers_inside(const char *name, const char *function)
{
    struct tl_image *image = victim_open(name, NULL, NULL);
    const struct tl_module_facts *facts = facts_of(image);
    const struct tl_symbol *symbol = symbol_named(image, function);
    size_t count = 0;
    assert_non_null(symbol);
    for (size_t i = 0; i < facts->pointer_count; i++) {
        tl_addr into = facts->pointers[i] - symbol->vaddr;
        count += into > 0 && into < symbol->size;
    }
    tl_image_close(image);
    return count;
}

// The table of label addresses in dispatch() is relocated data: three pointers into the function.
static void relocated_label_tables_are_pointers(void **state)
{
    static const char *const pies[] = {
        "basic",      "basic-lld",        "basic-lld-relr",   "basic-mold",
        "basic-gold", "basic-static-pie", "basic-one-segment"};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(pies); i++) {
        if (victim_path(pies[i]) && pointers_inside(pies[i], "dispatch") != 3)
            fail_msg("%s: %zu pointers", pies[i], pointers_inside(pies[i], "dispatch"));
    }
    assert_int_equal(pointers_inside("basic-nopie", "dispatch"), 0); // not relocated: found as data
}

// The same table, read as data, holds the addresses that the program will see (without its bias).
static void relocated_data_is_relocated(void **state)
{
    static const char *const pies[] = {"basic", "basic-nopie", "basic-lld", "basic-lld-relr",
                                       "basic-mold"};
    (void)state;
    for (size_t f = 0; f < TL_ARRAY_COUNT(pies); f++) {
        if (!victim_path(pies[f]))
            continue;
        struct tl_image *image = victim_open(pies[f], NULL, NULL);
        const struct tl_module_facts *facts = facts_of(image);
        const struct tl_symbol *symbol = symbol_named(image, "dispatch");
        size_t words = 0;
        for (size_t i = 0; i < facts->data_count; i++) {
            for (size_t at = 0; at + 8 <= facts->data[i].size; at += 8) {
                uint64_t value;
                memcpy(&value, facts->data[i].bytes + at, 8);
                const char *section = tl_image_section_at(image, facts->data[i].vaddr + at);
                if (!section || strncmp(section, ".rel", 4) == 0)
                    continue; // the relocations name them too
                if (value - symbol->vaddr < symbol->size && value != symbol->vaddr) {
                    words++;
                    assert_false(facts->data[i].writable); // .data.rel.ro or .rodata
                }
            }
        }
        if (words != 3)
            fail_msg("%s: %zu words", pies[f], words);
        tl_image_close(image);
    }
}

// A table of 200 functions with gaps: several bit maps of DT_RELR, or as many plain relocations.
static void long_tables_are_whole(void **state)
{
    static const char *const tables[] = {"table", "table-relr"};
    (void)state;
    for (size_t f = 0; f < TL_ARRAY_COUNT(tables); f++) {
        const struct tl_symbol *symbol;
        size_t found = 0;
        if (!victim_path(tables[f]))
            continue;
        struct tl_image *image = victim_open(tables[f], NULL, NULL);
        const struct tl_module_facts *facts = facts_of(image);
        size_t count = tl_image_symbols(image, &symbol);
        for (size_t i = 0; i < count; i++)
            found += strncmp(symbol[i].name, "entry", 5) == 0 &&
                     facts_point_to(facts->pointers, facts->pointer_count, symbol[i].vaddr);
        assert_int_equal(found, 200);
        tl_image_close(image);
    }
}

static void entry_and_init_are_pointers(void **state)
{
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        struct tl_image *image = victim_open(files[f], NULL, NULL);
        const struct tl_module_facts *facts = facts_of(image);
        static const char *const names[] = {"_start", "frame_dummy", "__do_global_dtors_aux"};
        for (size_t i = 0; i < TL_ARRAY_COUNT(names); i++) {
            const struct tl_symbol *symbol = symbol_named(image, names[i]);
            assert_non_null(symbol);
            if (!facts_point_to(facts->pointers, facts->pointer_count, symbol->vaddr))
                fail_msg("%s: %s", files[f], names[i]);
        }
        tl_image_close(image);
    }
}

// gcc marks landing pads with endbr64 under -fcf-protection: the list must hold exactly those
// inside functions that are reached by no call and no table.
static void landing_pads_are_found(void **state)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    (void)state;
    struct tl_image *image = victim_open("overload", NULL, NULL);
    const struct tl_module_facts *facts = facts_of(image);
    assert_true(facts->landing_pad_count >= 3);
    for (size_t i = 0; i < facts->landing_pad_count; i++) {
        const uint8_t *text = facts_text(facts, facts->landing_pads[i], sizeof endbr64);
        assert_non_null(text);
        assert_memory_equal(text, endbr64, sizeof endbr64);
        assert_null(extent_at(facts, facts->landing_pads[i]));
    }
    size_t inside = 0;
    for (size_t i = 0; i < facts->function_count; i++) {
        const struct tl_extent *extent = &facts->functions[i];
        for (uint64_t at = 1; at + sizeof endbr64 <= extent->size; at++) {
            const uint8_t *text = facts_text(facts, extent->vaddr + at, sizeof endbr64);
            inside += memcmp(text, endbr64, sizeof endbr64) == 0;
        }
    }
    assert_int_equal(facts->landing_pad_count, inside);
    tl_image_close(image);
}

static bool rseq_covers(const struct tl_module_facts *facts, tl_addr start, tl_addr end)
{
    for (size_t i = 0; i < facts->rseq_count; i++) {
        if (facts->rseq[i].start <= start && facts->rseq[i].end >= end)
            return true;
    }
    return false;
}

static void restartable_sequences_are_found(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("rseq", NULL, NULL);
    const struct tl_module_facts *facts = facts_of(image);
    const struct tl_symbol *named = symbol_named(image, "main"),
                           *second = symbol_named(image, "second");
    assert_int_equal(facts->rseq_count, 4);
    // main: nop, 10 bytes of sequence, nop, ret, signature, abort handler.
    assert_true(rseq_covers(facts, named->vaddr + 1, named->vaddr + 11));
    assert_false(rseq_covers(facts, named->vaddr, named->vaddr + 1));
    assert_false(rseq_covers(facts, named->vaddr + 11, named->vaddr + 12));
    assert_true(rseq_covers(facts, named->vaddr + 13, named->vaddr + 18));
    // second: 6 bytes, ret, signature, abort handler; only the pointer array leads there.
    assert_true(rseq_covers(facts, second->vaddr, second->vaddr + 6));
    assert_true(rseq_covers(facts, second->vaddr + 7, second->vaddr + 12));
    tl_image_close(image);
}

static void functions_with_their_own_convention_are_avoided(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("rseq", NULL, NULL);
    const struct tl_module_facts *facts = facts_of(image);
    const struct tl_symbol *named = symbol_named(image, "__morestack_probe");
    assert_int_equal(facts->avoid_count, 1);
    assert_int_equal(facts->avoid[0].start, named->vaddr);
    assert_int_equal(facts->avoid[0].end, named->vaddr + named->size);
    tl_image_close(image);
}

// Asking twice gives the same answer, not a second one.
static void data_in_text_ends_at_any_mark_of_code(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("marks-riscv64", NULL, NULL);
    const struct tl_module_facts *facts = facts_of(image);
    static const char *const names[] = {"_start", "compressed", "as_before"};
    assert_int_equal(facts->literal_count, TL_ARRAY_COUNT(names));
    for (size_t i = 0; i < TL_ARRAY_COUNT(names); i++) {
        const struct tl_symbol *symbol = symbol_named(image, names[i]);
        assert_int_equal(facts->literals[i].start, symbol->vaddr + symbol->size);
        assert_int_equal(facts->literals[i].end, symbol->vaddr + symbol->size + 8);
    }
    tl_image_close(image);
}

static void facts_are_made_once(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("basic", NULL, NULL);
    assert_ptr_equal(facts_of(image), facts_of(image));
    tl_image_close(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_keep_their_promises),
        cmocka_unit_test(fixed_programs_are_told),
        cmocka_unit_test(extents_join_symbols_and_unwind),
        cmocka_unit_test(relocated_label_tables_are_pointers),
        cmocka_unit_test(relocated_data_is_relocated),
        cmocka_unit_test(long_tables_are_whole),
        cmocka_unit_test(entry_and_init_are_pointers),
        cmocka_unit_test(landing_pads_are_found),
        cmocka_unit_test(restartable_sequences_are_found),
        cmocka_unit_test(functions_with_their_own_convention_are_avoided),
        cmocka_unit_test(data_in_text_ends_at_any_mark_of_code),
        cmocka_unit_test(facts_are_made_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

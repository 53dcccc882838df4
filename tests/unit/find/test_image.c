// Symbols and layouts of files from several linkers, what strip leaves, and separate debug files.
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "victims.h"

static const uint8_t marker_bytes[] = {0xb8, 0x0d, 0xf0, 0x0d, 0x60, 0xc3};

static const char *const layouts[] = {
    "basic",           "basic-nopie",       "basic-static", "basic-one-segment",
    "basic-prelinked", "basic-static-pie",  "basic-lld",    "basic-lld-relr",
    "basic-mold",      "basic-gold",        "basic-musl",   "basic-musl-static",
    "basic-dynamic",   "basic-sectionless", "segments",
};

// C122: the address of a name leads to its bytes in the file, whatever the linker made of addresses
// and offsets.
static void marker_is_where_the_name_says(void **state)
{
    size_t seen = 0;
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(layouts); i++) {
        const char *path = victim_path(layouts[i]);
        if (!path) {
            print_message("%s was not built here\n", layouts[i]);
            continue;
        }
        struct tl_image *image = victim_open(layouts[i], NULL, NULL);
        const struct tl_symbol *marker = symbol_named(image, "marker");
        const struct tl_segment *segment;
        bool found = false;
        if (!marker)
            fail_msg("%s: no marker", layouts[i]);
        size_t count = tl_image_segments(image, &segment);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        for (size_t j = 0; j < count; j++) {
            uint8_t bytes[sizeof marker_bytes];
            if (!(segment[j].prot & TL_PROT_EXEC) ||
                marker->vaddr - segment[j].vaddr >= segment[j].file_size)
                continue;
            off_t off = (off_t)(segment[j].file_off + (marker->vaddr - segment[j].vaddr));
            assert_int_equal(pread(fd, bytes, sizeof bytes, off), sizeof bytes);
            assert_memory_equal(bytes, marker_bytes, sizeof bytes);
            found = true;
        }
        close(fd);
        if (!found || marker->size != sizeof marker_bytes || marker->size_guessed)
            fail_msg("%s: marker in no segment, or of another size", layouts[i]);
        const struct tl_module_facts *facts;
        struct tl_diag diag = {""};
        assert_int_equal(tl_image_facts(image, &facts, &diag), 0);
        const uint8_t *text = facts_text(facts, marker->vaddr, sizeof marker_bytes);
        assert_non_null(text);
        assert_memory_equal(text, marker_bytes, sizeof marker_bytes);
        tl_image_close(image);
        seen++;
    }
    assert_true(seen >= 8); // those that gcc and binutils alone can make
}

// The layouts above are different ones, not the same file under many names.
static void layouts_differ(void **state)
{
    const struct tl_segment *segment;
    (void)state;
    struct tl_image *image = victim_open("basic-prelinked", NULL, NULL);
    tl_image_segments(image, &segment);
    assert_int_equal(segment[0].vaddr, 0x34fd200000u);
    tl_image_close(image);
    image = victim_open("segments", NULL, NULL);
    size_t count = tl_image_segments(image, &segment), executable = 0;
    for (size_t i = 0; i < count; i++)
        executable += (segment[i].prot & TL_PROT_EXEC) != 0;
    assert_int_equal(executable, 2);
    assert_true(segment[0].vaddr != segment[0].file_off);
    const struct tl_module_facts *facts;
    assert_int_equal(tl_image_facts(image, &facts, NULL), 0);
    const struct tl_symbol *low = symbol_named(image, "low_function");
    assert_non_null(low);
    assert_non_null(facts_text(facts, low->vaddr, low->size));
    tl_image_close(image);
    if (victim_path("basic-lld")) {
        image = victim_open("basic-lld", NULL, NULL);
        count = tl_image_segments(image, &segment);
        bool shifted = false;
        for (size_t i = 0; i < count; i++)
            shifted |= segment[i].prot & TL_PROT_EXEC && segment[i].vaddr != segment[i].file_off;
        assert_true(shifted);
        tl_image_close(image);
    }
}

// C121: a size where the table has none, from the next name or the section's end.
static void sizes_are_guessed(void **state)
{
    (void)state;
    struct tl_image *image = victim_open("basic", NULL, NULL);
    const struct tl_symbol *no_size = symbol_named(image, "no_size");
    const struct tl_symbol *no_type = symbol_named(image, "no_type");
    assert_non_null(no_size);
    assert_non_null(no_type);
    assert_true(no_size->size_guessed);
    // xor, then the label (a name without a type inside no sized function), then ret.
    assert_true(no_size->size >= 2 && no_size->size <= 3);
    assert_true(no_type->size_guessed);
    assert_int_equal(no_type->size, 6);
    assert_true(no_type->untyped && !no_size->untyped);
    const struct tl_symbol *symbol;
    size_t count = tl_image_symbols(image, &symbol);
    for (size_t i = 0; i < count; i++) {
        assert_true(symbol[i].size > 0);
        assert_true(i == 0 || symbol[i - 1].vaddr <= symbol[i].vaddr);
    }
    // Linker-made names without sizes are functions all the same.
    assert_non_null(symbol_named(image, "_init"));
    assert_non_null(symbol_named(image, "register_tm_clones"));
    tl_image_close(image);
}

// A name without a type inside a sized function is no function, but something may jump to it.
static void labels_are_no_functions(void **state)
{
    const struct tl_module_facts *facts;
    (void)state;
    struct tl_image *image = victim_open("basic", NULL, NULL);
    assert_null(symbol_named(image, "global_label"));
    const struct tl_symbol *owner = symbol_named(image, "with_label");
    assert_non_null(owner);
    assert_int_equal(tl_image_facts(image, &facts, NULL), 0);
    assert_true(facts_point_to(facts->pointers, facts->pointer_count, owner->vaddr + 5));
    tl_image_close(image);
}

static void stubs_are_no_functions(void **state)
{
    static const char *const files[] = {"basic", "basic-nopie", "basic-lld", "basic-mold",
                                        "basic-gold"};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(files); i++) {
        const struct tl_symbol *symbol;
        if (!victim_path(files[i]))
            continue;
        struct tl_image *image = victim_open(files[i], NULL, NULL);
        size_t count = tl_image_symbols(image, &symbol);
        assert_true(count > 10);
        for (size_t j = 0; j < count; j++) {
            const char *section = tl_image_section_at(image, symbol[j].vaddr);
            assert_non_null(section);
            if (strncmp(section, ".plt", 4) == 0)
                fail_msg("%s: %s is in %s", files[i], symbol[j].name, section);
        }
        tl_image_close(image);
    }
}

// C225: exported names are left when everything else is stripped, with section headers or without.
static void dynamic_names_remain(void **state)
{
    static const char *const files[] = {"basic-dynamic", "basic-sectionless"};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(files); i++) {
        struct tl_image *image = victim_open(files[i], NULL, NULL);
        assert_non_null(symbol_named(image, "alias_one"));
        assert_non_null(symbol_named(image, "dispatch"));
        assert_non_null(symbol_named(image, "main"));
        assert_null(symbol_named(image, "worker"));
        tl_image_close(image);
    }
    struct tl_image *image = victim_open("basic-stripped", NULL, NULL);
    const struct tl_symbol *symbol;
    const struct tl_module_facts *facts;
    assert_int_equal(tl_image_symbols(image, &symbol), 0);
    assert_int_equal(tl_image_facts(image, &facts, NULL), 0);
    assert_true(facts->function_count > 8); // the unwind table still knows where functions are
    tl_image_close(image);
}

// C125 and C225: versions, from the static table and from the dynamic one.
static void versions_are_read(void **state)
{
    static const char *const files[] = {"libversions.so", "libversions-stripped.so"};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(files); i++) {
        const struct tl_symbol *symbol;
        struct tl_image *image = victim_open(files[i], NULL, NULL);
        size_t count = tl_image_symbols(image, &symbol), seen = 0;
        for (size_t j = 0; j < count; j++) {
            if (strcmp(symbol[j].name, "foo") != 0)
                continue;
            assert_non_null(symbol[j].version);
            assert_true(symbol[j].version_default == (strcmp(symbol[j].version, "V1") == 0));
            seen++;
        }
        assert_int_equal(seen, 2); // once each, however many tables name them
        assert_string_equal(tl_image_soname(image), "libversions.so.1");
        tl_image_close(image);
    }
}

// --- separate debug files (C116) ---

static void expect_debug(const char *name, const char *debug_dir, const char *root,
                         const char *file)
{
    struct tl_image *image = victim_open(name, debug_dir, root);
    const struct tl_symbol *worker = symbol_named(image, "worker");
    const char *path = tl_image_debug_path(image);
    if (!file) {
        if (worker || path)
            fail_msg("%s: took %s", name, path ? path : "another file");
    } else {
        if (!worker || !path || !strstr(path, file))
            fail_msg("%s: took %s instead of %s", name, path ? path : "none", file);
        struct tl_image *whole = victim_open("basic", NULL, NULL);
        const struct tl_symbol *same = symbol_named(whole, "split");
        const struct tl_symbol *split = symbol_named(image, "split");
        assert_non_null(split);
        if (!strstr(name, "crc") && !strstr(name, "evil"))
            assert_int_equal(split->vaddr, same->vaddr);
        tl_image_close(whole);
    }
    tl_image_close(image);
}

static void debug_file_by_build_id(void **state)
{
    (void)state;
    expect_debug("basic-stripped", NULL, NULL, NULL);
    expect_debug("basic-stripped", victim_path("debug"), NULL, ".build-id/");
}

static void debug_file_of_another_build(void **state)
{
    (void)state;
    expect_debug("basic-stripped", victim_path("debug/wrong"), NULL, NULL);
}

static void debug_file_under_the_root(void **state)
{
    (void)state;
    expect_debug("basic-stripped", NULL, victim_path("debug/root"), "/usr/lib/debug/.build-id/");
}

static void debug_file_by_link(void **state)
{
    (void)state;
    expect_debug("debug/link/linked", NULL, NULL, "/.debug/basic.debug");
}

static void debug_file_by_checksum(void **state)
{
    (void)state;
    expect_debug("debug/crc/good", NULL, NULL, "/nobuildid.debug");
    expect_debug("debug/crc/bad", NULL, NULL, NULL);
}

// C216: a link is a file's name, not a path.
static void debug_link_can_not_climb(void **state)
{
    (void)state;
    expect_debug("debug/evil/in/evil", NULL, NULL, NULL);
    expect_debug("debug/evil/in/tame", NULL, NULL, "/in/secret.debug"); // the same without "../"
}

// C117
static void debugdata_is_unpacked(void **state)
{
    const struct tl_symbol *symbol;
    (void)state;
    struct tl_image *image = victim_open("basic-debugdata", NULL, NULL);
    assert_non_null(symbol_named(image, "worker"));
    assert_non_null(symbol_named(image, "split"));
    tl_image_close(image);
    image = victim_open("basic-stripped", NULL, NULL);
    assert_null(symbol_named(image, "worker"));
    tl_image_close(image);
    // Larger than is ever unpacked: its names are not there, and nothing else happens.
    image = victim_open("basic-debugdata-bomb", NULL, NULL);
    assert_int_equal(tl_image_symbols(image, &symbol), 0);
    tl_image_close(image);
}

// --- files that are none ---

static void refuses_what_is_no_program(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        int error;
    } rows[] = {
        {"", 0, TL_E_FORMAT},
        {"#!/bin/sh\n", 10, TL_E_FORMAT},
        {"\177ELF", 4, TL_E_FORMAT},
        {"\177ELF\2\1\1\0\0\0\0\0\0\0\0\0", 16, TL_E_FORMAT},
        // Whole headers: 32 bits, big-endian, an object file.
        {"\177ELF\1\1\1\0\0\0\0\0\0\0\0\0\2\0\3\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0\0"
         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
         64, TL_E_UNSUPPORTED},
        {"\177ELF\2\2\1\0\0\0\0\0\0\0\0\0\0\2\0\26\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0\0\0"
         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
         64, TL_E_UNSUPPORTED},
        {"\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\1\0\76\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0\0\0"
         "\0\0\0\0\100\0\70\0\0\0\100\0\0\0\0\0",
         64, TL_E_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        struct tl_image *image = NULL;
        struct tl_diag diag = {""};
        int error = tl_image_open_memory(rows[i].bytes, rows[i].size, "bytes", &image, &diag);
        if (error != rows[i].error)
            fail_msg("row %zu: %d %s", i, error, diag.text);
        assert_null(image);
        assert_true(strncmp(diag.text, "bytes: ", 7) == 0);
    }
}

static void refuses_what_is_no_file(void **state)
{
    struct tl_image *image = NULL;
    struct tl_diag diag;
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(tl_image_open(fd, "/dev/null", NULL, &image, &diag), TL_E_FORMAT);
    assert_int_equal(fcntl(fd, F_GETFD), -1); // it was taken over
    fd = open("/", O_RDONLY | O_CLOEXEC);
    assert_int_equal(tl_image_open(fd, "/", NULL, &image, &diag), TL_E_FORMAT);
    assert_int_equal(tl_modules_of_file("/no/such/file", NULL, (struct tl_modules **)&image, &diag),
                     TL_E_SYSTEM);
}

// A file that somebody cuts while it is looked at gives an error, not a signal.
static void survives_a_file_that_shrinks(void **state)
{
    char path[] = "/tmp/trapless-find-XXXXXX";
    const struct tl_module_facts *facts;
    struct tl_image *image;
    struct tl_diag diag;
    uint8_t bytes[65536];
    (void)state;
    int to = mkstemp(path), from = open(victim_path("basic-static"), O_RDONLY | O_CLOEXEC);
    ssize_t size;
    while ((size = read(from, bytes, sizeof bytes)) > 0)
        assert_int_equal(write(to, bytes, (size_t)size), size);
    close(from);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(tl_image_open(fd, path, NULL, &image, &diag), 0);
    assert_int_equal(ftruncate(to, 5000), 0);
    assert_true(tl_image_facts(image, &facts, &diag) < 0);
    tl_image_close(image);
    close(to);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marker_is_where_the_name_says),
        cmocka_unit_test(layouts_differ),
        cmocka_unit_test(sizes_are_guessed),
        cmocka_unit_test(labels_are_no_functions),
        cmocka_unit_test(stubs_are_no_functions),
        cmocka_unit_test(dynamic_names_remain),
        cmocka_unit_test(versions_are_read),
        cmocka_unit_test(debug_file_by_build_id),
        cmocka_unit_test(debug_file_of_another_build),
        cmocka_unit_test(debug_file_under_the_root),
        cmocka_unit_test(debug_file_by_link),
        cmocka_unit_test(debug_file_by_checksum),
        cmocka_unit_test(debug_link_can_not_climb),
        cmocka_unit_test(debugdata_is_unpacked),
        cmocka_unit_test(refuses_what_is_no_program),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(survives_a_file_that_shrinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

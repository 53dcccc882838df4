// The probe grammar, as a table: text in, spec or usage error out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "victims.h"

struct row {
    const char *text;
    const char *file, *function, *version; // "" stands for NULL
    uint64_t offset;
    bool has_offset;
    uint64_t vaddr;
    bool has_vaddr, returns, version_default;
};

static const struct row good[] = {
    {"main", "", "main", "", .offset = 0},
    {"libc:malloc", "libc", "malloc", "", .offset = 0},
    {"libc.so.6:malloc", "libc.so.6", "malloc", "", .offset = 0},
    {"uprobe:/bin/bash:readline", "/bin/bash", "readline", "", .offset = 0},
    {"uretprobe:/bin/bash:readline", "/bin/bash", "readline", "", .returns = true},
    {"uretprobe:f", "", "f", "", .returns = true},
    {"uprobe:*:f", "*", "f", "", .offset = 0},
    {"uprobe:main", "", "main", "", .offset = 0},
    {"*:dict*", "*", "dict*", "", .offset = 0},
    {"f+4", "", "f", "", .offset = 4, .has_offset = true},
    {"f+0x1F", "", "f", "", .offset = 0x1f, .has_offset = true},
    {"f+0", "", "f", "", .offset = 0, .has_offset = true},
    {"libc:f@GLIBC_2.2.5", "libc", "f", "GLIBC_2.2.5", .offset = 0},
    {"f@@V1", "", "f", "V1", .version_default = true},
    {"f@V1+8", "", "f", "V1", .offset = 8, .has_offset = true},
    {"0x401000", "", "", "", .vaddr = 0x401000, .has_vaddr = true},
    {"a.out:0x401000", "a.out", "", "", .vaddr = 0x401000, .has_vaddr = true},
    {"uprobe:./a.out:0XfFff", "./a.out", "", "", .vaddr = 0xffff, .has_vaddr = true},
    {"a:0xffffffffffffffff", "a", "", "", .vaddr = UINT64_MAX, .has_vaddr = true},
    {"ns::f", "", "ns::f", "", .offset = 0},
    {"lib.so:ns::f(int, char const*)", "lib.so", "ns::f(int, char const*)", "", .offset = 0},
    {"ns::Box::operator+", "", "ns::Box::operator+", "", .offset = 0},
    {"operator++", "", "operator++", "", .offset = 0},
    {"ns::operator+(int)", "", "ns::operator+(int)", "", .offset = 0},
    {"operator++8", "", "operator+", "", .offset = 8, .has_offset = true},
    {"::f", "", "f", "", .offset = 0},
    {"lib:::f", "lib", "f", "", .offset = 0},
    {"(anonymous namespace)::f", "", "(anonymous namespace)::f", "", .offset = 0},
    {"<T as core::fmt::Debug>::fmt", "", "<T as core::fmt::Debug>::fmt", "", .offset = 0},
    {"uprobe::f", "", "uprobe::f", "", .offset = 0},
    {"uprobe:/bin/x:\"ns::f(int)\"", "/bin/x", "ns::f(int)", "", .offset = 0},
    {"uprobe:uprobe:f", "uprobe", "f", "", .offset = 0},
    {"f.constprop.0", "", "f.constprop.0", "", .offset = 0},
};

static void check_text(const char *got, const char *want, const char *probe)
{
    if ((got ? strcmp(got, want) : *want) != 0)
        fail_msg("%s: '%s' instead of '%s'", probe, got ? got : "(null)", want);
}

static void parses(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(good); i++) {
        const struct row *row = &good[i];
        struct tl_probe_spec spec;
        struct tl_diag diag = {""};
        if (tl_probe_parse(row->text, &spec, &diag) != 0)
            fail_msg("%s: %s", row->text, diag.text);
        check_text(spec.file, row->file, row->text);
        check_text(spec.function, row->function, row->text);
        check_text(spec.version, row->version, row->text);
        if (spec.offset != row->offset || spec.has_offset != row->has_offset ||
            spec.vaddr != row->vaddr || spec.has_vaddr != row->has_vaddr ||
            spec.version_default != row->version_default ||
            (spec.kind == TL_PROBE_RETURN) != row->returns)
            fail_msg("%s: a number or flag differs", row->text);
        tl_probe_spec_deinit(&spec);
    }
}

static void refuses(void **state)
{
    static const char *const bad[] = {
        "",
        ":",
        "f:",
        ":f",
        "uprobe:",
        "uprobe::",
        "uprobe:a:",
        "f+",
        "f+x",
        "f+-1",
        "+4",
        "f+0x",
        "f+0xg",
        "f+18446744073709551616",
        "f@",
        "@V",
        "f@@",
        "f@a@b",
        "0x",
        "0x1g",
        "a:0x12345678901234567",
        "uretprobe:a:0x10",
        "uretprobe:f+4",
        "uprobe:0x10",
        "usdt:a:b:c",
        "kprobe:f",
        "tracepoint:a:b",
        "a\nb",
        "a\tb",
        "\x7f",
        "::",
        "\"\"",
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(bad); i++) {
        struct tl_probe_spec spec = {.offset = 77};
        struct tl_diag diag = {""};
        int error = tl_probe_parse(bad[i], &spec, &diag);
        if (error != TL_E_USAGE)
            fail_msg("'%s': %d", bad[i], error);
        assert_true(strstr(diag.text, "forms:") != NULL);
        assert_int_equal(spec.offset, 77); // set only on success
    }
}

static void refuses_long_text(void **state)
{
    static char text[100001];
    struct tl_probe_spec spec;
    (void)state;
    memset(text, 'a', sizeof text - 1);
    assert_int_equal(tl_probe_parse(text, &spec, NULL), TL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

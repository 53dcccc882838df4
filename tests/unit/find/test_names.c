// What a name or pattern means: pure tables over names.c, demangle.c and match.c.
#include <stdio.h>
#include <string.h>

#include "find/match.h"
#include "victims.h"

static void globs(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } rows[] = {
        {"*", "", true},
        {"*", "anything", true},
        {"", "", true},
        {"", "a", false},
        {"a", "a", true},
        {"a", "ab", false},
        {"a*", "ab", true},
        {"a*", "ba", false},
        {"*b", "aab", true},
        {"*b", "aba", false},
        {"a*c*e", "abcde", true},
        {"a*c*e", "abde", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"??", "a", false},
        {"*a*a*a*", "aaa", true},
        {"*a*a*a*", "aa", false},
        {"dict*", "dict", true},
        {"a**b", "ab", true},
        {"?*", "", false},
        {"*?", "x", true},
        {"[a]", "a", false},
        {"foo.*", "foo.cold", true},
        {"foo*", "fooo", true},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        if (tl_glob(rows[i].pattern, rows[i].text) != rows[i].match)
            fail_msg("'%s' against '%s'", rows[i].pattern, rows[i].text);
    }
}

// Patterns of many stars must not take time without end.
static void hostile_glob(void **state)
{
    char pattern[2002], text[8001];
    (void)state;
    for (size_t i = 0; i < 2000; i += 2)
        memcpy(pattern + i, "*a", 2);
    strcpy(pattern + 2000, "b");
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_false(tl_glob(pattern, text));
}

static void clone_suffixes(void **state)
{
    static const struct {
        const char *name, *base;
        bool cold;
    } rows[] = {
        {"foo", "foo", false},
        {"foo.constprop.0", "foo", false},
        {"foo.isra.12", "foo", false},
        {"foo.part.0.isra.1", "foo", false},
        {"foo.cold", "foo", true},
        {"foo.cold.3", "foo", true},
        {"foo.constprop.0.cold", "foo", true},
        {"foo.part.0.cold", "foo", true},
        {"foo.lto_priv.0", "foo", false},
        {"foo.llvm.1234567", "foo", false},
        {"main.main", "main.main", false},
        {"runtime.partial", "runtime.partial", false},
        {"x.coldest", "x.coldest", false},
        {"x.y.constprop.1", "x.y", false},
        {"x.cold.y", "x.cold.y", false},
        {".cold", ".cold", false},
        {"", "", false},
        {"a.", "a.", false},
        {"a..cold", "a.", true},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        bool cold;
        size_t size = tl_name_base(rows[i].name, &cold);
        if (size != strlen(rows[i].base) || cold != rows[i].cold)
            fail_msg("%s: base of %zu bytes, cold %d", rows[i].name, size, cold);
    }
}

static void demangles(void **state)
{
    static const struct {
        const char *name, *full, *bare;
    } rows[] = {
        {"main", NULL, NULL},
        {"_Z3fooi", "foo(int)", "foo"},
        {"_ZN2ns3maxIiEET_S1_S1_", "ns::max<int>(int, int)", "ns::max<int>"},
        {"_ZNK2ns3BoxplERKS0_", "ns::Box::operator+(ns::Box const&) const", "ns::Box::operator+"},
        {"_ZN5krate6module8function17h0123456789abcdefE", "krate::module::function",
         "krate::module::function"},
        {"_RNvNtCs1234_5krate6module5plain", "krate::module::plain", "krate::module::plain"},
        {"_Znot_a_name", NULL, NULL},
        {"_R", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        struct tl_arena arena = {0};
        const char *full = tl_demangle(&arena, rows[i].name, true);
        const char *bare = tl_demangle(&arena, rows[i].name, false);
        if (!rows[i].full) {
            assert_null(full);
            assert_null(bare);
        } else {
            assert_non_null(full);
            assert_string_equal(full, rows[i].full);
            assert_non_null(bare);
            assert_string_equal(bare, rows[i].bare);
        }
        tl_arena_deinit(&arena);
    }
}

// A number of Rust's v0 names, base 62: 0 is "_", 1 is "0_".
static size_t base62(char *out, size_t value)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t size = 0;
    if (value > 62)
        out[size++] = digits[(value - 1) / 62];
    if (value > 0)
        out[size++] = digits[(value - 1) % 62];
    out[size++] = '_';
    return size;
}

static void bounded(const char *name)
{
    struct tl_arena arena = {0};
    assert_null(tl_demangle(&arena, name, true));
    tl_arena_deinit(&arena);
}

// Short names that stand for more text than memory holds: each type is a pair of the type before
// it.
static void demangle_bombs(void **state)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char name[1024];
    (void)state;
    size_t at = (size_t)snprintf(name, sizeof name, "_Z1f4pairIiiE");
    for (size_t i = 0; i < 34; i++)
        at += (size_t)snprintf(name + at, sizeof name - at, "S_IS%c_S%c_E", digits[i], digits[i]);
    bounded(name);

    at = (size_t)snprintf(name, sizeof name, "_RINvC1a1bTuuE");
    size_t back = strlen("INvC1a1b"); // where the last tuple starts, counted behind "_R"
    for (size_t i = 0; i < 34; i++) {
        size_t here = at - 2;
        name[at++] = 'T';
        for (size_t j = 0; j < 2; j++) {
            name[at++] = 'B';
            at += base62(name + at, back);
        }
        name[at++] = 'E';
        back = here;
    }
    name[at++] = 'E';
    name[at] = 0;
    bounded(name);

    // The same shape, small enough, is text.
    struct tl_arena arena = {0};
    const char *text = tl_demangle(&arena, "_Z1f4pairIiiES_IS0_S0_E", true);
    assert_non_null(text);
    assert_string_equal(text, "f(pair<int, int>, pair<pair<int, int>, pair<int, int> >)");
    tl_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs),          cmocka_unit_test(hostile_glob),
        cmocka_unit_test(clone_suffixes), cmocka_unit_test(demangles),
        cmocka_unit_test(demangle_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

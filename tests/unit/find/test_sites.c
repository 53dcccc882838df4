// Probes to sites in a file: names, versions, clones, C++ and Rust, offsets, addresses, what is
// refused and what is said when nothing matches.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "victims.h"

static void find_in(const char *victim, const char *probe, struct tl_modules **modules,
                    struct found *found)
{
    *modules = victim_modules(victim);
    find(*modules, 0, probe, found);
    if (found->matched < 0)
        fail_msg("%s: %s", probe, found->diag.text);
}

static void done(struct tl_modules *modules, struct found *found)
{
    found_deinit(found);
    tl_modules_destroy(modules);
}

static tl_addr vaddr_of(struct tl_modules *modules, const char *name)
{
    const struct tl_symbol *symbol = symbol_named(tl_modules_get(modules, 0)->image, name);
    assert_non_null(symbol);
    return symbol->vaddr;
}

// Every row: how many sites, and for one site what its names and note hold.
struct row {
    const char *victim, *probe;
    size_t sites;
    const char *names, *note; // NULL: not looked at
};

static const struct row rows[] = {
    {"basic", "main", 1, "main", NULL},
    {"basic", "mai", 0, NULL, NULL},
    {"basic", "mai?", 1, "main", NULL},
    {"basic", "uprobe:basic:main", 1, "main", NULL},
    // C126: all functions of one name.
    {"basic", "worker", 2, "worker", NULL},
    // Aliases: one site, all names.
    {"basic", "alias_two", 1, "alias_one, alias_two", NULL},
    {"basic", "alias_*", 1, "alias_one, alias_two", NULL},
    // C127: a bare name means its clones, never its cold part.
    {"basic", "clone", 1, "clone.constprop.0", "arguments may differ"},
    {"basic", "clone.constprop.0", 1, "clone.constprop.0", NULL},
    {"basic", "split", 1, "split", "cold part is not probed"},
    {"basic", "split*", 1, "split", NULL},
    {"basic", "split.cold", 1, "split.cold", "a cold part"},
    {"basic", "no_size", 1, "no_size", NULL},
    {"basic", "no_type", 1, "no_type", NULL},
    {"basic", "puts", 0, NULL, NULL}, // a stub is no function
    {"basic", "puts@plt", 0, NULL, NULL},
    {"basic-mold", "puts$plt", 0, NULL, NULL},
    // C125
    {"libversions.so", "foo", 1, "foo", NULL},
    {"libversions.so", "foo@V0", 1, "foo@V0", NULL},
    {"libversions.so", "foo@V1", 1, "foo", NULL},
    {"libversions.so", "foo@@V1", 1, "foo", NULL},
    {"libversions.so", "foo@@V0", 0, NULL, NULL},
    {"libversions.so", "foo@V2", 0, NULL, NULL},
    {"libversions.so", "old", 1, "old@V0", "no default version"},
    {"libversions.so", "foo*", 2, "foo", NULL},
    {"libversions-stripped.so", "foo", 1, "foo", NULL},
    {"libversions-stripped.so", "foo@V0", 1, "foo@V0", NULL},
    // C129
    {"overload", "main", 1, "main", NULL},
    {"overload", "main_test", 1, "main_test()", NULL},
    {"overload", "main*", 2, NULL, NULL},
    {"overload", "area", 1, "area(int)", NULL},
    {"overload", "area(int)", 1, "area(int)", NULL},
    {"overload", "shapes::area", 3, NULL, NULL},
    {"overload", "shapes::area(int)", 1, "shapes::area(int)", NULL},
    {"overload", "shapes::area(int, int)", 1, "shapes::area(int, int)", NULL},
    {"overload", "shapes::area(int,int)", 1, "shapes::area(int, int)", NULL},
    {"overload", "shapes::area(char const*)", 1, "shapes::area(char const*)", NULL},
    {"overload", "shapes::area(long)", 0, NULL, NULL},
    {"overload", "shapes::area(*)", 3, NULL, NULL},
    {"overload", "*::area*", 3, NULL, NULL},
    {"overload", "shapes::largest", 2, NULL, NULL},
    {"overload", "shapes::largest<int>", 1, "shapes::largest<int>(int, int)", NULL},
    {"overload", "shapes::largest<double>", 1, "shapes::largest<double>(double, double)", NULL},
    {"overload", "shapes::largest<int>(int, int)", 1, "shapes::largest<int>(int, int)", NULL},
    {"overload", "shapes::largest<*>", 2, NULL, NULL},
    {"overload", "shapes::Box::Box", 1, "shapes::Box::Box(int)", NULL},
    {"overload", "shapes::Box::~Box", 1, "shapes::Box::~Box()", NULL},
    {"overload", "shapes::Box::operator+", 1, "shapes::Box::operator+", NULL},
    {"overload", "_ZN6shapes4areaEii", 1, "shapes::area(int, int)", NULL},
    {"overload", "::area", 1, "area(int)", NULL},
    {"overload", "overload:shapes::area(int)", 1, "shapes::area(int)", NULL},
    {"rust-names", "krate::module::function", 1, "krate::module::function", NULL},
    {"rust-names", "krate::module::plain", 1, "krate::module::plain", NULL},
    {"rust-names", "krate::module::generic", 1, "krate::module::generic", NULL},
    {"rust-names", "krate::module::*", 3, NULL, NULL},
    {"rust-names", "*krate::module::*", 4, NULL, NULL},
    {"rust-names", "_RNvNtCs1234_5krate6module5plain", 1, "krate::module::plain", NULL},
};

static void names_mean_what_they_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        struct tl_modules *modules;
        struct found found;
        if (!victim_path(row->victim))
            continue;
        find_in(row->victim, row->probe, &modules, &found);
        if (found.sites.count != row->sites)
            fail_msg("%s %s: %zu sites: %s", row->victim, row->probe, found.sites.count,
                     found.diag.text);
        assert_true((found.matched > 0) == (row->sites > 0));
        assert_true(row->sites > 0 || found.diag.text[0]);
        if (row->names && !strstr(found.sites.site[0].names, row->names))
            fail_msg("%s %s: names %s", row->victim, row->probe, found.sites.site[0].names);
        if (row->note &&
            (!found.sites.site[0].note || !strstr(found.sites.site[0].note, row->note)))
            fail_msg("%s %s: note %s", row->victim, row->probe,
                     found.sites.site[0].note ? found.sites.site[0].note : "none");
        done(modules, &found);
    }
}

// What a site says of itself, given back, finds the same site.
static void probes_are_canonical(void **state)
{
    static const char *const victims[] = {"basic", "overload", "rust-names", "libversions.so"};
    (void)state;
    for (size_t v = 0; v < TL_ARRAY_COUNT(victims); v++) {
        struct tl_modules *modules;
        struct found all;
        find_in(victims[v], "*", &modules, &all);
        assert_true(all.sites.count > 3);
        for (size_t i = 0; i < all.sites.count; i++) {
            const struct tl_site *site = &all.sites.site[i];
            struct found again;
            bool same = false;
            find(modules, 0, site->probe, &again);
            for (size_t j = 0; again.matched > 0 && j < again.sites.count; j++)
                same |= again.sites.site[j].vaddr == site->vaddr;
            if (!same)
                fail_msg("%s: %d, %s", site->probe, again.matched, again.diag.text);
            found_deinit(&again);
        }
        done(modules, &all);
    }
}

static void versions_lead_to_their_own_code(void **state)
{
    struct tl_modules *modules;
    struct found found;
    (void)state;
    find_in("libversions.so", "foo", &modules, &found);
    assert_int_equal(found.sites.site[0].function, vaddr_of(modules, "foo_new"));
    done(modules, &found);
    find_in("libversions.so", "foo@V0", &modules, &found);
    assert_int_equal(found.sites.site[0].function, vaddr_of(modules, "foo_old"));
    done(modules, &found);
}

// C121: `*` takes every function, with and without a size, each address once.
static void star_takes_every_address_once(void **state)
{
    struct tl_modules *modules;
    struct found found;
    (void)state;
    find_in("basic", "*", &modules, &found);
    const struct tl_symbol *symbol;
    size_t count = tl_image_symbols(tl_modules_get(modules, 0)->image, &symbol), addresses = 0;
    for (size_t i = 0; i < count; i++) {
        bool cold = strstr(symbol[i].name, ".cold") != NULL;
        addresses += !cold && (i == 0 || symbol[i - 1].vaddr != symbol[i].vaddr);
    }
    assert_int_equal(found.sites.count, addresses);
    for (size_t i = 0; i < found.sites.count; i++) {
        for (size_t j = 0; j < i; j++)
            assert_true(found.sites.site[i].vaddr != found.sites.site[j].vaddr);
        assert_true(found.sites.site[i].entry);
        assert_int_equal(found.sites.site[i].refusal, TL_REFUSE_NONE);
    }
    // Asked again, nothing is added; another kind of probe is another site.
    struct tl_find_context context = {.modules = modules};
    struct tl_probe_spec spec;
    assert_int_equal(tl_probe_parse("main", &spec, NULL), 0);
    assert_int_equal(tl_find_sites(&context, &spec, &found.sites, NULL), 1);
    assert_int_equal(found.sites.count, addresses);
    spec.kind = TL_PROBE_RETURN;
    assert_int_equal(tl_find_sites(&context, &spec, &found.sites, NULL), 1);
    assert_int_equal(found.sites.count, addresses + 1);
    tl_probe_spec_deinit(&spec);
    done(modules, &found);
}

static void entries_sit_behind_endbr64(void **state)
{
    struct tl_modules *modules;
    struct found found;
    (void)state;
    find_in("basic", "alias_one", &modules, &found);
    tl_addr function = vaddr_of(modules, "alias_one");
    assert_int_equal(found.sites.site[0].function, function);
    assert_int_equal(found.sites.site[0].vaddr, function + 4);
    assert_int_equal(found.sites.site[0].addr, function + 4);
    done(modules, &found);
    find_in("basic", "marker", &modules, &found); // hand-written: none
    assert_int_equal(found.sites.site[0].vaddr, vaddr_of(modules, "marker"));
    done(modules, &found);
}

static void offsets_are_boundaries(void **state)
{
    struct tl_modules *modules;
    struct found found;
    (void)state;
    find_in("basic", "marker+5", &modules, &found);
    assert_int_equal(found.sites.count, 1);
    assert_int_equal(found.sites.site[0].vaddr, vaddr_of(modules, "marker") + 5);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NONE);
    assert_false(found.sites.site[0].entry);
    assert_true(strstr(found.sites.site[0].probe, ":marker+0x5") != NULL);
    done(modules, &found);

    find_in("basic", "marker+3", &modules, &found);
    assert_int_equal(found.sites.count, 1);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NOT_BOUNDARY);
    assert_string_equal(found.sites.site[0].note,
                        "the nearest instructions start at +0x0 and +0x5");
    done(modules, &found);

    find_in("basic", "marker+6", &modules, &found); // one past its end
    assert_int_equal(found.matched, 0);
    assert_true(strstr(found.diag.text, "6 bytes long") != NULL);
    done(modules, &found);

    find_in("basic", "alias_one+4", &modules, &found); // the entry, written out
    assert_true(found.sites.site[0].entry);
    done(modules, &found);
    find_in("basic", "alias_one+0", &modules, &found);
    assert_int_equal(found.sites.site[0].vaddr, vaddr_of(modules, "alias_one") + 4);
    done(modules, &found);
}

static void find_address(const char *victim, tl_addr vaddr, struct tl_modules **modules,
                         struct found *found)
{
    char probe[128];
    (void)snprintf(probe, sizeof probe, "%s:0x%llx", victim, (unsigned long long)vaddr);
    find_in(victim, probe, modules, found);
    assert_int_equal(found->sites.count, 1);
}

static void addresses_lead_to_functions(void **state)
{
    struct tl_modules *modules = victim_modules("basic");
    struct found found;
    tl_addr marker = vaddr_of(modules, "marker"), alias = vaddr_of(modules, "alias_one");
    tl_modules_destroy(modules);
    (void)state;
    find_address("basic", marker + 5, &modules, &found);
    assert_int_equal(found.sites.site[0].function, marker);
    assert_string_equal(found.sites.site[0].names, "marker");
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NONE);
    done(modules, &found);
    find_address("basic", marker + 1, &modules, &found);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NOT_BOUNDARY);
    done(modules, &found);
    find_address("basic", alias, &modules, &found); // a function's start is its entry
    assert_int_equal(found.sites.site[0].vaddr, alias + 4);
    assert_true(found.sites.site[0].entry);
    done(modules, &found);
    find_address("basic", 0x10, &modules, &found);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NOT_CODE);
    done(modules, &found);
    // C136, C137: pages of the kernel.
    find_address("basic", 0xffffffffff600000u, &modules, &found);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_VDSO);
    done(modules, &found);
    find_in("basic", "[vdso]:__vdso_clock_gettime", &modules, &found);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_VDSO);
    done(modules, &found);
}

static void ifunc_of_a_file_is_not_known(void **state)
{
    struct tl_modules *modules;
    struct found found;
    (void)state;
    find_in("libifunc.so", "chosen", &modules, &found);
    assert_int_equal(found.sites.count, 1);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_IFUNC);
    assert_true(strstr(found.sites.site[0].note, "only a running program") != NULL);
    done(modules, &found);
    // The resolver, by its own name, is a function like any other, beside the refused IFUNC.
    find_in("libifunc.so", "cho*", &modules, &found);
    assert_int_equal(found.sites.count, 2);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NONE);
    assert_string_equal(found.sites.site[0].names, "choose");
    assert_int_equal(found.sites.site[1].refusal, TL_REFUSE_IFUNC);
    done(modules, &found);
}

// FILE, by every name the file has.
static void files_are_recognised(void **state)
{
    static const char *const words[] = {
        "liblibrary.so.3.1", "liblibrary.so.3", "liblibrary", "lib*", "*", "*/liblibrary.so.*"};
    static const char *const others[] = {"library", "liblib",           "liblibrary.so.4",
                                         "libc",    "/liblibrary.so.3", "other-library"};
    struct tl_modules *modules = victim_modules("liblibrary.so.3.1");
    char probe[VICTIM_PATH_SIZE + 64];
    struct found found;
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
        (void)snprintf(probe, sizeof probe, "%s:library_call", words[i]);
        find(modules, 0, probe, &found);
        if (found.matched != 1)
            fail_msg("%s: %s", probe, found.diag.text);
        found_deinit(&found);
    }
    for (size_t i = 0; i < TL_ARRAY_COUNT(others); i++) {
        (void)snprintf(probe, sizeof probe, "%s:library_call", others[i]);
        find(modules, 0, probe, &found);
        if (found.matched != 0 || !strstr(found.diag.text, "no module"))
            fail_msg("%s: %d %s", probe, found.matched, found.diag.text);
        found_deinit(&found);
    }
    // A link to it is the same file (C135).
    (void)snprintf(probe, sizeof probe, "%s:library_call", victim_path("liblibrary.so"));
    find(modules, 0, probe, &found);
    assert_int_equal(found.matched, 1);
    found_deinit(&found);
    tl_modules_destroy(modules);
}

static void misses_say_what_is_near(void **state)
{
    static const struct {
        const char *victim, *probe, *text;
    } misses[] = {
        {"basic", "dispach", "near names: dispatch"},
        {"basic", "alias_onne", "alias_one"},
        {"basic", "Marker", "marker"},
        {"overload", "shapes::aera", "shapes::area"},
        {"basic", "puts", "takes 'puts' from a library"},
        {"basic-stripped", "main", "stripped"},
        {"basic", "zzzzzzzzzzzz", "no function 'zzzzzzzzzzzz'"},
        {"basic", "libc:puts", "no module 'libc'"},
        {"basic", "*:0x10", NULL},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(misses); i++) {
        struct tl_modules *modules;
        struct found found;
        find_in(misses[i].victim, misses[i].probe, &modules, &found);
        if (misses[i].text && (found.matched != 0 || !strstr(found.diag.text, misses[i].text)))
            fail_msg("%s: %s", misses[i].probe, found.diag.text);
        done(modules, &found);
    }
}

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

// C134 and C141: with 100,000 names, an address or a wrong name costs no walk that a person would
// notice.
static void large_programs_are_fast(void **state)
{
    struct tl_modules *modules = victim_modules("large");
    struct found found;
    (void)state;
    double start = now_ms();
    find(modules, 0, "large::name099999", &found);
    assert_int_equal(found.matched, 1);
    tl_addr vaddr = found.sites.site[0].vaddr;
    found_deinit(&found);
    char probe[64];
    (void)snprintf(probe, sizeof probe, "0x%llx", (unsigned long long)vaddr);
    find(modules, 0, probe, &found);
    assert_int_equal(found.matched, 1);
    assert_string_equal(found.sites.site[0].names, "large::name099999(int)");
    found_deinit(&found);
    for (size_t i = 0; i < 50; i++) {
        (void)snprintf(probe, sizeof probe, "plain_name_%zu", i * 4 + (i % 2));
        find(modules, 0, probe, &found);
        assert_int_equal(found.matched, i % 2 ? 0 : 1);
        found_deinit(&found);
    }
    double spent = now_ms() - start;
    print_message("100,000 names: an index, 2 look-ups and 50 optional names took %.0f ms\n",
                  spent);
    assert_true(spent < 20000); // generous: sanitizers and busy machines
    tl_modules_destroy(modules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_mean_what_they_say),
        cmocka_unit_test(probes_are_canonical),
        cmocka_unit_test(versions_lead_to_their_own_code),
        cmocka_unit_test(star_takes_every_address_once),
        cmocka_unit_test(entries_sit_behind_endbr64),
        cmocka_unit_test(offsets_are_boundaries),
        cmocka_unit_test(addresses_lead_to_functions),
        cmocka_unit_test(ifunc_of_a_file_is_not_known),
        cmocka_unit_test(files_are_recognised),
        cmocka_unit_test(misses_say_what_is_near),
        cmocka_unit_test(large_programs_are_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

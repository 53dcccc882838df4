// Modules of running programs: which file, at which bias, whatever happened to its path since;
// IFUNCs in use.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "victims.h"

// --- a directory of copies ---

struct place {
    char dir[64];
    char path[256];
};

static void copy_file(const char *from, const char *to)
{
    char buf[65536];
    ssize_t size;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0);
    while ((size = read(in, buf, sizeof buf)) > 0)
        assert_int_equal(write(out, buf, (size_t)size), size);
    close(in);
    close(out);
}

static void place_make(struct place *place, const char *victim, const char *name)
{
    strcpy(place->dir, "/tmp/trapless-find-XXXXXX");
    assert_non_null(mkdtemp(place->dir));
    (void)snprintf(place->path, sizeof place->path, "%s/%s", place->dir, name);
    copy_file(victim_path(victim), place->path);
}

static void place_remove(struct place *place)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", place->dir);
    assert_int_equal(system(command), 0);
}

static struct tl_module *module_with(struct process *process, const char *path)
{
    for (size_t i = 0; i < tl_modules_count(process->modules); i++) {
        struct tl_module *module = tl_modules_get(process->modules, i);
        if (strcmp(module->path, path) == 0)
            return module;
    }
    return NULL;
}

// The bytes at the runtime address of the first site are those that the file holds there.
static void expect_bytes(struct process *process, const struct tl_site *site)
{
    const struct tl_module_facts *facts;
    struct tl_module *module = tl_modules_get(process->modules, site->module);
    uint8_t bytes[8];
    assert_int_equal(tl_image_facts(module->image, &facts, NULL), 0);
    const uint8_t *text = facts_text(facts, site->vaddr, sizeof bytes);
    assert_non_null(text);
    assert_int_equal(pread(process->memory, bytes, sizeof bytes, (off_t)site->addr), sizeof bytes);
    assert_memory_equal(bytes, text, sizeof bytes);
}

static void expect_site(struct process *process, const char *probe)
{
    struct found found;
    process_find(process, probe, &found);
    if (found.matched != 1)
        fail_msg("%s: %d %s", probe, found.matched, found.diag.text);
    expect_bytes(process, &found.sites.site[0]);
    found_deinit(&found);
}

// --- plain programs of every layout ---

static void biases_are_right(void **state)
{
    static const char *const victims[] = {
        "basic",          "basic-nopie", "basic-static", "basic-static-pie",  "basic-lld",
        "basic-mold",     "basic-gold",  "basic-musl",   "basic-musl-static", "basic-one-segment",
        "basic-prelinked"};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(victims); i++) {
        const char *path = victim_path(victims[i]);
        struct process process;
        if (!path)
            continue;
        process_start(&process, (const char *const[]){path, "wait", NULL});
        process_modules(&process);
        struct tl_module *program = tl_modules_get(process.modules, 0);
        assert_true(program->main);
        assert_string_equal(program->path, path);
        assert_string_equal(tl_modules_notes(process.modules), "");
        expect_site(&process, "marker");
        if (tl_modules_count(process.modules) > 1 && strcmp(victims[i], "basic-musl") != 0)
            expect_site(&process, "libc:abort");
        process_stop(&process);
    }
}

// C130: what the program takes from a library is found there, and said so.
static void imported_names_are_searched(void **state)
{
    struct process process;
    struct found found;
    (void)state;
    process_start(&process, (const char *const[]){victim_path("library-user"), "wait", NULL});
    process_modules(&process);
    expect_site(&process, "library_call");
    process_find(&process, "library_call", &found);
    assert_true(strstr(found.sites.site[0].note, "takes it from") != NULL);
    assert_true(strstr(found.sites.site[0].note, "liblibrary.so.3.1") != NULL);
    found_deinit(&found);
    process_find(&process, "library_other", &found); // not the program's, but there
    assert_int_equal(found.matched, 0);
    assert_true(strstr(found.diag.text, "write liblibrary.so.3.1:library_other") != NULL);
    found_deinit(&found);
    process_find(&process, "*:library_*", &found);
    assert_int_equal(found.sites.count, 2);
    found_deinit(&found);
    process_stop(&process);
}

// C132, C135: one file by many paths; a copy of it by its build-id.
static void files_are_recognised(void **state)
{
    struct process process;
    struct place place;
    char probe[512];
    (void)state;
    process_start(&process, (const char *const[]){victim_path("library-user"), "wait", NULL});
    process_modules(&process);
    static const char *const words[] = {"liblibrary", "liblibrary.so.3", "liblibrary.so.3.1"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
        (void)snprintf(probe, sizeof probe, "%s:library_call", words[i]);
        expect_site(&process, probe);
    }
    (void)snprintf(probe, sizeof probe, "%s:library_call", victim_path("liblibrary.so"));
    expect_site(&process, probe);
    place_make(&place, "liblibrary.so.3.1", "copy.so");
    (void)snprintf(probe, sizeof probe, "%s:library_call", place.path);
    expect_site(&process, probe);
    struct found found;
    process_find(&process, probe, &found);
    assert_true(strstr(found.sites.site[0].note, "same build-id") != NULL);
    found_deinit(&found);
    copy_file(victim_path("other-library"), place.path); // same name and soname, another build
    process_find(&process, probe, &found);
    assert_int_equal(found.matched, 0);
    found_deinit(&found);
    place_remove(&place);
    process_stop(&process);
}

// The same library twice, each at its own bias.
static void a_file_loaded_twice_is_two_modules(void **state)
{
    struct process process;
    struct found found;
    (void)state;
    process_start(&process, (const char *const[]){victim_path("library-user"), "twice",
                                                  victim_path("liblibrary.so.3.1"), NULL});
    process_modules(&process);
    process_find(&process, "liblibrary:library_call", &found);
    assert_int_equal(found.sites.count, 2);
    assert_true(found.sites.site[0].addr != found.sites.site[1].addr);
    expect_bytes(&process, &found.sites.site[0]);
    expect_bytes(&process, &found.sites.site[1]);
    found_deinit(&found);
    process_stop(&process);
}

// --- replaced files (C131) ---

static void replace(const char *path, const char *with)
{
    char fresh[300];
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    copy_file(with, fresh);
    assert_int_equal(rename(fresh, path), 0);
}

static void replaced_programs_are_read_through_the_process(void **state)
{
    static const struct {
        const char *victim;
        bool unlink;
    } cases[] = {{"basic", true}, {"basic", false}, {"basic-nopie", true}, {"basic-nopie", false}};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct process process;
        struct place place;
        struct found found;
        place_make(&place, cases[i].victim, "app");
        process_start(&process, (const char *const[]){place.path, "wait", NULL});
        if (cases[i].unlink)
            assert_int_equal(unlink(place.path), 0);
        else
            replace(place.path, victim_path("overload")); // has other functions at other places
        process_modules(&process);
        struct tl_module *program = tl_modules_get(process.modules, 0);
        assert_true(program->main);
        assert_string_equal(program->path, place.path); // without the kernel's mark
        expect_site(&process, "marker");
        expect_site(&process, "dispatch");
        char probe[512];
        (void)snprintf(probe, sizeof probe, "%s:marker", place.path);
        expect_site(&process, probe);
        process_find(&process, "main_test", &found); // only in the new file
        assert_int_equal(found.matched, 0);
        found_deinit(&found);
        process_stop(&process);
        place_remove(&place);
    }
}

static void replaced_libraries_are_read_through_the_process(void **state)
{
    (void)state;
    for (int unlinked = 0; unlinked < 2; unlinked++) {
        struct process process;
        struct place place;
        place_make(&place, "liblibrary.so.3.1", "liblibrary.so.3");
        char preload[300];
        (void)snprintf(preload, sizeof preload, "LD_LIBRARY_PATH=%s", place.dir);
        process_start(&process, (const char *const[]){"/usr/bin/env", preload,
                                                      victim_path("library-user"), "wait", NULL});
        if (unlinked)
            assert_int_equal(unlink(place.path), 0);
        else
            replace(place.path, victim_path("other-library"));
        process_modules(&process);
        assert_non_null(module_with(&process, place.path));
        expect_site(&process, "liblibrary:library_call");
        process_stop(&process);
        place_remove(&place);
    }
}

// C236: the mark of the kernel may also be the file's own name.
static void a_file_may_be_called_deleted(void **state)
{
    (void)state;
    for (int unlinked = 0; unlinked < 2; unlinked++) {
        struct process process;
        struct place place;
        place_make(&place, "basic", "app (deleted)");
        process_start(&process, (const char *const[]){place.path, "wait", NULL});
        if (unlinked)
            assert_int_equal(unlink(place.path), 0);
        process_modules(&process);
        assert_string_equal(tl_modules_get(process.modules, 0)->path, place.path);
        expect_site(&process, "marker");
        process_stop(&process);
        place_remove(&place);
    }
}

// C060: a library within another file, mapped by a loader of the program's own, is a part of neither: what stands
// at the file's beginning may be no program, or one whose segments lie elsewhere in it.
static void a_library_within_a_file_is_no_module(void **state)
{
    static const char *const firsts[] = {NULL, "basic"};
    static const off_t gaps[] = {0, 3}; // the library's first byte need not be a page's
    (void)state;
    for (size_t i = 0; i < 2 * TL_ARRAY_COUNT(firsts); i++) {
        struct process process = {.out = -1, .memory = -1};
        struct place place;
        struct found found;
        const char *first = firsts[i % 2];
        char whole[300];
        place_make(&place, first ? first : "liblibrary.so.3.1", "archive");
        int archive = open(place.path, O_RDWR | O_CLOEXEC);
        assert_true(archive >= 0);
        if (!first)
            assert_int_equal(ftruncate(archive, 0), 0);
        // From a page on: the whole of the library, as it is in its file.
        off_t end = lseek(archive, 0, SEEK_END);
        off_t start = (off_t)tl_page_up((uint64_t)end + 1) + gaps[i / 2];
        (void)snprintf(whole, sizeof whole, "%s/library", place.dir);
        copy_file(victim_path("liblibrary.so.3.1"), whole);
        int library = open(whole, O_RDONLY | O_CLOEXEC);
        struct stat st;
        assert_int_equal(fstat(library, &st), 0);
        uint8_t *bytes = malloc((size_t)st.st_size);
        assert_non_null(bytes);
        assert_int_equal(read(library, bytes, (size_t)st.st_size), st.st_size);
        assert_int_equal(pwrite(archive, bytes, (size_t)st.st_size, start), st.st_size);
        free(bytes);
        close(library);
        process.pid = fork();
        if (process.pid == 0) {
            bool mapped = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, archive,
                               (off_t)tl_page_down((uint64_t)start)) != MAP_FAILED;
            raise(mapped ? SIGSTOP : SIGKILL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(process.pid, &status, WUNTRACED), process.pid);
        assert_true(WIFSTOPPED(status));
        process_modules(&process);
        assert_null(module_with(&process, place.path));
        assert_non_null(strstr(tl_modules_notes(process.modules), place.path));
        process_find(&process, "*:library_call", &found);
        assert_int_equal(found.matched, 0);
        found_deinit(&found);
        close(archive);
        process_stop(&process);
        place_remove(&place);
    }
}

// C115: in another mount namespace the same path is another file.
static void other_mount_namespaces_are_seen(void **state)
{
    struct process process = {.out = -1, .memory = -1};
    struct place place;
    char inside[300];
    int out[2];
    (void)state;
    place_make(&place, "overload", "app");
    (void)snprintf(inside, sizeof inside, "%s/real", place.dir);
    copy_file(victim_path("basic"), inside);
    assert_int_equal(pipe(out), 0);
    process.pid = fork();
    if (process.pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            _exit(2);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount(inside, place.path, NULL, MS_BIND, NULL) != 0)
            _exit(2);
        execl(place.path, place.path, "wait", (char *)NULL);
        _exit(2);
    }
    close(out[1]);
    process.out = out[0];
    char line[64] = "";
    ssize_t size = read(out[0], line, sizeof line - 1);
    if (size <= 0) {
        process_stop(&process);
        place_remove(&place);
        print_message("this user may not make mount namespaces\n");
        skip();
    }
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)process.pid);
    process.memory = open(path, O_RDONLY | O_CLOEXEC);
    process_modules(&process);
    assert_string_equal(tl_modules_get(process.modules, 0)->path, place.path);
    expect_site(&process, "marker"); // not in the file that we see at that path
    char probe[512];
    (void)snprintf(probe, sizeof probe, "%s:marker", place.path);
    expect_site(&process, probe);
    process_stop(&process);
    place_remove(&place);
}

// --- IFUNCs (C124) ---

static void expect_implementation(struct process *process, const char *probe, const char *name)
{
    struct found found;
    process_find(process, probe, &found);
    if (found.matched != 1)
        fail_msg("%s: %d %s", probe, found.matched, found.diag.text);
    const struct tl_site *site = &found.sites.site[0];
    struct tl_module *module = tl_modules_get(process->modules, site->module);
    const struct tl_symbol *symbol = symbol_named(module->image, name);
    assert_non_null(symbol);
    assert_int_equal(site->refusal, TL_REFUSE_NONE);
    assert_int_equal(site->function, symbol->vaddr);
    assert_true(strstr(site->names, name) && strstr(site->names, "chosen"));
    assert_true(strstr(site->note, "implementation in use") && strstr(site->note, name));
    found_deinit(&found);
}

static void ifuncs_lead_to_the_implementation_in_use(void **state)
{
    static const char *const victims[] = {"ifunc", "ifunc-static", "ifunc-static-pie", "ifunc-lazy",
                                          "ifunc-now"};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(victims); i++) {
        struct process process;
        const char *path = victim_path(victims[i]);
        if (!path)
            continue;
        bool own = strncmp(victims[i], "ifunc-s", 7) == 0 || strcmp(victims[i], "ifunc") == 0;
        process_start(&process, (const char *const[]){path, "wait", NULL});
        process_modules(&process);
        expect_implementation(&process, "chosen", "second_implementation");
        if (!own)
            expect_implementation(&process, "libifunc:chosen", "second_implementation");
        process_stop(&process);
    }
}

// A lazily bound name that was never called is bound by nothing yet: said so, and not taken for its
// stub.
static void an_unbound_ifunc_is_refused(void **state)
{
    struct process process;
    struct found found;
    (void)state;
    process_start(&process,
                  (const char *const[]){victim_path("ifunc-lazy"), "wait", "unbound", NULL});
    process_modules(&process);
    process_find(&process, "chosen", &found);
    assert_int_equal(found.sites.count, 1);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_IFUNC);
    assert_true(strstr(found.sites.site[0].note, "has bound it yet") != NULL);
    found_deinit(&found);
    process_stop(&process);
}

// The C library's own, in a program that uses them: one site however many names lead there.
static void libc_ifuncs_are_found(void **state)
{
    struct process process;
    struct found found;
    (void)state;
    process_start(&process, (const char *const[]){victim_path("basic"), "wait", NULL});
    process_modules(&process);
    process_find(&process, "libc:strlen", &found);
    assert_int_equal(found.sites.count, 1);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_NONE);
    expect_bytes(&process, &found.sites.site[0]);
    found_deinit(&found);
    process_find(&process, "[vdso]:__vdso_time", &found);
    assert_int_equal(found.sites.site[0].refusal, TL_REFUSE_VDSO);
    found_deinit(&found);
    process_stop(&process);
}

static void vanished_processes_are_an_error(void **state)
{
    struct process process;
    struct tl_modules *modules = NULL;
    struct tl_diag diag = {""};
    (void)state;
    process_start(&process, (const char *const[]){victim_path("basic"), "wait", NULL});
    process_modules(&process);
    kill(process.pid, SIGKILL);
    waitpid(process.pid, NULL, 0);
    assert_true(tl_modules_of_process(process.pid, &process.maps, NULL, &modules, &diag) < 0);
    assert_null(modules);
    assert_true(diag.text[0]);
    process.pid = 0;
    process_stop(&process);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(biases_are_right),
        cmocka_unit_test(imported_names_are_searched),
        cmocka_unit_test(files_are_recognised),
        cmocka_unit_test(a_file_loaded_twice_is_two_modules),
        cmocka_unit_test(replaced_programs_are_read_through_the_process),
        cmocka_unit_test(replaced_libraries_are_read_through_the_process),
        cmocka_unit_test(a_file_may_be_called_deleted),
        cmocka_unit_test(a_library_within_a_file_is_no_module),
        cmocka_unit_test(other_mount_namespaces_are_seen),
        cmocka_unit_test(ifuncs_lead_to_the_implementation_in_use),
        cmocka_unit_test(an_unbound_ifunc_is_refused),
        cmocka_unit_test(libc_ifuncs_are_found),
        cmocka_unit_test(vanished_processes_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

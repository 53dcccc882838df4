// The parsers of /proc text, on good lines, on malformed ones, and on this process's own files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "attach/proc.h"

#include <elf.h>

static void maps_are_taken_apart(void **state)
{
    (void)state;
    static const char text[] =
        "00400000-00401000 r-xp 00001000 fe:0a 123456789                  /usr/bin/a b (deleted)\n"
        "7f0000000000-7f0000001000 rw-s 00000000 00:01 77 /tmp/new\\012line\\134\n"
        "7f0000002000-7f0000003000 ---p 00000000 00:00 0 \n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
    struct tl_maps maps;
    assert_int_equal(tl_maps_parse(text, sizeof text - 1, &maps, NULL), 0);
    assert_int_equal(maps.count, 4);
    const struct tl_map *map = tl_maps_at(&maps, 0x400fff);
    assert_non_null(map);
    assert_int_equal(map->file_off, 0x1000);
    assert_int_equal(map->dev_major, 0xfe);
    assert_int_equal(map->dev_minor, 0x0a);
    assert_int_equal(map->inode, 123456789);
    assert_int_equal(map->prot, TL_PROT_READ | TL_PROT_EXEC);
    assert_string_equal(map->path, "/usr/bin/a b (deleted)");
    assert_string_equal(maps.map[1].path, "/tmp/new\nline\\134");
    assert_int_equal(maps.map[1].prot, TL_PROT_READ | TL_PROT_WRITE | TL_PROT_SHARED);
    assert_string_equal(maps.map[2].path, "");
    assert_null(tl_maps_at(&maps, 0x401000));
    assert_null(tl_maps_at(&maps, 0));
    assert_non_null(tl_maps_at(&maps, 0xffffffffff600000));
    tl_maps_deinit(&maps);
}

static void malformed_maps_are_errors(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "x",
        "1000-1000 r-xp 0 0:0 0\n",
        "2000-1000 r-xp 0 0:0 0\n",
        "1000-2000 r-xq 0 0:0 0\n",
        "1000-2000 rwxp 0 0:0 0x\n",
        "1000-2000 rwxp 0 0:0\n",
        "1000-11111111111111111 rwxp 0 0:0 0\n",
        "1000-2000 rwxp 0 100000000:0 0\n",
        "1000-3000 rwxp 0 0:0 0\n2000-4000 rwxp 0 0:0 0\n",
        "2000-3000 rwxp 0 0:0 0\n1000-2000 rwxp 0 0:0 0\n",
        "1000-2000 r-xp 0 0:0 0\n\n",
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(texts); i++) {
        struct tl_maps maps = {NULL, 12345};
        assert_int_equal(tl_maps_parse(texts[i], strlen(texts[i]), &maps, NULL), TL_E_FORMAT);
        assert_int_equal(maps.count, 12345);
    }
}

// Every prefix of a good text, in a buffer of just its size, so that a sanitizer sees a read past
// it.
static void every_cut_of_the_maps_is_survived(void **state)
{
    (void)state;
    static const char text[] = "00400000-00401000 r-xp 00001000 fe:0a 9   /a\\012\n1-2 ";
    for (size_t size = 0; size < sizeof text; size++) {
        char *copy = malloc(size ? size : 1);
        struct tl_maps maps;
        assert_non_null(copy);
        memcpy(copy, text, size);
        if (tl_maps_parse(copy, size, &maps, NULL) == 0)
            tl_maps_deinit(&maps);
        free(copy);
    }
}

static void status_is_taken_apart(void **state)
{
    (void)state;
    static const char text[] = "Name:\tTracerPid: 7 x\nState:\tS (sleeping)\nTgid:\t12\nPPid:\t1\n"
                               "TracerPid:\t99\nUid:\t1000\t1001\t1002\t1003\nVmLck:\t     8 kB\n"
                               "Threads:\t3\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000002\n"
                               "SigBlk:\t8000000000000000\nSeccomp:\t2\n"
                               "x86_Thread_features:\tshstk wrss \n";
    struct tl_proc_status status = {0};
    assert_int_equal(tl_proc_status_parse(text, sizeof text - 1, &status, NULL), 0);
    assert_string_equal(status.name, "TracerPid: 7 x");
    assert_int_equal(status.state, 'S');
    assert_int_equal(status.tgid, 12);
    assert_int_equal(status.parent, 1);
    assert_int_equal(status.tracer, 99);
    assert_int_equal(status.uid_real, 1000);
    assert_int_equal(status.uid_effective, 1001);
    assert_int_equal(status.threads, 3);
    assert_int_equal(status.seccomp, 2);
    assert_int_equal(status.locked_kib, 8);
    assert_true(status.memory);
    assert_int_equal(status.sig_pending, 1);
    assert_int_equal(status.sig_shared_pending, 2);
    assert_true(status.sig_blocked == UINT64_C(1) << 63);
    assert_true(status.shadow_stack);
    assert_int_equal(tl_proc_status_parse(text, 20, &status, NULL), TL_E_FORMAT);
    assert_int_equal(status.tgid, 12);
    static const char bad[] = "State:\tS\nTgid:\tx\nTracerPid:\t0\nUid:\t0\t0\t0\t0\n";
    assert_int_equal(tl_proc_status_parse(bad, sizeof bad - 1, &status, NULL), TL_E_FORMAT);
}

static void stat_line_survives_any_name(void **state)
{
    (void)state;
    static const char text[] = "12 (a) S (b)) S 1 1 1 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
    struct tl_proc_status status = {0};
    assert_int_equal(tl_proc_stat_parse(text, sizeof text - 1, &status, NULL), 0);
    assert_int_equal(status.start_time, 4711);
    assert_true(status.kernel_thread);
    assert_int_equal(tl_proc_stat_parse(text, 40, &status, NULL), TL_E_FORMAT);
    assert_int_equal(tl_proc_stat_parse("", 0, &status, NULL), TL_E_FORMAT);
}

static void own_process_is_read(void **state)
{
    (void)state;
    struct tl_proc_status status;
    struct tl_maps maps;
    struct tl_diag diag;
    assert_int_equal(tl_proc_status_read(getpid(), &status, NULL), 0);
    assert_int_equal(status.tgid, getpid());
    assert_int_equal(status.parent, getppid());
    assert_false(status.kernel_thread);
    assert_int_equal(tl_maps_read(getpid(), &maps, NULL), 0);
    const struct tl_map *map = tl_maps_at(&maps, (tl_addr)(uintptr_t)own_process_is_read);
    assert_non_null(map);
    assert_true(map->prot & TL_PROT_EXEC);
    int fd = tl_proc_open_mapped(getpid(), map, NULL);
    assert_true(fd >= 0);
    char magic[SELFMAG];
    assert_int_equal(pread(fd, magic, sizeof magic, 0), SELFMAG);
    assert_memory_equal(magic, ELFMAG, SELFMAG);
    close(fd);
    struct tl_map other = *map;
    other.inode++;
    assert_int_equal(tl_proc_open_mapped(getpid(), &other, &diag), TL_E_NOMATCH);
    tl_maps_deinit(&maps);
    assert_int_equal(tl_proc_auxv(getpid(), 6 /* AT_PAGESZ */), TL_PAGE_SIZE);
    assert_int_equal(tl_proc_status_read(0x3ffffff, &status, &diag), TL_E_GONE);
    assert_int_equal(tl_maps_read(0x3ffffff, &maps, &diag), TL_E_GONE);
    assert_int_equal(tl_proc_status_read(2, &status, NULL) == 0 && !status.kernel_thread &&
                         strcmp(status.name, "kthreadd") == 0,
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_taken_apart),
        cmocka_unit_test(malformed_maps_are_errors),
        cmocka_unit_test(every_cut_of_the_maps_is_survived),
        cmocka_unit_test(status_is_taken_apart),
        cmocka_unit_test(stat_line_survives_any_name),
        cmocka_unit_test(own_process_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

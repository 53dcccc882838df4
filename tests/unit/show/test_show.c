// Text for people and JSON for programs: exact lines, foreign bytes made harmless, keys of the
// contract.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "show/show.h"

#define ROUNDS 50000
#define TEXT_MAX 200

struct capture {
    FILE *file;
    char *text;
    size_t size;
    struct tl_show show;
};

// Streams in memory have no descriptor; the width is then 0.
static void capture_start(struct capture *capture, bool json, bool verbose)
{
    *capture = (struct capture){0};
    capture->file = open_memstream(&capture->text, &capture->size);
    assert_non_null(capture->file);
    tl_show_init(&capture->show, capture->file, json, verbose);
}

static void capture_end(struct capture *capture, const char *expected)
{
    assert_int_equal(fclose(capture->file), 0);
    assert_false(capture->show.failed);
    if (expected)
        assert_string_equal(capture->text, expected);
    free(capture->text);
}

static const struct tl_site_report placed = {.probe = "uprobe:/bin/x:main",
                                             .file = "/bin/x",
                                             .function = "main",
                                             .addr = 0x401000,
                                             .size = 2,
                                             .bytes = {0x31, 0xc0},
                                             .insn = "xor eax, eax",
                                             .rung = TL_RUNG_JUMP,
                                             .reason = "pun",
                                             .window = "2 bytes, pun",
                                             .hits = 12};
static const struct tl_site_report refused = {.probe = "uprobe:/bin/x:f",
                                              .file = "/bin/x",
                                              .function = "f",
                                              .addr = 0x401010,
                                              .size = 2,
                                              .bytes = {0x0f, 0x05},
                                              .insn = "syscall",
                                              .rung = TL_RUNG_REFUSED,
                                              .refusal = TL_REFUSE_SYSCALL,
                                              .reason = "no \"room\""};

static void test_numbers_have_separators(void **state)
{
    (void)state;
    const struct {
        uint64_t number;
        const char *text;
    } rows[] = {{0, "0"},
                {999, "999"},
                {1000, "1,000"},
                {123456, "123,456"},
                {1234567, "1,234,567"},
                {UINT64_MAX, "18,446,744,073,709,551,615"}};
    char buf[32];
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++)
        assert_string_equal(tl_show_number(rows[i].number, buf), rows[i].text);
}

static void test_terminals_see_no_control_byte(void **state)
{
    (void)state;
    const struct {
        const char *in, *out;
    } rows[] = {{"plain", "plain"},
                {"\033[2Jx", "\\x1b[2Jx"},
                {"a\nb", "a\\x0ab"},
                {"\x7f", "\\x7f"},
                {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
                {"\xc2\x9b[1m", "\\xc2\\x9b[1m"}, // CSI as one character
                {"\xff", "\\xff"},
                {"\xc3", "\\xc3"},
                {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, // a surrogate
                {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"}};
    char buf[64];
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        tl_show_escape(rows[i].in, buf, sizeof buf);
        assert_string_equal(buf, rows[i].out);
    }
    tl_show_escape("ab\033", buf, 5); // never half an escape
    assert_string_equal(buf, "ab");
}

static void test_random_bytes_become_valid(void **state)
{
    (void)state;
    const char *given = getenv("TL_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("seed %u (TL_SEED takes it back)\n", seed);
    srandom(seed);
    for (int i = 0; i < ROUNDS; i++) {
        char text[TEXT_MAX], out[TEXT_MAX * 4 + 1];
        size_t length = (size_t)random() % (TEXT_MAX - 1);
        // Half of them near valid UTF-8.
        for (size_t k = 0; k < length; k++)
            text[k] = (char)(i % 2 ? 0x80 + random() % 0x80 : 1 + random() % 255);
        text[length] = 0;
        size_t size = 1 + (size_t)random() % sizeof out;
        tl_show_utf8(text, out, size);
        assert_true(strlen(out) < size);
        json_t *value = json_string(out);
        if (!value)
            fail_msg("round %d: not valid UTF-8", i);
        json_decref(value);
        tl_show_escape(text, out, size);
        assert_true(strlen(out) < size);
        for (size_t k = 0; out[k]; k++)
            assert_true((unsigned char)out[k] >= 0x20 && out[k] != 0x7f);
    }
}

static void test_json_lines_hold_the_contract(void **state)
{
    (void)state;
    struct capture capture;
    capture_start(&capture, true, false);
    tl_show_probe(&capture.show, &placed);
    tl_show_site(&capture.show, &refused);
    const struct tl_show_count counts[] = {
        {.probe = "p", .function = "f", .rung = TL_RUNG_KERNEL, .hits = 7, .before = 3},
        {.probe = "r", .function = "g", .rung = TL_RUNG_REFUSED},
    };
    tl_show_counts(&capture.show, counts, 2, 2, false);
    tl_show_counts(&capture.show, counts, 1, 0.5, true);
    const struct tl_show_function function = {.addr = 0x10,
                                              .size = 3,
                                              .file = "x",
                                              .names = {"_Z1fv", "f\xff"},
                                              .demangled = {"f()", NULL},
                                              .name_count = 2};
    tl_show_function(&capture.show, &function);
    const struct tl_show_bench bench = {.name = "nop",
                                        .kind = "entry",
                                        .action = "count",
                                        .method = "jump",
                                        .reason = "",
                                        .baseline_ns = 1.5,
                                        .ns = 2.25};
    tl_show_bench(&capture.show, &bench);
    const struct tl_session_totals totals = {.sites = 3,
                                             .refused = 1,
                                             .by_rung = {1, 2},
                                             .attach_ms = 1.5,
                                             .stopped_ms = 0.25,
                                             .detach_ms = 2,
                                             .hits = 12};
    size_t reasons[TL_REFUSAL_COUNT] = {[TL_REFUSE_SYSCALL] = 1};
    tl_show_summary(&capture.show, &totals, reasons, true);
    capture_end(
        &capture,
        "{\"type\":\"probe\",\"probe\":\"uprobe:/bin/x:main\",\"file\":\"/bin/x\","
        "\"function\":\"main\",\"addr\":\"0x401000\",\"method\":\"jump\",\"reason\":\"pun\"}\n"
        "{\"type\":\"site\",\"file\":\"/bin/x\",\"function\":\"f\",\"addr\":\"0x401010\","
        "\"bytes\":\"0f05\",\"insn\":\"syscall\",\"method\":\"refused\","
        "\"reason\":\"no \\\"room\\\"\",\"window\":\"\",\"probe\":\"uprobe:/bin/x:f\"}\n"
        "{\"type\":\"count\",\"probe\":\"p\",\"hits\":7,\"dropped\":0,\"method\":\"kernel\"}\n"
        "{\"type\":\"count\",\"probe\":\"p\",\"hits\":7,\"dropped\":0,\"method\":\"kernel\","
        "\"interval_s\":0.5,\"new\":4}\n"
        "{\"type\":\"function\",\"addr\":\"0x10\",\"size\":3,\"file\":\"x\","
        "\"names\":[\"_Z1fv\",\"f\xef\xbf\xbd\"],\"demangled\":[\"f()\"]}\n"
        "{\"type\":\"bench\",\"case\":\"nop\",\"kind\":\"entry\",\"action\":\"count\","
        "\"method\":\"jump\",\"baseline_ns\":1.5,\"ns\":2.25,\"reason\":\"\"}\n"
        "{\"type\":\"summary\",\"sites\":3,\"by_method\":{\"jump\":2},\"refused\":1,"
        "\"attach_ms\":1.5,\"stopped_ms\":0.25,\"detach_ms\":2.0,\"hits\":12,\"dropped\":0,"
        "\"refused_reasons\":{\"a system call instruction is never displaced\":1}}\n");
}

static void test_a_measurement_that_failed_is_null(void **state)
{
    (void)state;
    struct capture capture;
    const struct tl_show_bench bench = {.name = "nop",
                                        .kind = "entry",
                                        .action = "count",
                                        .method = "kernel",
                                        .reason = "not there",
                                        .baseline_ns = 1.5,
                                        .ns = -1};
    capture_start(&capture, true, false);
    tl_show_bench(&capture.show, &bench);
    capture_end(&capture, "{\"type\":\"bench\",\"case\":\"nop\",\"kind\":\"entry\","
                          "\"action\":\"count\",\"method\":\"kernel\",\"baseline_ns\":1.5,"
                          "\"ns\":null,\"reason\":\"not there\"}\n");
}

static void test_text_lines(void **state)
{
    (void)state;
    struct capture capture;
    capture_start(&capture, false, false);
    tl_show_probe(&capture.show, &placed); // only when verbose
    tl_show_probe(&capture.show, &refused);
    tl_show_site(&capture.show, &placed);
    capture_end(&capture, "refused  0x000000401010  f  (/bin/x): no \"room\"\n"
                          "0x000000401000  main  (/bin/x)\n"
                          "    31 c0 xor eax, eax\n"
                          "    jump: pun  [2 bytes, pun]\n");
    capture_start(&capture, false, true);
    tl_show_probe(&capture.show, &placed);
    capture_end(&capture, "jump     0x000000401000  main  (/bin/x): pun\n");
}

static void test_counts_are_sorted_by_hits(void **state)
{
    (void)state;
    struct capture capture;
    const struct tl_show_count counts[] = {
        {.function = "few", .rung = TL_RUNG_JUMP, .hits = 10},
        {.function = "none", .rung = TL_RUNG_REFUSED, .hits = 99},
        {.function = "many", .rung = TL_RUNG_KERNEL, .hits = 1234567, .dropped = 5},
        {.function = "few too", .rung = TL_RUNG_JUMP, .hits = 10},
    };
    capture_start(&capture, false, false);
    tl_show_counts(&capture.show, counts, TL_ARRAY_COUNT(counts), 10, false);
    capture_end(&capture, "             hits         hits/s  method   function\n"
                          "        1,234,567        123,457  kernel   many  (5 dropped)\n"
                          "               10              1  jump     few\n"
                          "               10              1  jump     few too\n");
}

static void test_many_zeros_share_a_line(void **state)
{
    (void)state;
    struct capture capture;
    struct tl_show_count counts[60];
    for (size_t i = 0; i < TL_ARRAY_COUNT(counts); i++)
        counts[i] = (struct tl_show_count){.function = "f", .rung = TL_RUNG_JUMP, .hits = i == 7};
    capture_start(&capture, false, false);
    tl_show_counts(&capture.show, counts, TL_ARRAY_COUNT(counts), 1, false);
    capture_end(&capture, "             hits         hits/s  method   function\n"
                          "                1              1  jump     f\n"
                          "               59  probes were not hit (-v names them)\n");
}

static void test_the_summary_names_each_reason(void **state)
{
    (void)state;
    struct capture capture;
    const struct tl_session_totals totals = {.sites = 1500,
                                             .refused = 2,
                                             .by_rung = {2, 1490, 8},
                                             .attach_ms = 1.5,
                                             .stopped_ms = 0.25,
                                             .detach_ms = 2,
                                             .hits = 1000};
    size_t reasons[TL_REFUSAL_COUNT] = {[TL_REFUSE_SYSCALL] = 1, [TL_REFUSE_VDSO] = 1};
    capture_start(&capture, false, false);
    tl_show_summary(&capture.show, &totals, reasons, true);
    capture_end(&capture, "refused 1: a system call instruction is never displaced\n"
                          "refused 1: the vDSO and vsyscall pages belong to the kernel\n"
                          "1,500 sites: 1,490 jump, 8 kernel, 2 refused; 1,000 hits, 0 dropped; "
                          "attach 1.50 ms, stopped 0.250 ms, detach 2.00 ms\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_have_separators),
        cmocka_unit_test(test_terminals_see_no_control_byte),
        cmocka_unit_test(test_random_bytes_become_valid),
        cmocka_unit_test(test_json_lines_hold_the_contract),
        cmocka_unit_test(test_a_measurement_that_failed_is_null),
        cmocka_unit_test(test_text_lines),
        cmocka_unit_test(test_counts_are_sorted_by_hits),
        cmocka_unit_test(test_many_zeros_share_a_line),
        cmocka_unit_test(test_the_summary_names_each_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

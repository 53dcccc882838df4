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

#include "base/types.h"
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
    const struct tl_function function = {.addr = 0x10,
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
    tl_show_bench_head(&capture.show, "title", true);
    tl_show_bench_row(&capture.show, &bench, &bench);
    tl_show_figure_head(&capture.show);
    tl_show_figure(&capture.show, "a \"ratio\"", 15.5, "times cheaper");
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
        "{\"type\":\"figure\",\"name\":\"a \\\"ratio\\\"\",\"value\":15.5,\"unit\":\"times cheaper\"}\n"
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

static void test_a_ratio_is_shown_only_of_two_costs(void **state)
{
    (void)state;
    static const struct {
        double jump, kernel;
        const char *reason; // the jump's
        const char *line;
    } rows[] = {
        {2, 500, "", "case                           1.50        2.00        500.00      250 x\n"},
        {0.01, 500, "", "case                           1.50        0.01        500.00   > 5000 x\n"},
        {-0.5, 500, "", "case                           1.50       -0.50        500.00   > 5000 x\n"},
        {-30, 500, "", "case                           1.50      -30.00        500.00          -\n"},
        {2, -3, "", "case                           1.50        2.00         -3.00          -\n"},
        {-1, 500, "no", "case                           1.50           -        500.00          -  no\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct capture capture;
        struct tl_show_bench jump = {
            .name = "case", .reason = rows[i].reason, .baseline_ns = 1.5, .ns = rows[i].jump};
        struct tl_show_bench kernel = jump;
        kernel.reason = "";
        kernel.ns = rows[i].kernel;
        capture_start(&capture, false, false);
        tl_show_bench_row(&capture.show, &jump, &kernel);
        capture_end(&capture, rows[i].line);
    }
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
        {.function = "few too", .rung = TL_RUNG_JUMP, .hits = 10, .is_return = true},
    };
    capture_start(&capture, false, false);
    tl_show_counts(&capture.show, counts, TL_ARRAY_COUNT(counts), 10, false);
    capture_end(&capture, "             hits         hits/s  method   function\n"
                          "        1,234,567        123,457  kernel   many  (5 dropped)\n"
                          "               10              1  jump     few\n"
                          "               10              1  jump     few too (return)\n");
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

static const struct tl_site_report returned = {.probe = "uretprobe:/bin/\"x\":ns::f",
                                               .file = "/bin/\"x\"",
                                               .function = "other, ns::f",
                                               .addr = 0x401000,
                                               .rung = TL_RUNG_JUMP,
                                               .is_return = true,
                                               .return_way = "exit",
                                               .exit_count = 3};
static const struct tl_event event_rows[] = {
    {.ts_ns = UINT64_MAX, .pid = 7, .tid = 4194304, .arg = {UINT64_MAX, 1ull << 63, 0, 1, 2, 3}},
    {.ts_ns = 5, .pid = 7, .arg = {0}},
    {.ts_ns = 1234567890123, .pid = 123456, .tid = 1, .is_return = true, .arg = {UINT64_MAX}},
};

static void events_show(struct capture *capture)
{
    struct tl_show_label entry, ret;
    assert_true(tl_show_label_init(&capture->show, &entry, &placed));
    assert_true(tl_show_label_init(&capture->show, &ret, &returned));
    tl_show_event_head(&capture->show);
    for (size_t i = 0; i < TL_ARRAY_COUNT(event_rows); i++)
        tl_show_event(&capture->show, event_rows[i].is_return ? &ret : &entry, &event_rows[i],
                      1000);
    tl_show_label_deinit(&entry);
    tl_show_label_deinit(&ret);
}

static void test_events_keep_all_64_bits(void **state)
{
    (void)state;
    struct capture capture;
    capture_start(&capture, true, false);
    events_show(&capture);
    capture_end(
        &capture,
        "{\"type\":\"event\",\"probe\":\"uprobe:/bin/x:main\",\"ts_ns\":18446744073709551615,"
        "\"pid\":7,\"tid\":4194304,\"args\":[18446744073709551615,9223372036854775808,0,1,2,3]}\n"
        "{\"type\":\"event\",\"probe\":\"uprobe:/bin/x:main\",\"ts_ns\":5,"
        "\"pid\":7,\"tid\":0,\"args\":[0,0,0,0,0,0]}\n"
        "{\"type\":\"event\",\"probe\":\"uretprobe:/bin/\\\"x\\\":ns::f\","
        "\"ts_ns\":1234567890123,\"pid\":123456,\"tid\":1,\"ret\":18446744073709551615}\n");
}

static void test_events_stand_in_columns(void **state)
{
    (void)state;
    struct capture capture;
    capture_start(&capture, false, false);
    events_show(&capture);
    capture_end(
        &capture,
        "         time s     pid     tid  probe                        arguments, or = value\n"
        "18446744073.709550615       7 4194304  main                         "
        "0xffffffffffffffff 0x8000000000000000 0x0 0x1 0x2 0x3\n"
        "    0.000000000       7       -  main                         "
        "0x0 0x0 0x0 0x0 0x0 0x0\n"
        " 1234.567889123  123456       1  ns::f                        "
        "= 0xffffffffffffffff\n");
}

static void test_what_was_dropped_is_told_by_probe(void **state)
{
    (void)state;
    struct capture capture;
    const struct tl_show_count counts[] = {
        {.function = "f", .hits = 5},
        {.function = "g\033", .hits = 12345, .dropped = 1234},
        {.function = "h", .hits = 2, .dropped = 2, .is_return = true}};
    capture_start(&capture, false, false);
    tl_show_dropped(&capture.show, counts, TL_ARRAY_COUNT(counts));
    capture_end(&capture, "dropped 1,234 of 12,345 events of g\\x1b\n"
                          "dropped 2 of 2 returns of h\n");
}

static void test_the_way_of_a_return_is_told(void **state)
{
    (void)state;
    struct capture capture;
    capture_start(&capture, false, false);
    tl_show_site(&capture.show, &returned);
    capture_end(&capture, "0x000000401000  other, ns::f  (/bin/\"x\")\n"
                          "    \n"
                          "    jump: \n"
                          "    return: exit, 3 places\n");
    capture_start(&capture, true, false);
    tl_show_probe(&capture.show, &returned);
    capture_end(&capture, "{\"type\":\"probe\",\"probe\":\"uretprobe:/bin/\\\"x\\\":ns::f\","
                          "\"file\":\"/bin/\\\"x\\\"\",\"function\":\"other, ns::f\","
                          "\"addr\":\"0x401000\",\"method\":\"jump\",\"reason\":\"\","
                          "\"return_way\":\"exit\",\"exits\":3}\n");
}

// Octaves 64, 128 and 1024; 256 and 512 between them are empty.
static const struct tl_bucket bucket_rows[] = {
    {96, 97, 10}, {126, 127, 10}, {128, 131, 60}, {1024, 1055, 20}};
static const struct tl_latency latency_row = {.count = 100,
                                              .min_ns = 96.25,
                                              .mean_ns = 222.5,
                                              .p50_ns = 130,
                                              .p90_ns = 1040,
                                              .p99_ns = 999499,
                                              .p999_ns = 999500,
                                              .max_ns = 1.5e9,
                                              .bucket = bucket_rows,
                                              .bucket_count = TL_ARRAY_COUNT(bucket_rows),
                                              .unpaired = 2};

static void test_latency_has_a_histogram(void **state)
{
    (void)state;
    struct capture capture;
    const struct tl_show_count count = {.probe = "p",
                                        .function = "f",
                                        .file = "/bin/x",
                                        .return_way = "exit",
                                        .rung = TL_RUNG_JUMP,
                                        .before = 60};
    capture_start(&capture, false, false);
    tl_show_latency(&capture.show, &count, &latency_row, 2);
    capture_end(
        &capture,
        "f  (/bin/x)  jump, return: exit\n"
        "  count 100 (40 in 2.00 s)  min 96 ns  mean 222 ns  p50 130 ns  p90 1.04 us  p99 999 us"
        "  p99.9 1.00 ms  max 1.50 s\n"
        "  2 returns had no entry: it came before the probe, or was lost\n"
        "        from           to             calls    share\n"
        "       96 ns       127 ns                20  20.00 %  #############\n"
        "      128 ns       131 ns                60  60.00 %  "
        "########################################\n"
        "      256 ns       511 ns                 0   0.00 %\n"
        "      512 ns      1.02 us                 0   0.00 %\n"
        "     1.02 us      1.05 us                20  20.00 %  #############\n");
    capture_start(&capture, true, false);
    tl_show_latency(&capture.show, &count, &latency_row, 0);
    capture_end(
        &capture,
        "{\"type\":\"latency\",\"probe\":\"p\",\"count\":100,\"min_ns\":96.25,\"mean_ns\":222.5,"
        "\"p50_ns\":130.0,\"p90_ns\":1040.0,\"p99_ns\":999499.0,\"p999_ns\":999500.0,"
        "\"max_ns\":1.5e9,\"buckets\":[[96,97,10],[126,127,10],[128,131,60],"
        "[1024,1055,20]],\"unpaired\":2,\"lost\":0}\n");
}

static void test_latency_without_a_call_has_no_times(void **state)
{
    (void)state;
    struct capture capture;
    const struct tl_show_count count = {
        .probe = "p", .function = "f", .file = "/bin/x", .rung = TL_RUNG_KERNEL};
    const struct tl_latency none = {0};
    capture_start(&capture, false, false);
    tl_show_latency(&capture.show, &count, &none, 0);
    capture_end(&capture, "f  (/bin/x)  kernel\n"
                          "  count 0\n");
    capture_start(&capture, true, false);
    tl_show_latency(&capture.show, &count, &none, 1.5);
    capture_end(
        &capture,
        "{\"type\":\"latency\",\"probe\":\"p\",\"count\":0,\"min_ns\":null,\"mean_ns\":null,"
        "\"p50_ns\":null,\"p90_ns\":null,\"p99_ns\":null,\"p999_ns\":null,\"max_ns\":null,"
        "\"buckets\":[],\"unpaired\":0,\"lost\":0,\"interval_s\":1.5,\"new\":0}\n");
}

static void test_times_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    const struct {
        double ns;
        const char *text;
    } rows[] = {{0, "0 ns"},         {999.4, "999 ns"}, {999.5, "1.00 us"}, {1234, "1.23 us"},
                {9994, "9.99 us"},   {9996, "10.0 us"}, {99940, "99.9 us"}, {99960, "100 us"},
                {1e9 - 1, "1.00 s"}, {12e9, "12.0 s"},  {1e12, "1000 s"}};
    char buf[32];
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++)
        assert_string_equal(tl_show_ns(rows[i].ns, buf), rows[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_have_separators),
        cmocka_unit_test(test_terminals_see_no_control_byte),
        cmocka_unit_test(test_random_bytes_become_valid),
        cmocka_unit_test(test_json_lines_hold_the_contract),
        cmocka_unit_test(test_a_measurement_that_failed_is_null),
        cmocka_unit_test(test_a_ratio_is_shown_only_of_two_costs),
        cmocka_unit_test(test_text_lines),
        cmocka_unit_test(test_counts_are_sorted_by_hits),
        cmocka_unit_test(test_many_zeros_share_a_line),
        cmocka_unit_test(test_the_summary_names_each_reason),
        cmocka_unit_test(test_events_keep_all_64_bits),
        cmocka_unit_test(test_events_stand_in_columns),
        cmocka_unit_test(test_what_was_dropped_is_told_by_probe),
        cmocka_unit_test(test_the_way_of_a_return_is_told),
        cmocka_unit_test(test_latency_has_a_histogram),
        cmocka_unit_test(test_latency_without_a_call_has_no_times),
        cmocka_unit_test(test_times_have_three_digits_and_a_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

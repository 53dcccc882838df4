// How long does a function of a running process take? Times every call for two seconds and prints
// the 99th percentile.
//
//     cc latency_of.c -o latency_of $(pkg-config --cflags --libs trapless)
//     ./latency_of PID FUNCTION [SECONDS]
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <trapless/trapless.h>

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// Looks after the target until time is up. 0, 1 when the target has ended, or an error.
static int watch(struct tl_session *session, double seconds, struct tl_diag *diag)
{
    double end = now_s() + seconds;
    for (;;) {
        int result = tl_session_poll(session, diag);
        double left_ms = (end - now_s()) * 1e3;
        if (result || left_ms <= 0)
            return result;
        int wait_ms = tl_session_poll_ms(session);
        struct pollfd exited = {.fd = tl_session_exit_fd(session), .events = POLLIN};
        poll(&exited, 1, left_ms < wait_ms ? (int)left_ms + 1 : wait_ms);
    }
}

static int print(struct tl_session *session, struct tl_diag *diag)
{
    for (size_t i = 0; i < tl_session_site_count(session); i++) {
        struct tl_latency latency;
        int error = tl_session_latency(session, i, &latency, diag);
        if (error)
            return error;
        printf("%s: ", tl_session_site(session, i)->function);
        if (latency.count)
            printf("%llu calls, p50 %.0f ns, p99 %.0f ns, longest %.0f ns\n",
                   (unsigned long long)latency.count, latency.p50_ns, latency.p99_ns,
                   latency.max_ns);
        else
            printf("no call\n");
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s PID FUNCTION [SECONDS]\n", argv[0]);
        return 2;
    }
    struct tl_session_options options = {
        .size = sizeof options, .pid = (pid_t)atol(argv[1]), .mode = TL_MODE_LATENCY};
    struct tl_session *session = NULL;
    struct tl_diag diag = {{0}};
    int error = tl_session_create(&options, &session, &diag);
    if (!error) {
        int matched = tl_session_add(session, argv[2], &diag);
        error = matched < 0 ? matched : 0;
    }
    if (!error)
        error = tl_session_attach(session, &diag);
    if (!error) {
        int result = watch(session, argc > 3 ? atof(argv[3]) : 2, &diag);
        error = result < 0 ? result : tl_session_detach(session, &diag);
        if (result == 1)
            error = 0; // the target has ended: what was recorded is still there
    }
    if (!error)
        error = print(session, &diag);
    if (error)
        fprintf(stderr, "%s: %s\n", argv[0], diag.text);
    tl_session_destroy(session);
    return error ? 1 : 0;
}

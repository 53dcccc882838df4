// The thread that holds a target: started by the first call of a hold, ended with it.
//
// Calls are handed over one at a time and waited for, so the two threads never run the target's
// state at once. Invariant: when the thread ends, the kernel has let go of every task it had
// seized.
#include "attach/held.h"

#include <signal.h>
#include <string.h>

static void *worker_main(void *opaque)
{
    struct tl_target *target = opaque;
    struct tl_worker *worker = &target->worker;
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        while (!worker->run && !worker->quit)
            pthread_cond_wait(&worker->change, &worker->lock);
        if (!worker->run)
            break;
        pthread_mutex_unlock(&worker->lock);
        int result = worker->run(worker->opaque);
        pthread_mutex_lock(&worker->lock);
        worker->result = result;
        worker->run = NULL;
        worker->done = true;
        pthread_cond_broadcast(&worker->change);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static int worker_start(struct tl_target *target, struct tl_diag *diag)
{
    struct tl_worker *worker = &target->worker;
    sigset_t all, old;
    worker->quit = worker->quit_wanted = worker->done = false;
    worker->run = NULL;
    sigfillset(&all); // signals are for the program's own threads
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&worker->thread, NULL, worker_main, target);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return tl_diag_set(diag, TL_E_SYSTEM, "pid %d: no thread to hold it: %s", target->pid,
                           strerror(error));
    worker->running = true;
    return 0;
}

bool tl_worker_here(const struct tl_target *target)
{
    return target->worker.running && pthread_equal(pthread_self(), target->worker.thread);
}

static void worker_join(struct tl_target *target)
{
    struct tl_worker *worker = &target->worker;
    pthread_mutex_lock(&worker->lock);
    worker->quit = true;
    pthread_cond_broadcast(&worker->change);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    worker->running = false;
}

void tl_worker_end(struct tl_target *target)
{
    if (!target->worker.running)
        return;
    if (tl_worker_here(target))
        target->worker.quit_wanted = true;
    else
        worker_join(target);
}

int tl_worker_call(struct tl_target *target, int (*run)(void *opaque), void *opaque,
                   struct tl_diag *diag)
{
    struct tl_worker *worker = &target->worker;
    if (tl_worker_here(target))
        return run(opaque);
    if (!worker->running) {
        int error = worker_start(target, diag);
        if (error)
            return error;
    }
    pthread_mutex_lock(&worker->lock);
    worker->run = run;
    worker->opaque = opaque;
    worker->done = false;
    pthread_cond_broadcast(&worker->change);
    while (!worker->done)
        pthread_cond_wait(&worker->change, &worker->lock);
    int result = worker->result;
    pthread_mutex_unlock(&worker->lock);
    // quit_wanted was set on the holding thread inside run, and the lock orders it before this
    // look.
    if (worker->quit_wanted && target->hold == TL_HOLD_NONE)
        worker_join(target);
    return result;
}

int tl_target_run(struct tl_target *target, int (*run)(void *opaque), void *opaque,
                  struct tl_diag *diag)
{
    int result = tl_worker_call(target, run, opaque, diag);
    if (!tl_worker_here(target) && target->hold == TL_HOLD_NONE)
        tl_worker_end(target);
    return result;
}

// The other program: calls leaf_work() as often as it is told, in threads and in one more child
// too.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../returns/told.h"

PROBED uint64_t leaf_work(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept ^ 9;
}

static void *half(void *opaque)
{
    for (uint64_t i = 0; i < (uint64_t)(uintptr_t)opaque; i++)
        leaf_work(i);
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    void *part = (void *)(uintptr_t)(count / 2);
    pthread_t thread;
    int status = 0;
    pthread_create(&thread, NULL, half, part);
    pthread_join(thread, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        half(part);
        _exit(3);
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

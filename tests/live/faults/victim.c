// Takes commands on its standard input, one a line, and answers each with one line:
//   install HANDLER FLAGS   handles all four signals; FLAGS of "sandcm": siginfo, alternate stack,
//                           nodefer, divisions only, compiled code, made at run time
//   call FORM WHAT          calls a form; the handler does WHAT: skip, fix, jump, next (fault again)
//   fork FORM WHAT          the same in a child
//   direct                  calls a handler as a function, with all sorts of arguments
//   raise                   sends a signal to itself while it stands nowhere special
// The answer tells what handler and caller saw, so a probed run's equals a bare run's.
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "forms.h"

static long answer(void)
{
    return 42;
}

enum what { SKIP, FIX, JUMP, NEST };

static struct {
    const struct form *form;
    enum what what;
    int faults, direct;
    long sp;
    char seen[400];
    sigjmp_buf back;
} now;

static unsigned char *page;  // two pages that can't be read yet
static unsigned char *nopage; // mapped, but behind the end of its file
static long call_form(const struct form *form);

void handle(int sig, siginfo_t *info, void *opaque);

static const char *fault_of(const struct form *form)
{
    return (const char *)(uintptr_t)form->entry + form->at[0];
}

// What a handler sees, told relative to the form's labels and to the caller's stack.
static void seen_add(int sig, const siginfo_t *info, const ucontext_t *context)
{
    const char *pc = (const char *)(uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    long addr = 0;
    if (sig == SIGSEGV || sig == SIGBUS)
        addr = (char *)info->si_addr - (char *)(sig == SIGBUS ? nopage : page);
    else
        addr = (char *)info->si_addr - fault_of(now.form);
    size_t used = strlen(now.seen);
    snprintf(now.seen + used, sizeof now.seen - used, " sig %d pc %+ld sp %+ld code %d addr %+ld",
             sig, (long)(pc - fault_of(now.form)),
             (long)context->uc_mcontext.gregs[REG_RSP] - now.sp, info->si_code, addr);
}

void handle(int sig, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    if (now.direct) {
        now.direct++;
        return;
    }
    if (!now.form || ++now.faults > 3)
        _exit(9);
    seen_add(sig, info, context);
    switch (now.what) {
    case SKIP:
        context->uc_mcontext.gregs[REG_RIP] += now.form->at[1] - now.form->at[0];
        break;
    case FIX:
        mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE);
        context->uc_mcontext.gregs[REG_RCX] = 1;
        break;
    case NEST: // a fault inside the handler, of another kind
        now.what = SKIP;
        {
            const struct form *outer = now.form;
            now.form = form_find(sig == SIGFPE ? "pun_load" : "pun_divide");
            (void)call_form(now.form);
            now.form = outer;
        }
        context->uc_mcontext.gregs[REG_RIP] += now.form->at[1] - now.form->at[0];
        break;
    case JUMP:
        siglongjmp(now.back, 1);
    }
}

static long call_form(const struct form *form)
{
    long result = 7;
    const unsigned char *at = form->bus ? nopage : page;
    if (form->call)
        at -= 0x12345;
    else if (form->far)
        at -= 0x1000;
    // The stack pointer at the form's entry is 8 below what it is here.
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
                     "mov %%rsp, %1\n\t"
                     "xor %%edx, %%edx\n\t"
                     "call *%3\n\t"
                     "lea 128(%%rsp), %%rsp"
                     : "+a"(result), "=m"(now.sp)
                     : "D"(at), "r"(form->entry), "c"(0L)
                     : "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "memory", "cc");
    return result;
}

static void call(const struct form *form, enum what what)
{
    long (*target)(void) = answer;
    volatile long result = -1;
    volatile int jumped = 0;
    mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE);
    memcpy(page, &target, sizeof target);
    mprotect(page, 2 * PAGE, PROT_NONE);
    now.form = form;
    now.what = what;
    now.faults = 0;
    now.seen[0] = '\0';
    if (sigsetjmp(now.back, 1) == 0)
        result = call_form(form);
    else
        jumped = 1;
    now.form = NULL;
    // An address read from the page is the same in every run of one program.
    printf("%s: faults %d%s result %ld jumped %d\n", form->name, now.faults, now.seen, result,
           jumped);
}

static void fork_call(const struct form *form, enum what what)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        call(form, what);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        printf("child: status %#x\n", (unsigned)status);
}

// All four signal numbers, with arguments that are nothing, garbage, or nearly what a frame looks like.
static void direct(void)
{
    void (*volatile handler[])(int, siginfo_t *, void *) = {handler_plain, handler_other,
                                                            handler_late};
    static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGUSR1, 0, -1};
    char local[1024];
    now.direct = 1;
    for (size_t h = 0; h < sizeof handler / sizeof *handler; h++) {
        for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
            handler[h](sigs[i], NULL, NULL);
            handler[h](sigs[i], (siginfo_t *)16, (void *)-8L);
            handler[h](sigs[i], (siginfo_t *)(void *)page, page + 8);
            for (long off = -64; off < 64; off += 8)
                handler[h](sigs[i], (siginfo_t *)(void *)(local + off + 304), local + off);
            // Just what the kernel would pass, at the top of a stack that ends right there.
            direct_at_end(handler[h], sigs[i], page - 8);
        }
    }
    printf("direct: %d calls\n", now.direct - 1);
    now.direct = 0;
}

// A handler made at run time, in memory of no file: movabs $handle, %rax; jmp *%rax.
static void *handler_made(void)
{
    unsigned char code[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void (*to)(int, siginfo_t *, void *) = handle;
    unsigned char *at =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code + 2, &to, sizeof to);
    memcpy(at, code, sizeof code);
    mprotect(at, PAGE, PROT_READ | PROT_EXEC);
    return at;
}

static void install(const char *name, const char *flags)
{
    static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_flags = strchr(flags, 's') ? SA_SIGINFO : 0};
    action.sa_flags |= strchr(flags, 'a') ? SA_ONSTACK : 0;
    action.sa_flags |= strchr(flags, 'n') ? SA_NODEFER : 0;
    action.sa_sigaction = strcmp(name, "plain") == 0   ? handler_plain
                          : strcmp(name, "other") == 0 ? handler_other
                                                       : handler_late;
    if (strchr(flags, 'c')) // compiled code, not a form
        action.sa_sigaction = handle;
    if (strchr(flags, 'm')) // made at run time
        action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler_made();
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
        if (!strchr(flags, 'd') || sigs[i] == SIGFPE)
            sigaction(sigs[i], &action, NULL);
    }
    printf("installed %s %s\n", name, flags);
}

static void pages_make(void)
{
    char *low = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page = (unsigned char *)low + PAGE; // a page that can be used lies before it
    mprotect(page, 2 * PAGE, PROT_NONE);
    FILE *file = tmpfile();
    nopage = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    if (low == MAP_FAILED || nopage == MAP_FAILED)
        exit(3);
}

int main(void)
{
    char line[128];
    static const char *const whats[] = {"skip", "fix", "jump", "nest"};
    pages_make();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char verb[32] = "", a[32] = "", b[32] = "";
        enum what what = SKIP;
        (void)sscanf(line, "%31s %31s %31s", verb, a, b);
        for (size_t i = 0; i < sizeof whats / sizeof *whats; i++)
            what = strcmp(b, whats[i]) == 0 ? (enum what)i : what;
        if (strcmp(verb, "install") == 0)
            install(a, b);
        else if (strcmp(verb, "direct") == 0)
            direct();
        else if (strcmp(verb, "call") == 0 && form_find(a))
            call(form_find(a), what);
        else if (strcmp(verb, "fork") == 0 && form_find(a))
            fork_call(form_find(a), what);
        else
            printf("what?\n");
        fflush(stdout);
    }
    return 0;
}

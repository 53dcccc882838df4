// Takes commands on its standard input, one a line, and answers each with one line:
//   install HANDLER FLAGS   handles all four signals; FLAGS of "sandcm": siginfo, alternate stack,
//                           nodefer, the other signal only, compiled code, made at run time
//   call FORM WHAT          calls a form; the handler does WHAT: skip, fix, jump, next (fault
//   again) fork FORM WHAT          the same in a child direct                  calls a handler as a
//   function, with all sorts of arguments raise                   sends a signal to itself while it
//   stands nowhere special
// The answer tells what handler and caller saw, so a probed run's equals a bare run's.
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context.h"
#include "forms.h"

static long answer(void)
{
    return 42;
}

enum what { SKIP, FIX, JUMP, NEST };

static struct {
    const struct form *form;
    enum what what;
    int faults, direct, informed;
    long sp;
    char seen[400];
    sigjmp_buf back;
} now;

static size_t page_size;
static unsigned char *page;   // two pages that can't be read yet
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
    const char *pc = (const char *)context_pc(context);
    long addr = 0;
    int code = 0;
    if (INFO_ALWAYS || now.informed)
        code = info->si_code;
    if (code == 0)
        addr = 0;
    else if (sig == SIGSEGV || sig == SIGBUS)
        addr = (char *)info->si_addr - (char *)(sig == SIGBUS ? nopage : page);
    else
        addr = (char *)info->si_addr - fault_of(now.form);
    size_t used = strlen(now.seen);
    snprintf(now.seen + used, sizeof now.seen - used, " sig %d pc %+ld sp %+ld code %d addr %+ld",
             sig, (long)(pc - fault_of(now.form)), (long)context_sp(context) - now.sp, code, addr);
}

// What the form reads can be read, or can't.
static void pages_open(const struct form *form, int open)
{
    mprotect(page, 2 * page_size, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    if (form->own)
        mprotect(form->own, FORMS_OWN_SIZE, open ? PROT_READ | PROT_EXEC : PROT_NONE);
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
        context_pc_add(context, now.form->at[1] - now.form->at[0]);
        break;
    case FIX:
        pages_open(now.form, 1);
        context_fix(context);
        break;
    case NEST: // a fault inside the handler, of another kind
        now.what = SKIP;
        {
            const struct form *outer = now.form;
            now.form = form_find(sig == OTHER_SIGNAL ? FORM_LOAD : FORM_OTHER);
            (void)call_form(now.form);
            now.form = outer;
        }
        context_pc_add(context, now.form->at[1] - now.form->at[0]);
        break;
    case JUMP:
        siglongjmp(now.back, 1);
    }
}

static long call_form(const struct form *form)
{
    return form_call(form->entry, (form->bus ? nopage : page) - form->behind, &now.sp);
}

static void call(const struct form *form, enum what what)
{
    long (*target)(void) = answer;
    volatile long result = -1;
    volatile int jumped = 0;
    pages_open(form, 1);
    memcpy(page, &target, sizeof target);
    pages_open(form, 0);
    now.form = form;
    now.what = what;
    now.faults = 0;
    now.seen[0] = '\0';
    if (sigsetjmp(now.back, 1) == 0)
        result = call_form(form);
    else
        jumped = 1;
    pages_open(form, 0);
    if (form->own)
        mprotect(form->own, FORMS_OWN_SIZE, PROT_READ | PROT_EXEC);
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

// All four signal numbers, with arguments that are nothing, garbage, or nearly what a frame looks
// like.
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
            direct_at_end(handler[h], sigs[i], page);
        }
    }
    printf("direct: %d calls\n", now.direct - 1);
    now.direct = 0;
}

// A handler made at run time, in memory of no file.
static void *handler_made(void)
{
    void (*to)(int, siginfo_t *, void *) = handle;
    unsigned char *at =
        mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t size = jump_make(at, (uintptr_t)to);
    mprotect(at, page_size, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)at, (char *)at + size);
    return at;
}

static void install(const char *name, const char *flags)
{
    static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_flags = strchr(flags, 's') ? SA_SIGINFO : 0};
    now.informed = action.sa_flags != 0;
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
        if (!strchr(flags, 'd') || sigs[i] == OTHER_SIGNAL)
            sigaction(sigs[i], &action, NULL);
    }
    printf("installed %s %s\n", name, flags);
}

static void pages_make(void)
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    char *low =
        mmap(NULL, 4 * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page = (unsigned char *)low + page_size; // a page that can be used lies before it
    mprotect(page, 2 * page_size, PROT_NONE);
    FILE *file = tmpfile();
    nopage = mmap(NULL, page_size, PROT_READ, MAP_SHARED, fileno(file), 0);
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

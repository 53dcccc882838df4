// Forms of x86-64: how each is called, which way its probe is to take, and what handlers do about
// it.

#define FORM_LOAD "pun_load"
// Its fault is of another signal than the loads'.
#define FORM_OTHER "pun_divide"
#define OTHER_SIGNAL 8
#define FORM_NEVER "pun_later" // its probe's own instruction can't fault

#define FORMS_OWN_SIZE 0
// name, how far behind its argument it reads, text that it reads
#define FORMS(X)                                                                                   \
    X(one_load, 0x1000, NULL)                                                                      \
    X(pun_load, 0, NULL)                                                                           \
    X(pun_divide, 0, NULL)                                                                         \
    X(island_load, 0, NULL)                                                                        \
    X(window_later, 0, NULL)                                                                       \
    X(pun_later, 0, NULL)                                                                          \
    X(window_first, 0, NULL)                                                                       \
    X(one_unknown, 0, NULL)                                                                        \
    X(one_call, 0x12345, NULL)
// The same with a page behind the end of a file.
#define FORMS_BUS(X)                                                                               \
    X(bus_load, one_load, 0x1000)                                                                  \
    X(bus_pun, pun_load, 0)                                                                        \
    X(bus_island, island_load, 0)

// A probe, the way it is to take, and that where no handler can be guarded. "": refused for its
// faults; "-": refused, maybe for what else is in its way.
#define PROBES(X)                                                                                  \
    X("one_load", "one", "")                                                                       \
    X("pun_load", "pun", "-")                                                                      \
    X("pun_divide", "pun", "")                                                                     \
    X("island_load", "island", "-")                                                                \
    X("one_call+1", "one", "-")                                                                    \
    X("one_unknown", "one", "")                                                                    \
    X("pun_later", "pun", "pun")                                                                   \
    X("window_later", "window", "")                                                                \
    X("window_first", "window", "")

// A form, its probe, what the handler does, and hits of one call.
#define ROWS(X)                                                                                    \
    X("one_load", "one_load", "skip", 1)                                                           \
    X("one_load", "one_load", "fix", 2)                                                            \
    X("one_load", "one_load", "jump", 1)                                                           \
    X("one_load", "one_load", "nest", 1)                                                           \
    X("pun_load", "pun_load", "skip", 1)                                                           \
    X("pun_load", "pun_load", "fix", 2)                                                            \
    X("pun_load", "pun_load", "jump", 1)                                                           \
    X("pun_divide", "pun_divide", "skip", 1)                                                       \
    X("pun_divide", "pun_divide", "fix", 2)                                                        \
    X("pun_divide", "pun_divide", "nest", 1)                                                       \
    X("island_load", "island_load", "skip", 1)                                                     \
    X("island_load", "island_load", "fix", 2)                                                      \
    X("island_load", "island_load", "jump", 1)                                                     \
    X("bus_load", "one_load", "skip", 1)                                                           \
    X("bus_pun", "pun_load", "jump", 1)                                                            \
    X("bus_island", "island_load", "skip", 1)                                                      \
    X("one_call", "one_call+1", "skip", 1)                                                         \
    X("one_call", "one_call+1", "fix", 2)                                                          \
    X("one_unknown", "one_unknown", "skip", 1)                                                     \
    X("one_unknown", "one_unknown", "jump", 1)                                                     \
    X("pun_later", "pun_later", "skip", 1)                                                         \
    X("pun_later", "pun_later", "fix", 1)                                                          \
    X("window_later", "window_later", "skip", 1)                                                   \
    X("window_later", "window_later", "fix", 1) /* goes on in the copy */                          \
    X("window_later", "window_later", "jump", 1)                                                   \
    X("window_first", "window_first", "skip", 1)                                                   \
    X("window_first", "window_first", "fix", 2)

// Probes that are there before any handler; the last one is closed where it became a window.
#define LATE(X) X("one_load") X("pun_load") X("pun_divide") X("window_later")
#define LATE_WINDOW "window_later"
#define COMPILED_WINDOW NULL // the ways differ: puns, for windows

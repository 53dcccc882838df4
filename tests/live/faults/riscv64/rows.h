// Forms of riscv64: how each is called, which way its probe is to take, and what handlers do about
// it.

#define FORM_LOAD "island_load"
// Its fault is of another signal than the loads'.
#define FORM_OTHER "one_unknown"
#define OTHER_SIGNAL 4
#define FORM_NEVER "later_load" // its probe's own instruction can't fault

#define FORMS_OWN_SIZE 0x10000 // the largest page there is
extern unsigned char literal_page[FORMS_OWN_SIZE];
// name, how far behind its argument it reads, text that it reads
#define FORMS(X)                                                                                   \
    X(one_load, 1024, NULL)                                                                        \
    X(one_store, 0, NULL)                                                                          \
    X(float_load, 8, NULL)                                                                         \
    X(atomic_add, 0, NULL)                                                                         \
    X(exclusive_load, 0, NULL)                                                                     \
    X(island_load, 8, NULL)                                                                        \
    X(window_first, 0, NULL)                                                                       \
    X(window_later, 4, NULL)                                                                       \
    X(later_load, 0, NULL)                                                                         \
    X(literal_load, 0, literal_page)                                                               \
    X(tail_branch, 0, NULL)                                                                        \
    X(bad_call, 0, NULL)                                                                           \
    X(bad_return, 0, NULL)                                                                         \
    X(one_unknown, 0, NULL)
// The same with a page behind the end of a file.
#define FORMS_BUS(X)                                                                               \
    X(bus_load, one_load, 1024)                                                                    \
    X(bus_island, island_load, 8)                                                                  \
    X(bus_window, window_first, 0)

// A probe, the way it is to take, and that where no handler can be guarded. "": refused for its
// faults; "-": refused.
#define PROBES(X)                                                                                  \
    X("one_load", "one", "")                                                                       \
    X("one_store", "one", "")                                                                      \
    X("float_load", "one", "")                                                                     \
    X("atomic_add", "one", "")                                                                     \
    X("exclusive_load", "-", "-")                                                                  \
    X("island_load", "island", "-")                                                                 \
    X("window_first", "window", "")                                                                \
    X("window_later", "window", "island")                                                          \
    X("later_load", "one", "one")                                                                  \
    X("literal_load+4", "one", "")                                                                 \
    X("tail_branch+4", "one", "one")                                                               \
    X("bad_call+12", "one", "one")                                                                 \
    X("bad_return+4", "one", "one")                                                                \
    X("one_unknown", "one", "")

// A form, its probe, what the handler does, and hits of one call.
#define ROWS(X)                                                                                    \
    X("one_load", "one_load", "skip", 1)                                                           \
    X("one_load", "one_load", "fix", 2)                                                            \
    X("one_load", "one_load", "jump", 1)                                                           \
    X("one_load", "one_load", "nest", 1)                                                           \
    X("one_store", "one_store", "skip", 1)                                                         \
    X("one_store", "one_store", "fix", 2)                                                          \
    X("float_load", "float_load", "skip", 1)                                                       \
    X("float_load", "float_load", "fix", 2)                                                        \
    X("atomic_add", "atomic_add", "skip", 1)                                                       \
    X("atomic_add", "atomic_add", "jump", 1)                                                       \
    X("exclusive_load", "exclusive_load", "skip", 0)                                               \
    X("exclusive_load", "exclusive_load", "fix", 0)                                                \
    X("island_load", "island_load", "skip", 1)                                                     \
    X("island_load", "island_load", "fix", 2)                                                      \
    X("island_load", "island_load", "jump", 1)                                                     \
    X("window_first", "window_first", "skip", 1)                                                   \
    X("window_first", "window_first", "fix", 2)                                                    \
    X("window_first", "window_first", "jump", 1)                                                   \
    X("window_later", "window_later", "skip", 1)                                                   \
    X("window_later", "window_later", "fix", 1) /* goes on in the copy */                          \
    X("window_later", "window_later", "jump", 1)                                                   \
    X("later_load", "later_load", "skip", 1)                                                       \
    X("later_load", "later_load", "fix", 1)                                                        \
    X("literal_load", "literal_load+4", "skip", 1)                                                 \
    X("literal_load", "literal_load+4", "fix", 2)                                                  \
    X("tail_branch", "tail_branch+4", "jump", 1)                                                   \
    X("bad_call", "bad_call+12", "jump", 1)                                                        \
    X("bad_return", "bad_return+4", "jump", 1)                                                     \
    X("bus_load", "one_load", "skip", 1)                                                           \
    X("bus_island", "island_load", "jump", 1)                                                      \
    X("bus_window", "window_first", "skip", 1)                                                     \
    X("one_unknown", "one_unknown", "skip", 1)                                                     \
    X("one_unknown", "one_unknown", "jump", 1)                                                     \
    X("one_unknown", "one_unknown", "nest", 1)

// Probes that are there before any handler; the last one is closed where it became a window.
#define LATE(X) X("one_load") X("island_load") X("one_unknown") X("window_later")
#define LATE_WINDOW "window_later"
// Under a compiled handler, whose returns have no room for guards: nothing else is displaced.
#define COMPILED_WINDOW "island"

// Forms of arm64: how each is called, which way its probe is to take, and what handlers do about
// it.

#define FORM_LOAD "pair_load"
// Its fault is of another signal than the loads'.
#define FORM_OTHER "one_unknown"
#define OTHER_SIGNAL 4
#define FORM_NEVER "later_load" // its probe's own instruction can't fault

#define FORMS_OWN_SIZE 0x10000 // the largest page there is
extern unsigned char literal_page[FORMS_OWN_SIZE];
// name, how far behind its argument it reads, text that it reads
#define FORMS(X)                                                                                   \
    X(one_load, 0x1000, NULL)                                                                      \
    X(one_store, 0, NULL)                                                                          \
    X(pair_load, 16, NULL)                                                                         \
    X(post_load, 0, NULL)                                                                          \
    X(pre_store, -16, NULL)                                                                        \
    X(vector_load, 0, NULL)                                                                        \
    X(scalable_load, 0, NULL)                                                                      \
    X(atomic_add, 0, NULL)                                                                         \
    X(exclusive_load, 0, NULL)                                                                     \
    X(later_load, 0, NULL)                                                                         \
    X(literal_load, 0, literal_page)                                                               \
    X(literal_vector, 0, literal_page)                                                             \
    X(tail_branch, 0, NULL)                                                                        \
    X(bad_call, 0, NULL)                                                                           \
    X(bad_return, 0, NULL)                                                                         \
    X(bad_stack, 0, NULL)                                                                          \
    X(one_unknown, 0, NULL)
// The same with a page behind the end of a file.
#define FORMS_BUS(X)                                                                               \
    X(bus_load, one_load, 0x1000)                                                                  \
    X(bus_pair, pair_load, 16)

// A probe, the way it is to take, and that where no handler can be guarded. "": refused for its
// faults.
#define PROBES(X)                                                                                  \
    X("one_load", "one", "")                                                                       \
    X("one_store", "one", "")                                                                      \
    X("pair_load", "one", "")                                                                      \
    X("post_load+8", "one", "")                                                                    \
    X("pre_store+8", "one", "")                                                                    \
    X("vector_load", "one", "")                                                                    \
    X("scalable_load+8", "one", "")                                                                \
    X("atomic_add", "one", "")                                                                     \
    X("exclusive_load", "-", "-")                                                                  \
    X("later_load", "one", "one")                                                                  \
    X("literal_load", "one", "")                                                                   \
    X("literal_vector", "one", "")                                                                 \
    X("tail_branch+8", "one", "one")                                                               \
    X("bad_call+12", "one", "one")                                                                 \
    X("bad_return+8", "one", "one")                                                                \
    X("bad_stack+12", "one", "")                                                                   \
    X("one_unknown", "one", "")

// A form, its probe, what the handler does, and hits of one call. No literal is skipped: the copy
// of its load puts the address into the register first, and a fault leaves it there (README says
// so).
#define ROWS(X)                                                                                    \
    X("one_load", "one_load", "skip", 1)                                                           \
    X("one_load", "one_load", "fix", 2)                                                            \
    X("one_load", "one_load", "jump", 1)                                                           \
    X("one_load", "one_load", "nest", 1)                                                           \
    X("one_store", "one_store", "skip", 1)                                                         \
    X("one_store", "one_store", "fix", 2)                                                          \
    X("pair_load", "pair_load", "skip", 1)                                                         \
    X("pair_load", "pair_load", "fix", 2)                                                          \
    X("pair_load", "pair_load", "jump", 1)                                                         \
    X("post_load", "post_load+8", "skip", 1)                                                       \
    X("post_load", "post_load+8", "fix", 2)                                                        \
    X("pre_store", "pre_store+8", "skip", 1)                                                       \
    X("pre_store", "pre_store+8", "fix", 2)                                                        \
    X("vector_load", "vector_load", "skip", 1)                                                     \
    X("vector_load", "vector_load", "fix", 2)                                                      \
    X("scalable_load", "scalable_load+8", "skip", 1)                                               \
    X("scalable_load", "scalable_load+8", "jump", 1)                                               \
    X("atomic_add", "atomic_add", "skip", 1)                                                       \
    X("atomic_add", "atomic_add", "jump", 1)                                                       \
    X("exclusive_load", "exclusive_load", "skip", 0)                                               \
    X("exclusive_load", "exclusive_load", "fix", 0)                                                \
    X("later_load", "later_load", "skip", 1)                                                       \
    X("later_load", "later_load", "fix", 1)                                                        \
    X("literal_load", "literal_load", "fix", 2)                                                    \
    X("literal_vector", "literal_vector", "fix", 2)                                                \
    X("literal_vector", "literal_vector", "jump", 1)                                               \
    X("tail_branch", "tail_branch+8", "jump", 1)                                                   \
    X("bad_call", "bad_call+12", "jump", 1)                                                        \
    X("bad_return", "bad_return+8", "jump", 1)                                                     \
    X("bad_stack", "bad_stack+12", "skip", 1)                                                      \
    X("bad_stack", "bad_stack+12", "jump", 1)                                                      \
    X("bus_load", "one_load", "skip", 1)                                                           \
    X("bus_pair", "pair_load", "jump", 1)                                                          \
    X("one_unknown", "one_unknown", "skip", 1)                                                     \
    X("one_unknown", "one_unknown", "jump", 1)                                                     \
    X("one_unknown", "one_unknown", "nest", 1)

// Probes that are there before any handler; none can become a window.
#define LATE(X) X("one_load") X("pair_load") X("one_unknown") X("vector_load")
#define LATE_WINDOW ""
#define COMPILED_WINDOW NULL // its pages are guarded

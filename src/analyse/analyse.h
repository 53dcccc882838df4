// Stage analyse: bytes and metadata of one module -> facts. Pure over its input struct: reads no
// file, makes no system call; allocates through malloc only to hold its results (host builds).
//
// All addresses are vaddrs of the module's file. The caller adds the load bias.
#ifndef TL_ANALYSE_ANALYSE_H
#define TL_ANALYSE_ANALYSE_H

#include "analyse/insn.h"
#include "base/diag.h"

// One run of executable file-backed bytes. Borrowed; must outlive the analysis.
struct tl_text {
    tl_addr vaddr;
    const uint8_t *bytes;
    size_t size;
};

// A function as the symbol tables or the unwind table know it. Sorted by vaddr, no two equal.
struct tl_extent {
    tl_addr vaddr;
    uint64_t size; // bytes; never 0 (find guesses an end and sets guessed)
    bool guessed;  // the size is a guess (size-0 symbol)
    bool symbol;   // from a symbol; false: only from the unwind table
    bool untyped;  // it may be data: only symbols without a type and a size name it
    bool doubted;  // ... and local ones: it is code only where known code leads
    bool part;     // every symbol here is named as a moved-away part of a function (".cold")
};

// A section or segment of initialised data (read-only data, relocated data, GOT ...). Borrowed.
struct tl_data {
    tl_addr vaddr;
    const uint8_t *bytes;
    size_t size;
    bool writable;
};

// Functions that keep every register by their own convention, called with no register free.
#define TL_AVOID_NAMES                                                                             \
    "_dl_runtime_resolve*", "_dl_runtime_profile*", "_dl_tlsdesc_*", "__fentry__", "mcount",       \
        "_mcount", "__morestack*"

// Everything the analysis may look at. All arrays borrowed for the life of the analysis.
struct tl_module_facts {
    const struct tl_text *text;
    size_t text_count;
    const struct tl_extent *functions;
    size_t function_count;
    const struct tl_data *data; // jump tables are read here, pointers into text are searched here
    size_t data_count;
    const tl_addr *pointers; // vaddrs inside text known from relocations (RELATIVE, RELR, 64, IRELATIVE, symbols)
    size_t pointer_count;
    const tl_addr *landing_pads; // from .gcc_except_table, every LSDA
    size_t landing_pad_count;
    const struct tl_range *rseq; // rseq critical sections and abort handlers' signature words (start 4 bytes early)
    size_t rseq_count;
    // Code with a convention of its own, never patched. Whole functions by these names, if present:
    // TL_AVOID_NAMES (shell patterns). Sorted.
    const struct tl_range *avoid;
    size_t avoid_count;
    const struct tl_range *literals; // data inside text, as mapping symbols say: never code. Sorted, apart
    size_t literal_count;
    uint16_t elf_machine; // 0: x86-64
    // Code made by Go's compiler (end 0: none): goroutines move between threads and keep return
    // addresses of any instruction on stacks of their own; arguments are in Go's registers.
    struct tl_range go_text;
    bool position_fixed; // ET_EXEC: immediates and data words of 4 and 8 bytes may hold text addresses
};

struct tl_analysis; // opaque

int tl_analysis_create(const struct tl_module_facts *facts, struct tl_analysis **out,
                       struct tl_diag *diag);
void tl_analysis_destroy(struct tl_analysis *analysis);

#define TL_SITE_INSNS_MAX 12
#define TL_SITE_BYTES_MAX 32

// All the plan needs to know about one site.
struct tl_site_facts {
    tl_addr vaddr;
    struct tl_extent function; // the function that holds it; size 0: none known
    struct tl_insn insn[TL_SITE_INSNS_MAX]; // decoded from the site, straight on, in address order
    uint8_t insn_count;
    uint8_t insn_bytes; // sum of their sizes
    // Bytes from the site that a window may cover: no barrier lies strictly inside, code is known,
    // padding after the function's last instruction included (padding no code owns).
    // At least insn[0].size when refusal is NONE.
    uint8_t window_max;
    uint8_t window_end_refusal; // enum tl_refusal: what stopped the window from growing
    bool window_pending;        // lazy: window_max is only the first instruction until tl_analysis_window()
    uint8_t refusal;            // enum tl_refusal: never patched, at all (no jump), or NONE
    bool go;       // Go code: see go_text
    bool no_stack; // Go code that may run with no stack left: no detour that uses any, no own block
    bool entry;                 // the site is the function's entry (behind endbr64 if there is one);
                                // false for a part that only the unwind table knows and nobody calls
    bool looped;                // entry only: a branch of the function leads to this instruction
    tl_addr loopers[4];         // ... those branches (vaddr), first loopers_count of them; more than 4: looper_more
    uint8_t looper_count;
    bool looper_more;
    tl_regset dead; // registers (and TL_REGSET_FLAGS) dead just before the site, by data flow
    tl_regset dead_behind; // ... behind its first instruction, where that only goes on to the next; else 0
    uint8_t bytes[TL_SITE_BYTES_MAX]; // the file's bytes from the site on, code or not
    uint8_t byte_count;               // of them; fewer at the end of the text
};

// Facts for the instruction at vaddr. Returns 0 also when the site is refused (out->refusal). At a
// function entry that is endbr64, ask with the address behind it: see tl_analysis_entry().
int tl_analysis_site(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                     struct tl_diag *diag);

// A window needs the whole module decoded (0.3 us an instruction: a second for 15 MB of text); the rest of
// a site's facts mostly needs its function only. Lazy: tl_analysis_site() leaves windows that would need
// the module pending, for callers that may not want them (a pun will do). tl_analysis_window() completes
// such a site.
void tl_analysis_set_lazy(struct tl_analysis *analysis, bool lazy);
int tl_analysis_window(struct tl_analysis *analysis, struct tl_site_facts *site, struct tl_diag *diag);

// Where an entry probe of the function at vaddr goes: behind its endbr64, in Go code behind its stack
// check, else vaddr itself.
tl_addr tl_analysis_entry(struct tl_analysis *analysis, tl_addr vaddr);

// The address behind the stack check that the function begins with, as Go functions do. false: none.
bool tl_analysis_stack_check(struct tl_analysis *analysis, tl_addr function, tl_addr *behind);

// How a function is left.
enum tl_exit_kind {
    TL_EXIT_RET,       // a return
    TL_EXIT_TAIL,      // a direct jump to another function
    TL_EXIT_COND_TAIL, // a conditional one: the function is left only where the branch is taken
    TL_EXIT_ITAIL,     // an indirect jump to another function
};
// A return is one byte, and often has no room for a branch. The instructions that give stack and
// saved registers back before it have: nothing but them leads to the exit, they lead nowhere else,
// and they touch neither return values nor, before a jump, arguments.
#define TL_EXIT_EARLY_MAX 6
struct tl_exit_early {
    tl_addr vaddr;
    int32_t sp_off; // the stack pointer there, against what it is at the function's entry: below 0
};
struct tl_exit {
    tl_addr vaddr; // of the instruction
    uint8_t kind;  // enum tl_exit_kind
    uint8_t early_count;
    struct tl_exit_early early[TL_EXIT_EARLY_MAX]; // nearest to the exit first
};

#define TL_EXITS_MAX 4096 // more ways out of one function than anybody should ask for

// All exits of the function that is entered at vaddr, parts of it that lie elsewhere included, in
// address order. Returns 0 also when there is no answer: *refusal is NONE: all exits are known and
// the first *count of out are them; NO_EXIT: the function never returns; EXIT_UNKNOWN: some way out
// may be missing, is no plain return, leads to the end of another function too, or there are more
// than max. Needs the whole module decoded.
int tl_analysis_exits(struct tl_analysis *analysis, tl_addr function, struct tl_exit *out,
                      size_t max, size_t *count, enum tl_refusal *refusal, struct tl_diag *diag);

// The nearest instruction starts below and above vaddr in its function (for the refusal of a
// non-boundary). false: unknown code.
bool tl_analysis_boundaries(struct tl_analysis *analysis, tl_addr vaddr, tl_addr *below,
                            tl_addr *above);

// Starts of all decoded instructions of one function, in order; returns how many there are, and
// stores at most max. Used by `explain` and the all-instructions coverage figure.
size_t tl_analysis_insns(struct tl_analysis *analysis, tl_addr function, tl_addr *vaddrs, size_t max);

// Runs of padding that no code owns and no control flow reaches (int3, nop, zero fill between
// functions and at segment ends), for islands. Borrowed until destroy. Sorted.
size_t tl_analysis_padding(struct tl_analysis *analysis, const struct tl_range **out);

#endif

// Stage find: names, patterns -> addresses. Reads ELF files by pread under limits.
#ifndef TL_FIND_FIND_H
#define TL_FIND_FIND_H

#include "analyse/analyse.h"
#include "attach/proc.h"
#include "base/diag.h"

// ---- one ELF file -------------------------------------------------------------------------------

struct tl_image; // opaque; owns all it returns

struct tl_image_options {
    const char *debug_dir; // searched before /usr/lib/debug; NULL: only that
    const char *root;      // prefix for debug file look-ups (/proc/PID/root); NULL: none
};

struct tl_segment {
    tl_addr vaddr;
    uint64_t file_off, file_size, memory_size;
    uint8_t prot; // TL_PROT_*
};

// A name at an address. Several names may share one address (aliases).
struct tl_symbol {
    tl_addr vaddr;
    uint64_t size;         // bytes; guessed for size-0 symbols (next symbol or section end)
    const char *name;      // as in the table, without version
    const char *version;   // "GLIBC_2.2.5" or NULL
    const char *demangled; // NULL when the name is not mangled
    bool version_default;  // name@@version
    bool size_guessed, ifunc, weak, local;
    bool untyped;          // no table says that it is a function
};

// Takes over fd (closes it). path is for messages and debuglink.
int tl_image_open(int fd, const char *path, const struct tl_image_options *options,
                  struct tl_image **out, struct tl_diag *diag);
// The same for bytes in memory (copied); looks for no other file.
int tl_image_open_memory(const void *bytes, size_t size, const char *path, struct tl_image **out,
                         struct tl_diag *diag);
void tl_image_close(struct tl_image *image);
const char *tl_image_path(const struct tl_image *image);
const char *tl_image_debug_path(const struct tl_image *image); // separate debug file used, or NULL
const char *tl_image_soname(const struct tl_image *image);     // or NULL
uint16_t tl_image_machine(const struct tl_image *image);
size_t tl_image_segments(const struct tl_image *image,
                         const struct tl_segment **out); // PT_LOAD only
size_t tl_image_symbols(const struct tl_image *image,
                        const struct tl_symbol **out); // functions, by vaddr, then name
// Everything analyse needs: text (executable PT_LOAD file bytes), functions (union of symbols and
// FDEs), data, pointers (relocations), landing pads (LSDA), rseq sections. Computed once, owned by
// the image.
int tl_image_facts(struct tl_image *image, const struct tl_module_facts **out,
                   struct tl_diag *diag);
// What a module does with return addresses on stacks.
enum tl_unwinder {
    TL_UNWINDER_NONE,   // nothing
    TL_UNWINDER_LIBGCC, // holds libgcc's unwinder, which asks _Unwind_Find_FDE for every frame
    TL_UNWINDER_OTHER,  // unwinds in another way, or in one that can't be found
    TL_UNWINDER_WALKER, // a runtime that reads its own stacks, or copies them
};
// *find_fde: vaddr of _Unwind_Find_FDE, set for LIBGCC.
enum tl_unwinder tl_image_unwinder(struct tl_image *image, tl_addr *find_fde);
bool tl_image_go(const struct tl_image *image); // made by Go's own compiler, at least in part
// Section name that holds vaddr (".text", ".plt"), or NULL.
const char *tl_image_section_at(const struct tl_image *image, tl_addr vaddr);

// ---- the modules of a process, or one file
// --------------------------------------------------------

struct tl_module {
    struct tl_image *image;
    struct tl_analysis *analysis; // NULL until tl_module_analyse
    int64_t bias;                 // runtime = vaddr + bias; 0 for a file alone
    char *path;                   // as the target sees it
    uint64_t inode;
    uint32_t dev_major, dev_minor;
    bool main; // the program itself
};

struct tl_modules; // opaque list
int tl_modules_of_process(
    pid_t pid, const struct tl_maps *maps, const struct tl_image_options *options,
    struct tl_modules **out,
    struct tl_diag *diag); // a module that can't be read is skipped with a note
int tl_modules_of_file(const char *path, const struct tl_image_options *options,
                       struct tl_modules **out, struct tl_diag *diag);
void tl_modules_destroy(struct tl_modules *modules);
// Files that older has too, and that were not written to since, are read and analysed once for both. Before
// anything is asked of modules. Either may be destroyed first.
void tl_modules_share(struct tl_modules *modules, const struct tl_modules *older);
size_t tl_modules_count(const struct tl_modules *modules);
struct tl_module *tl_modules_get(struct tl_modules *modules, size_t index);
const char *
tl_modules_notes(const struct tl_modules *modules); // lines about what was skipped; "" none
int tl_module_analyse(struct tl_module *module, struct tl_diag *diag); // creates analysis once

// ---- probe grammar
// -------------------------------------------------------------------------------

enum tl_probe_kind { TL_PROBE_ENTRY, TL_PROBE_RETURN };

struct tl_probe_spec {
    enum tl_probe_kind kind;
    char *file;           // NULL: main program
    char *function;       // pattern with * and ?; NULL for an address
    char *version;        // NULL: default
    bool version_default; // written name@@version: only where that version is the default
    uint64_t offset;      // +OFFSET
    bool has_offset;
    tl_addr vaddr; // for 0xADDRESS
    bool has_vaddr;
};
// uprobe:FILE:FUNCTION[+OFFSET] | uprobe:FILE:0xADDRESS | FUNCTION | FILE:FUNCTION (also
// uretprobe:). C++ names may hold "::", "(", spaces; FILE is split at the first single ':'.
// TL_E_USAGE with a hint.
int tl_probe_parse(const char *text, struct tl_probe_spec *out, struct tl_diag *diag);
void tl_probe_spec_deinit(struct tl_probe_spec *spec);

// A place to probe. One per address: all names that matched are joined.
struct tl_site {
    uint32_t module;  // index in tl_modules
    tl_addr vaddr;    // where the probe goes (behind endbr64 for an entry)
    tl_addr addr;     // runtime (= vaddr for a file)
    tl_addr function; // vaddr of the function, 0 unknown
    bool entry;
    enum tl_probe_kind kind;
    enum tl_refusal refusal; // NOT_BOUNDARY, NOT_CODE ... found here
    char *probe;             // canonical: uprobe:PATH:NAME[+0xOFF]
    char *names;             // all names, comma separated (demangled where mangled)
    char *note;              // "IFUNC: the implementation in use", nearest boundaries ..., or NULL
};
struct tl_sites {
    struct tl_site *site;
    size_t count, capacity;
};

struct tl_find_context {
    struct tl_modules *modules;
    pid_t pid; // 0: a file alone
    // Reads target memory (IFUNC slots in the GOT); NULL for a file.
    int (*read)(void *opaque, tl_addr addr, void *buf, size_t size);
    void *opaque;
};
// Appends the sites that spec matches to sites (merging equal addresses). Returns how many matched
// (0: none, diag says why: nearest names) or TL_E_*.
int tl_find_sites(const struct tl_find_context *context, const struct tl_probe_spec *spec,
                  struct tl_sites *sites, struct tl_diag *diag);
// Names sites that share one probe text (several functions of one name) by address instead. Call
// once after the last tl_find_sites. 0 or TL_E_NOMEM.
int tl_sites_distinct(const struct tl_modules *modules, struct tl_sites *sites,
                      struct tl_diag *diag);
void tl_sites_deinit(struct tl_sites *sites);

#endif

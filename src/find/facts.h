// The facts of one image, and the parts they are made from. Internal to find.
#ifndef TL_FIND_FACTS_H
#define TL_FIND_FACTS_H

#include "find/image.h"

struct tl_facts;
struct tl_symbols;

struct tl_image_lazy {
    struct tl_symbols *symbols; // NULL until the first question
    struct tl_facts *facts;
};

void tl_facts_destroy(struct tl_facts *facts);

#define TL_FACTS_COUNT_MAX (16u << 20) // elements of any list below

// Growing lists. An append that fails sets failed; the caller looks once, at the end.
struct tl_vaddr_list {
    tl_addr *addr;
    size_t count, capacity;
    bool failed;
};
struct tl_range_list {
    struct tl_range *range;
    size_t count, capacity;
    bool failed;
};
void tl_vaddr_list_add(struct tl_vaddr_list *list, tl_addr addr);
void tl_range_list_add(struct tl_range_list *list, tl_addr start, tl_addr end);
void tl_vaddr_list_sort(struct tl_vaddr_list *list); // and drops equals

// A run of bytes at their addresses as the program sees them after relocation (bias 0): data is a
// private copy where relocations were applied. Sorted? No: as the segments come.
struct tl_runs {
    struct tl_data *data;
    size_t count;
};
// Bytes from vaddr to the end of its run (relocated where there is a copy), or of its segment.
struct tl_view tl_runs_view_at(const struct tl_image *image, const struct tl_runs *runs,
                               tl_addr vaddr);

// --- relocs.c ---

enum tl_elf_reloc_kind { TL_ELF_RELATIVE, TL_ELF_SYMBOL, TL_ELF_IRELATIVE };
struct tl_elf_reloc {
    enum tl_elf_reloc_kind kind;
    bool slot;            // GLOB_DAT or JUMP_SLOT: the word holds the address and nothing is added
    tl_addr vaddr;        // of the word
    uint64_t addend;      // RELATIVE, IRELATIVE: the value
    const char *symbol;   // SYMBOL: its name; "" none
    const char *version;  // SYMBOL: version asked for, or NULL
    tl_addr symbol_vaddr; // SYMBOL: where it is defined in this file, 0: elsewhere
};
// Calls visit for each relocation that makes a 64-bit address; stops when it returns false.
// TL_E_UNSUPPORTED: the machine's relocations are not known.
int tl_relocs_each(const struct tl_image *image,
                   bool (*visit)(void *opaque, const struct tl_elf_reloc *reloc), void *opaque,
                   struct tl_diag *diag);
// DT_RELR: calls visit for the address of each relative word.
void tl_relr_each(const struct tl_image *image, bool (*visit)(void *opaque, tl_addr vaddr),
                  void *opaque);

// --- unwind.c ---

// Reads .eh_frame: extents of all FDEs in text, landing pads of their call-site tables.
int tl_unwind_read(const struct tl_image *image, const struct tl_runs *runs,
                   struct tl_range_list *functions, struct tl_vaddr_list *landing_pads,
                   struct tl_diag *diag);

// --- go.c ---

// Where the image's Go code lies; end 0: it has none.
struct tl_range tl_go_text(const struct tl_image *image, const struct tl_runs *runs);

#endif

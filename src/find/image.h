// What the parts of stage find share about one ELF file. Internal to find.
//
// All numbers in here come from a foreign file. Nothing is believed before it is compared with the
// size of what it points into; that is done once, in the functions below.
#ifndef TL_FIND_IMAGE_H
#define TL_FIND_IMAGE_H

#include <elf.h>

#include "find/arena.h"
#include "find/file.h"
#include "find/find.h"

#define TL_IMAGE_SEGMENT_MAX 1024u     // program headers
#define TL_IMAGE_SECTION_MAX 65536u    // section headers
#define TL_IMAGE_NAME_MAX 65536u       // bytes of one name
#define TL_IMAGE_NEEDED_MAX 1024u      // DT_NEEDED entries
#define TL_IMAGE_BUILD_ID_MAX 64u      // bytes
#define TL_IMAGE_SYMBOL_MAX (8u << 20) // entries of one symbol table

// Bytes of the file, inside it. size 0: none.
struct tl_view {
    const uint8_t *bytes;
    uint64_t size;
};

struct tl_section {
    const char *name;
    uint64_t flags, off, size;
    tl_addr vaddr;
    uint32_t type, link;
};

// Values of DT_* entries; 0 where there is none.
struct tl_dynamic {
    tl_addr strtab, symtab, hash, gnu_hash, versym, verdef, verneed;
    uint64_t strtab_size;
    tl_addr rela, jmprel, relr;
    uint64_t rela_size, jmprel_size, relr_size;
    tl_addr init, fini, init_array, fini_array, preinit_array;
    uint64_t init_array_size, fini_array_size, preinit_array_size;
    const char *soname;
    const char **needed; // in the arena
    size_t needed_count;
};

struct tl_image_lazy; // what is computed on the first question: symbols.h, facts.c

struct tl_image {
    struct tl_file *file;
    struct tl_arena arena;
    char *path;
    char *debug_dir, *root; // options, or NULL
    uint16_t machine, type; // EM_*, ET_*
    tl_addr entry;
    uint64_t header_end; // file offset behind the ELF and program headers
    struct tl_segment *segment;
    size_t segment_count;
    struct tl_section *section;
    size_t section_count;
    uint32_t *allocated; // indices of sections that occupy addresses, by vaddr
    size_t allocated_count;
    struct tl_range dynamic_file; // PT_DYNAMIC, offsets
    tl_addr eh_frame_hdr;         // PT_GNU_EH_FRAME, 0: none
    struct tl_range relro;        // PT_GNU_RELRO, vaddrs
    bool interpreter;             // has PT_INTERP
    bool go_note;                 // has a note of Go's linker
    uint8_t build_id[TL_IMAGE_BUILD_ID_MAX];
    size_t build_id_size; // 0: none
    struct tl_dynamic dynamic;
    struct tl_image_lazy *lazy;
    struct tl_analysis *analysis; // of the modules that have this image; NULL: none yet (modules.c)
    unsigned sharers;             // modules that have it besides one
};

// --- image.c ---

// As tl_image_open, for bytes in memory (copied). No debug file is looked for without options.
// Declared in find.h: tl_image_open_memory.

const struct tl_section *tl_image_section_named(const struct tl_image *image, const char *name);
const struct tl_section *tl_image_section_typed(const struct tl_image *image, uint32_t type);
// The section that holds vaddr, or NULL.
const struct tl_section *tl_image_section_of(const struct tl_image *image, tl_addr vaddr);
struct tl_view tl_image_section_view(const struct tl_image *image,
                                     const struct tl_section *section);
// The PT_LOAD whose file bytes hold vaddr, or NULL.
const struct tl_segment *tl_image_segment_at(const struct tl_image *image, tl_addr vaddr);
// ... if it is executable.
const struct tl_segment *tl_image_text_at(const struct tl_image *image, tl_addr vaddr);
// File bytes from vaddr to the end of its segment's.
struct tl_view tl_image_view_at(const struct tl_image *image, tl_addr vaddr);
// The string at off, terminated inside the view and no longer than TL_IMAGE_NAME_MAX, or NULL.
const char *tl_view_string(struct tl_view view, uint64_t off);
bool tl_view_read(struct tl_view view, uint64_t off, void *out, uint64_t size);

// Something was asked of it already: strings that it lent may be in use.
bool tl_image_begun(const struct tl_image *image);

// --- debugfile.c ---

// The separate debug file of image, whose path is put into *path (in image's arena); NULL: none.
struct tl_image *tl_image_debug_open(const struct tl_image *image, const char **path);
// The file inside .gnu_debugdata, or NULL.
struct tl_image *tl_image_debugdata_open(const struct tl_image *image);

#endif

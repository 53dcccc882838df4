// Plans and detours as text: each file holds cases, bytes in and text out. What is planned and
// emitted now must read as the file says. TL_UPDATE=1 writes the files anew, for a look at the
// difference.
//
//   case NAME
//   code HEX...            a function, at the next address
//   pad N                  int3 behind it
//   free START END         nothing else is free; as offsets from the text
//   tp fs|fsbase|shared    how threads find their blocks
//   probe OFFSET [dead REG,...|flags|all] [window N] [entry]
//   =>
//   text
//   end
#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIAS ((tl_addr)0x555555554000)
#define TEXT (BIAS + PROGRAM_VADDR)
#define REQUESTS_MAX 32
#define TEXT_MAX (256u << 10)
#define LINE_MAX_SIZE 512

struct golden {
    struct tl_plan_options options;
    struct tl_plan_request request[REQUESTS_MAX];
    size_t count;
    struct tl_range used[2];
    size_t used_count;
    char out[TEXT_MAX]; // the case's text
    size_t size;
};

static struct program program;
static struct golden g;

static void out(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void out(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g.size += (size_t)vsnprintf(g.out + g.size, TEXT_MAX - g.size, format, args);
    va_end(args);
}

static void fail(const char *what, const char *line)
{
    fprintf(stderr, "golden: %s: %s\n", what, line);
    exit(2);
}

// ---- reading a case ---------------------------------------------------------------------------

static void case_begin(void)
{
    memset(&g, 0, sizeof g);
    g.options = (struct tl_plan_options){
        .arch = &tl_arch_x86_64,
        .emit = {.action = TL_ACTION_COUNT,
                 .thread_pointer = TL_TP_FS_WORD,
                 .table_addr = 0x7f0000001000,
                 .control_addr = 0x7f0000000000,
                 .slow_addr = 0x7f0000010000},
    };
    g.used[0] = (struct tl_range){TEXT, TEXT + PROGRAM_SIZE};
    g.used_count = 1;
    program_begin(&program);
}

static void code_read(const char *text, unsigned padding)
{
    uint8_t bytes[256];
    unsigned size = 0;
    char *end;
    for (;; text = end) {
        unsigned long byte = strtoul(text, &end, 16);
        if (end == text || size == sizeof bytes)
            break;
        bytes[size++] = (uint8_t)byte;
    }
    program_function(&program, bytes, size, padding);
}

static tl_regset dead_read(const char *text)
{
    static const char *const names[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    tl_regset set = 0;
    char copy[LINE_MAX_SIZE], *state;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &state); word; word = strtok_r(NULL, ",", &state)) {
        if (!strcmp(word, "flags"))
            set |= TL_REGSET_FLAGS;
        if (!strcmp(word, "all"))
            set |= TL_REGSET_ALL & ~(tl_regset)(1 << RSP);
        for (unsigned i = 0; i < 16; i++)
            if (!strcmp(word, names[i]))
                set |= (tl_regset)1 << i;
    }
    return set;
}

static void probe_read(char *text)
{
    char *state, *word = strtok_r(text, " \n", &state);
    struct tl_plan_request *request = &g.request[g.count];
    tl_addr vaddr = PROGRAM_VADDR + strtoull(word, NULL, 0);
    unsigned index = program_at(&program, vaddr);
    if (index == program.insn_count)
        fail("no instruction", text);
    program_facts(&program, index, &request->facts);
    request->facts.entry = false;
    request->bias = (int64_t)BIAS;
    request->counter_off = (uint32_t)(64 + 8 * g.count++);
    while ((word = strtok_r(NULL, " \n", &state))) {
        if (!strcmp(word, "entry"))
            request->facts.entry = true;
        else if (!strcmp(word, "dead"))
            request->facts.dead = dead_read(strtok_r(NULL, " \n", &state));
        else if (!strcmp(word, "window"))
            request->facts.window_max = (uint8_t)strtoul(strtok_r(NULL, " \n", &state), NULL, 0);
        else
            fail("unknown word", word);
    }
}

// ---- writing the text ---------------------------------------------------------------------------

static void bytes_out(const uint8_t *bytes, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        out("%s%02x", i ? " " : "", bytes[i]);
}

static void plan_out(const struct tl_plan *p)
{
    if (p->rung != TL_RUNG_JUMP) {
        out("+%#llx refused: %s\n", (unsigned long long)(p->addr - TEXT),
            tl_refusal_text(p->refusal));
        return;
    }
    out("+%#llx %s, %u bytes%s, detour of %u at %#llx\n", (unsigned long long)(p->addr - TEXT),
        tl_way_text(p->way), p->window_size, p->interior ? " with an interior" : "", p->detour_size,
        (unsigned long long)p->detour_addr);
    for (unsigned i = 0; i < p->patch_count; i++) {
        const struct tl_patch *patch = &p->patch[i];
        out("    +%#llx: ", (unsigned long long)(patch->addr - TEXT));
        bytes_out(patch->before, patch->size);
        out(" -> ");
        bytes_out(patch->after, patch->size);
        if (patch->relied)
            out(" | ");
        bytes_out(patch->after + patch->size, patch->relied);
        out("\n");
    }
}

static void detour_out(const struct tl_plan_detour *d)
{
    const struct tl_detour *detour = d->detour;
    unsigned at = 0, literals = detour->size;
    // Literals are whatever the last instruction that refers to them says: the text stops at the
    // filler.
    out("detour %#llx of +%#llx\n", (unsigned long long)d->addr,
        (unsigned long long)(d->site - TEXT));
    while (at < literals) {
        struct tl_insn insn;
        char text[128], mark[32] = "";
        if (tl_arch_x86_64.decode(detour->bytes + at, detour->size - at, d->addr + at, &insn))
            break;
        if (insn.flags & TL_INSN_PCREL_DATA && insn.target >= d->addr &&
            insn.target < d->addr + literals)
            literals = (unsigned)(insn.target - d->addr);
        for (unsigned i = 0; i < detour->boundary_count; i++)
            if (detour->boundary[i].off == at)
                snprintf(mark, sizeof mark, "    ; +%u", detour->boundary[i].insn_off);
        tl_arch_x86_64.print(&insn, text, sizeof text);
        if (detour->bytes[at] != 0xcc)
            out("    %3u  %s%s\n", at, text, mark);
        at += insn.size;
    }
    for (at = literals; at + 8 <= detour->size; at += 8) {
        uint64_t word;
        memcpy(&word, detour->bytes + at, 8);
        out("    %3u  .quad %#llx\n", at, (unsigned long long)word);
    }
}

static void case_run(void)
{
    struct tl_space *space;
    struct tl_plan_set *set;
    struct tl_diag diag;
    const struct tl_plan_detour *detours;
    struct tl_space_options options = {.used = g.used,
                                       .used_count = g.used_count,
                                       .mapping_limit = 1000,
                                       .addr_min = 0x10000,
                                       .addr_max = 0x7ffffffff000};
    struct tl_plan_module module = {
        .bias = (int64_t)BIAS,
        .padding = program.padding,
        .padding_count = program.padding_count,
        .text = {PROGRAM_VADDR, PROGRAM_VADDR + program.size},
        .texts = &program.text,
        .text_count = 1,
        .site = program_site,
        .analysis = (struct tl_analysis *)(void *)&program,
    };
    if (tl_space_create(&options, &space, &diag) ||
        tl_plan_sites(&g.options, space, &module, 1, g.request, g.count, &set, &diag))
        fail("not planned", diag.text);
    for (size_t i = 0; i < g.count; i++)
        plan_out(tl_plan_get(set, i));
    size_t count = tl_plan_detours(set, &detours);
    for (size_t i = 0; i < count; i++)
        detour_out(&detours[i]);
    tl_plan_set_destroy(set);
    tl_space_destroy(space);
}

// ---- files
// ----------------------------------------------------------------------------------------

static void line_read(char *line, char *code)
{
    // A function is added when its padding is known: with the next line.
    if (code[0]) {
        bool padded = !strncmp(line, "pad ", 4);
        code_read(code, padded ? (unsigned)strtoul(line + 4, NULL, 0) : 0);
        code[0] = 0;
        if (padded)
            return;
    }
    if (!strncmp(line, "code ", 5)) {
        snprintf(code, LINE_MAX_SIZE, "%s", line + 5);
    } else if (!strncmp(line, "probe ", 6)) {
        if (!program.insn_count)
            program_end(&program);
        probe_read(line + 6);
    } else if (!strncmp(line, "free ", 5)) {
        char *end;
        g.used[0] = (struct tl_range){0, TEXT + strtoull(line + 5, &end, 16)};
        g.used[1] = (struct tl_range){TEXT + strtoull(end, NULL, 16), 0x7ffffffff000};
        g.used_count = 2;
    } else if (!strncmp(line, "tp ", 3)) {
        g.options.emit.thread_pointer = !strcmp(line + 3, "shared")   ? TL_TP_SHARED
                                        : !strcmp(line + 3, "fsbase") ? TL_TP_FSBASE
                                                                      : TL_TP_FS_WORD;
    } else {
        fail("unknown line", line);
    }
}

struct files {
    char *now; // the file as it should be
    size_t now_size;
    char wanted[TEXT_MAX];
    bool differs;
};

static void keep(struct files *files, const char *text)
{
    size_t size = strlen(text);
    if (files->now_size + size >= TEXT_MAX)
        fail("too long", text);
    memcpy(files->now + files->now_size, text, size + 1);
    files->now_size += size;
}

static bool file_run(const char *path)
{
    static struct files files;
    static char line[LINE_MAX_SIZE], code[LINE_MAX_SIZE], name[LINE_MAX_SIZE];
    FILE *file = fopen(path, "r");
    if (!file)
        fail("can't be opened", path);
    files = (struct files){.now = calloc(1, TEXT_MAX)};
    enum { OUTSIDE, INPUT, OUTPUT } state = OUTSIDE;
    unsigned cases = 0;
    while (fgets(line, sizeof line, file)) {
        if (state == OUTPUT && strcmp(line, "end\n") != 0) {
            strncat(files.wanted, line, sizeof files.wanted - strlen(files.wanted) - 1);
            continue;
        }
        if (state == INPUT && !strcmp(line, "=>\n")) {
            case_run();
            state = OUTPUT;
            files.wanted[0] = 0;
        } else if (state == OUTPUT) {
            keep(&files, g.out);
            if (strcmp(files.wanted, g.out) != 0) {
                fprintf(stderr, "%s: %s reads now:\n%s", path, name, g.out);
                files.differs = true;
            }
            cases++;
            state = OUTSIDE;
        } else if (state == OUTSIDE && !strncmp(line, "case ", 5)) {
            case_begin();
            code[0] = 0;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 5, "\n"), line + 5);
            state = INPUT;
        } else if (state == INPUT) {
            char copy[LINE_MAX_SIZE];
            snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
            line_read(copy, code);
        } else if (line[0] != '#' && line[0] != '\n') {
            fail("outside a case", line);
        }
        keep(&files, line);
    }
    fclose(file);
    if (state != OUTSIDE || !cases)
        fail("ends inside a case, or holds none", path);
    if (files.differs && getenv("TL_UPDATE")) {
        file = fopen(path, "w");
        if (!file || fputs(files.now, file) < 0 || fclose(file))
            fail("can't be written", path);
    }
    free(files.now);
    return !files.differs;
}

int main(int argc, char **argv)
{
    int failed = argc < 2;
    for (int i = 1; i < argc; i++)
        failed |= !file_run(argv[i]);
    return failed;
}

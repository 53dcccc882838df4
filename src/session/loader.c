// Libraries that come and go while probes are in.
//
// The dynamic loader calls an empty function before and after it changes what is loaded (r_brk of struct
// r_debug, which DT_DEBUG of the program names); a hook there tells us. Then maps says what changed, for
// the loader's own words are no better. A library that comes gets a batch of its own; one that went is
// closed; one that came back to its old place is written to again.
// Invariant: a library whose file no probe text matches costs one look a session.
#include "session/follow.h"
#include "session/trampoline.h"

#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PHDRS_MAX 64u
#define DYNAMIC_MAX 4096u
#define IGNORED_MAX 65536u // files that nothing matched

// ---- the hook -----------------------------------------------------------------------------------

static bool target_word(struct tl_batch *batch, tl_addr addr, void *out, size_t size)
{
    return tl_target_read(batch->target, addr, out, size, NULL) == 0;
}

// Where the program's dynamic section lies. 0: it has none.
static tl_addr dynamic_find(struct tl_batch *batch)
{
    tl_addr phdr = tl_proc_auxv(batch->pid, AT_PHDR), bias = 0, dynamic = 0;
    uint64_t count = tl_proc_auxv(batch->pid, AT_PHNUM);
    bool found = false;
    for (uint64_t i = 0; phdr && i < count && i < PHDRS_MAX; i++) {
        Elf64_Phdr segment;
        if (!target_word(batch, phdr + i * sizeof segment, &segment, sizeof segment))
            return 0;
        if (segment.p_type == PT_PHDR)
            bias = phdr - segment.p_vaddr;
        if (segment.p_type == PT_DYNAMIC) {
            dynamic = segment.p_vaddr;
            found = true;
        }
    }
    return found ? dynamic + bias : 0;
}

static tl_addr break_addr(struct tl_batch *batch)
{
    tl_addr dynamic = dynamic_find(batch);
    for (size_t i = 0; dynamic && i < DYNAMIC_MAX; i++) {
        Elf64_Dyn entry;
        struct r_debug debug;
        if (!target_word(batch, dynamic + i * sizeof entry, &entry, sizeof entry) ||
            entry.d_tag == DT_NULL)
            return 0;
        if (entry.d_tag != DT_DEBUG)
            continue;
        if (!entry.d_un.d_ptr || !target_word(batch, entry.d_un.d_ptr, &debug, sizeof debug))
            return 0;
        return debug.r_brk;
    }
    return 0;
}

bool tl_loader_hook_site(struct tl_batch *batch, uint32_t *module, tl_addr *vaddr)
{
    tl_addr addr = batch->target ? break_addr(batch) : 0;
    for (size_t i = 0; addr && i < tl_modules_count(batch->modules); i++) {
        struct tl_module *owner = tl_modules_get(batch->modules, i);
        const struct tl_segment *segment;
        tl_addr here = addr - (tl_addr)owner->bias;
        for (size_t k = tl_image_segments(owner->image, &segment); k-- > 0;) {
            if (!(segment[k].prot & TL_PROT_EXEC) ||
                here - segment[k].vaddr >= segment[k].file_size)
                continue;
            if (tl_module_analyse(owner, NULL) != 0)
                return false;
            *module = (uint32_t)i;
            *vaddr = tl_analysis_entry(owner->analysis, here);
            return true;
        }
    }
    return false;
}

// Only texts that name a file other than the program can mean a library that comes later; and where return
// addresses are replaced an unwinder may.
bool tl_loader_wanted(const struct tl_batch *batch)
{
    const struct tl_session *session = batch->session;
    const struct tl_module *program = tl_modules_get(batch->modules, 0);
    if (!batch->target || session->options.read_only)
        return false;
    bool wanted = tl_session_trampoline_wants_loader(batch);
    const char *base = program && program->main ? strrchr(program->path, '/') : NULL;
    for (size_t i = 0; !wanted && i < session->text_count; i++) {
        struct tl_probe_spec spec;
        if (tl_probe_parse(session->texts[i], &spec, NULL) != 0)
            continue;
        const char *file = spec.file ? spec.file : "", *slash = strrchr(file, '/');
        wanted = spec.file && (strpbrk(file, "*?") || !base ||
                               strcmp(slash ? slash + 1 : file, base + 1) != 0);
        tl_probe_spec_deinit(&spec);
    }
    return wanted;
}

bool tl_session_may_match_later(const struct tl_session *session)
{
    return session->batch_count && tl_loader_wanted(session->batch[0]);
}

// ---- what is known ------------------------------------------------------------------------------

static bool key_matches(const struct tl_file_key *key, const struct tl_map *map)
{
    return key->inode == map->inode && key->dev_major == map->dev_major &&
           key->dev_minor == map->dev_minor;
}

static bool same_file(const struct tl_map *a, const struct tl_map *b)
{
    return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

static bool is_ignored(struct tl_session *session, const struct tl_map *map)
{
    const struct tl_loader *loader = tl_loader_state(session);
    for (size_t i = 0; loader && i < loader->ignored_count; i++) {
        if (key_matches(&loader->ignored[i], map))
            return true;
    }
    return false;
}

static void ignore(struct tl_session *session, const struct tl_map *map)
{
    struct tl_loader *loader = tl_loader_state(session);
    if (!loader || is_ignored(session, map))
        return;
    if (loader->ignored_count == loader->ignored_room) {
        size_t room = loader->ignored_room ? 2 * loader->ignored_room : 64;
        struct tl_file_key *grown =
            room > IGNORED_MAX ? NULL : realloc(loader->ignored, room * sizeof *grown);
        if (!grown)
            return; // looked at again each time: slower, not wrong
        loader->ignored = grown;
        loader->ignored_room = room;
    }
    loader->ignored[loader->ignored_count++] =
        (struct tl_file_key){map->inode, map->dev_major, map->dev_minor};
}

static bool is_library(const struct tl_map *map)
{
    return map->prot & TL_PROT_EXEC && map->inode && map->path[0] == '/' &&
           strncmp(map->path, "/memfd:trapless:", 16) != 0 && strncmp(map->path, "/dev/", 5) != 0;
}

// A batch of this process, or one whose install it got by fork.
static bool batch_serves(const struct tl_batch *batch, pid_t pid)
{
    struct tl_control control;
    if (batch->pid == pid && !batch->gone)
        return true;
    return batch->install && batch->pid != pid &&
           tl_install_copy_in(batch->install, pid, &control);
}

// It was there when some batch that serves the process was made.
static bool is_known(const struct tl_session *session, pid_t pid, const struct tl_map *map)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        const struct tl_batch *batch = session->batch[i];
        const struct tl_map *then = tl_maps_at(&batch->maps, map->start);
        if (then && then->start == map->start && same_file(then, map) && batch_serves(batch, pid))
            return true;
    }
    return false;
}

// All mappings of the files that are new. false: there are none, or no memory.
static bool maps_new(struct tl_session *session, pid_t pid, const struct tl_maps *maps,
                     struct tl_maps *out)
{
    bool *chosen = calloc(maps->count + 1, sizeof *chosen);
    size_t count = 0;
    for (size_t i = 0; chosen && i < maps->count; i++) {
        const struct tl_map *map = &maps->map[i];
        if (!is_library(map) || is_known(session, pid, map) || is_ignored(session, map))
            continue;
        for (size_t k = 0; k < maps->count; k++)
            chosen[k] |= same_file(map, &maps->map[k]);
    }
    out->map = calloc(maps->count + 1, sizeof *out->map);
    for (size_t i = 0; chosen && out->map && i < maps->count; i++) {
        if (!chosen[i])
            continue;
        out->map[count] = maps->map[i];
        out->map[count].path = strdup(maps->map[i].path);
        count += out->map[count].path != NULL;
    }
    out->count = count;
    free(chosen);
    if (count)
        return true;
    tl_maps_deinit(out);
    return false;
}

// ---- libraries that came ------------------------------------------------------------------------

static struct tl_target *target_of(struct tl_session *session, pid_t pid)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        if (session->batch[i]->pid == pid && !session->batch[i]->gone)
            return session->batch[i]->target;
    }
    return NULL;
}

static int library_place(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_session *session = batch->session;
    for (size_t i = 0; i < session->text_count; i++)
        (void)tl_batch_add(batch, session->texts[i], NULL); // no match is no error here
    if (!batch->sites.count && !tl_session_trampoline_needs(batch))
        return 0;
    int error = tl_batch_lines(batch, diag);
    return error ? error : tl_batch_place(batch, diag);
}

// Nothing came of it: the library, or its process, went away.
static void sites_give_up(struct tl_batch *batch)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        if (batch->state[i].rung == TL_RUNG_REFUSED && batch->state[i].refusal == TL_REFUSE_NONE)
            batch->state[i].refusal = TL_REFUSE_UNLOADED;
    }
}

// It went away while it was being probed: it is as unknown as before.
static bool lost_meanwhile(const struct tl_batch *batch)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        if (batch->state[i].rung != TL_RUNG_REFUSED ||
            batch->state[i].refusal != TL_REFUSE_UNLOADED)
            return false;
    }
    return true;
}

// maps is taken over.
static void library_probe(struct tl_session *session, struct tl_batch *beside, pid_t pid,
                          struct tl_maps *maps)
{
    double start = tl_session_now_ms();
    struct tl_diag diag = {""};
    struct tl_target *target = target_of(session, pid);
    struct tl_batch *batch = NULL;
    double wait_ms = beside && tl_session_trampoline_wants_loader(beside) ? TL_NOTICE_HARM_WAIT_MS
                                                                          : TL_NOTICE_LONG_WAIT_MS;
    bool owned = !target;
    char name[64];
    const char *base = strrchr(maps->map[0].path, '/');
    (void)snprintf(name, sizeof name, "%s", base ? base + 1 : maps->map[0].path);
    int error = target ? 0 : tl_target_open(pid, NULL, &target, &diag);
    if (error) {
        tl_maps_deinit(maps);
        tl_follow_note(session, "%s: not probed: %s\n", name, diag.text);
        return;
    }
    tl_batches_retire(session);
    size_t before = session->batch_count;
    error = tl_batch_create(session, target, owned, maps, &batch, &diag);
    if (error && session->batch_count > before)
        tl_batch_drop(session->batch[before]);
    if (!error) {
        batch->beside = beside;
        error = library_place(batch, &diag);
    }
    if (!error && !batch->sites.count && !batch->install) {
        for (size_t i = 0; i < batch->maps.count; i++)
            ignore(session, &batch->maps.map[i]);
        tl_batch_drop(batch);
        return;
    }
    if (error && batch)
        sites_give_up(batch);
    if (error)
        tl_follow_note(session, "%s: not probed: %s\n", name, diag.text);
    if (batch && batch->state_count && lost_meanwhile(batch))
        batch->gone = true;
    else if (!error && tl_session_now_ms() - start > wait_ms)
        tl_follow_note(session, "%s: probed %.0f ms after it was loaded; earlier hits are missing\n",
                       name, tl_session_now_ms() - start);
    tl_batches_lines(session);
    if (batch)
        tl_batch_settle(batch);
}

// ---- libraries that went and came back ----------------------------------------------------------

static bool module_mapped(const struct tl_module *module, const struct tl_maps *maps)
{
    const struct tl_segment *segment;
    if (!tl_image_segments(module->image, &segment))
        return false;
    const struct tl_map *map =
        tl_maps_at(maps, tl_page_down(segment[0].vaddr + (tl_addr)module->bias));
    return map && map->inode == module->inode && map->dev_major == module->dev_major &&
           map->dev_minor == module->dev_minor;
}

static bool site_unloaded(const struct tl_session_site *state)
{
    return state->closed && state->refusal == TL_REFUSE_UNLOADED;
}

static bool point_placed(const struct tl_batch *batch, const struct tl_session_site *state)
{
    for (uint32_t k = 0; k < state->point_count; k++) {
        if (batch->results[batch->points[state->point_first + k].request].refusal != TL_REFUSE_NONE)
            return false;
    }
    return true;
}

// One batch of the process, against its maps of now.
static void batch_compare(struct tl_batch *batch, const struct tl_maps *maps)
{
    bool lost = false, back = false;
    struct tl_diag diag = {""};
    if (!batch->install || !batch->results || batch->gone)
        return;
    for (size_t i = 0; i < batch->state_count; i++) {
        const struct tl_session_site *state = &batch->state[i];
        const struct tl_module *module = tl_modules_get(batch->modules, batch->sites.site[i].module);
        if (state->rung != TL_RUNG_JUMP || (state->closed && !site_unloaded(state)))
            continue;
        bool mapped = module && module_mapped(module, maps);
        lost |= !state->closed && !mapped;
        back |= state->closed && mapped;
    }
    if (lost)
        batch->gone = tl_batch_verify(batch, NULL) == 1;
    if (!back || batch->gone)
        return;
    if (tl_install_rearm(batch->install, batch->results, &diag) < 0)
        tl_follow_note(batch->session, "a library that came back is not probed: %s\n", diag.text);
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (!site_unloaded(state) || !point_placed(batch, state))
            continue;
        state->closed = false;
        state->refusal = TL_REFUSE_NONE;
    }
}

void tl_loader_changed(struct tl_session *session, struct tl_batch *batch, pid_t pid)
{
    struct tl_maps maps, new_ones = {0};
    if (tl_maps_read(pid, &maps, NULL) != 0)
        return;
    for (size_t i = 0; i < session->batch_count; i++) {
        if (session->batch[i]->pid == pid)
            batch_compare(session->batch[i], &maps);
    }
    if (maps_new(session, pid, &maps, &new_ones))
        library_probe(session, batch, pid, &new_ones);
    tl_session_trampoline_text(session, pid);
    tl_maps_deinit(&maps);
}

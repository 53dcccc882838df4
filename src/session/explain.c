// Plans every site as if it were the only one, against the target's present layout or, for a file
// alone, against the layout that a kernel gives such a file. Writes nothing anywhere.
#include "session/internal.h"
#include "session/traps.h"

#include "base/page.h"

#include <stdlib.h>
#include <string.h>

#define HEAP_ROOM (1ull << 30)      // no pool within 1 GiB above the heap
#define STACK_ROOM (128ull << 20)   // ... nor where the stack may grow
#define RANGES_MAX 262144u          // more mappings than vm.max_map_count usually allows
#define OURS "/memfd:trapless:"
#define FIXED_HEAP_GAP (32ull << 20)
#define LIBRARY_NEIGHBOURS (64ull << 20) // other libraries, on each side
#define EXPLAIN_BATCH 1024u // sites planned at once: bounds the memory of a whole library's explain

static int range_compare(const void *left, const void *right)
{
    const struct tl_range *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static size_t process_ranges(const struct tl_batch *batch, struct tl_range *range)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->maps.count && count < RANGES_MAX; i++) {
        const struct tl_map *map = &batch->maps.map[i];
        if (!strncmp(map->path, OURS, sizeof OURS - 1)) // an earlier run's, taken away by an attach
            continue;
        range[count] = (struct tl_range){map->start, map->end};
        if (!strcmp(map->path, "[heap]"))
            range[count].end += HEAP_ROOM;
        else if (!strcmp(map->path, "[stack]"))
            range[count].start -= STACK_ROOM;
        count++;
    }
    return count;
}

// A file alone is planned where a kernel would put it; what is told of it stays as in the file.
static void file_move(struct tl_batch *batch)
{
    for (size_t i = 0; i < tl_modules_count(batch->modules); i++) {
        struct tl_module *module = tl_modules_get(batch->modules, i);
        const struct tl_module_facts *facts = NULL;
        if (tl_image_facts(module->image, &facts, NULL) || facts->position_fixed)
            continue;
        module->bias = (int64_t)(tl_image_soname(module->image) ? batch->arch->library_base
                                                               : batch->arch->program_base);
    }
}

// Its segments, and behind a program the heap's room, around a library other libraries.
static size_t file_ranges(struct tl_batch *batch, struct tl_range *range)
{
    size_t count = 0;
    for (size_t i = 0; i < tl_modules_count(batch->modules); i++) {
        struct tl_module *module = tl_modules_get(batch->modules, i);
        const struct tl_segment *segment = NULL;
        size_t segments = tl_image_segments(module->image, &segment);
        tl_addr low = UINT64_MAX, high = 0;
        for (size_t k = 0; k < segments; k++) {
            if (segment[k].vaddr < low)
                low = segment[k].vaddr;
            if (segment[k].vaddr + segment[k].memory_size > high)
                high = segment[k].vaddr + segment[k].memory_size;
        }
        if (!segments)
            continue;
        low = tl_kernel_page_down(low + (tl_addr)module->bias);
        high = tl_kernel_page_up(high + (tl_addr)module->bias);
        if (module->bias == (int64_t)batch->arch->library_base) {
            range[count++] = (struct tl_range){low - LIBRARY_NEIGHBOURS, high + LIBRARY_NEIGHBOURS};
            continue;
        }
        range[count++] = (struct tl_range){low, high};
        range[count++] =
            (struct tl_range){high + FIXED_HEAP_GAP, high + FIXED_HEAP_GAP + HEAP_ROOM};
    }
    return count;
}

static int space_create(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t max = batch->maps.count + 2 * tl_modules_count(batch->modules) + 1;
    struct tl_range *range = calloc(max, sizeof *range);
    if (!range)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    size_t count = batch->session->options.file ? file_ranges(batch, range)
                                         : process_ranges(batch, range);
    qsort(range, count, sizeof *range, range_compare);
    struct tl_space_options options = {
        .used = range,
        .used_count = count,
        .mapping_limit = TL_SPACE_MAPPINGS_DEFAULT,
        .addr_min = TL_SPACE_ADDR_MIN,
        .addr_max = batch->session->options.file ? batch->arch->addr_end
                                                 : tl_addr_limit(range, count),
        .page_size = batch->session->options.file ? 0 : tl_page_size(),
    };
    int error = tl_space_create(&options, &batch->space, diag);
    free(range);
    return error;
}

// Plans sites [first, first + count) and keeps only rung, way, window and refusal of each.
static int some_explain(struct tl_batch *batch, const struct tl_plan_options *plan, size_t first,
                        size_t count, struct tl_diag *diag)
{
    int error = tl_batch_points(batch, first, count, diag);
    while (!error) {
        error = tl_batch_requests(batch, diag);
        if (error || !batch->request_count)
            break;
        error = tl_plan_sites(plan, batch->space, batch->plan_modules,
                              tl_modules_count(batch->modules), batch->requests,
                              batch->request_count, &batch->plans, diag);
        if (error)
            break;
        bool again = tl_batch_points_fallback(batch, first, count) != 0;
        if (!again)
            tl_session_take_plans(batch, first, count);
        tl_plan_set_destroy(batch->plans);
        batch->plans = NULL;
        if (!again)
            break;
        error = tl_batch_points(batch, first, count, diag);
    }
    if (!error)
        error = tl_session_traps_explain(batch, plan, first, count, diag);
    for (size_t i = first; i < first + count; i++)
        batch->state[i].flags &= ~TL_SESSION_PLANNED;
    return error;
}

int tl_batch_explain(struct tl_batch *batch, struct tl_diag *diag)
{
    if (!batch->sites.count)
        return tl_diag_set(diag, TL_E_NOMATCH, "no probe matched");
    if (batch->session->options.file)
        file_move(batch);
    int error = space_create(batch, diag);
    if (error)
        return error;
    struct tl_plan_options plan = {.arch = batch->arch, .alone = true};
    // A process that handles faults: each handler is taken to get its probes.
    if (batch->pid && tl_faults_caught(batch->pid))
        plan.faults = TL_FAULT_RESUMED;
    // Addresses in the middle of the usable space stand in for the target's; only sizes depend on them.
    tl_addr middle = tl_page_down(batch->arch->addr_end / 2), agent = middle + 4 * TL_PAGE_SIZE;
    plan.emit = (struct tl_emit_in){.action = TL_ACTION_COUNT,
                                    .thread_pointer = batch->arch->thread_pointer,
                                    .table_addr = middle + TL_TABLE_OFF,
                                    .control_addr = middle,
                                    .homes_addr = middle + TL_HOMES_OFF,
                                    .homes_shift = TL_HOMES_SHIFT_DEFAULT,
                                    .atomics = true,
                                    .slow_addr = agent,
                                    .call_addr = agent,
                                    .leave_addr = agent};
    for (size_t i = 0; i < TL_RECORD_KIND_COUNT; i++)
        plan.emit.record_addr[i] = agent;
    for (size_t i = 0; !error && i < batch->sites.count; i += EXPLAIN_BATCH) {
        const struct tl_session_options *options = &batch->session->options;
        size_t count = batch->sites.count - i;
        if (count > EXPLAIN_BATCH)
            count = EXPLAIN_BATCH;
        error = some_explain(batch, &plan, i, count, diag);
        if (options->progress)
            options->progress(options->opaque, "explaining", i, batch->sites.count);
    }
    return error;
}

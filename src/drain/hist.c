// Sums histograms out of shared memory, and reads a quantile out of a sum.
//
// It knows nothing of ticks' length. It trusts no number: a hostile target gives wrong totals, not
// more.
//
// Invariant: every value has exactly one bucket, and a bucket is at most 1/32 of its values wide
// (the last one, of all that is longer than TL_HIST_EXPONENT_MAX bits, apart).
#include "drain/region.h"

#define SUB_COUNT (1u << TL_HIST_SUB_BITS)
#define WORD_MIN (offsetof(struct tl_hist, min_inverted) / sizeof(uint64_t))
#define WORD_MAX (offsetof(struct tl_hist, max) / sizeof(uint64_t))

_Static_assert(sizeof(struct tl_hist) % sizeof(uint64_t) == 0, "words");

static int hist_sum(const struct tl_drain_memory *memory, uint32_t process, uint32_t process_count,
                    uint32_t probe, struct tl_hist *out, struct tl_diag *diag)
{
    const struct tl_block_layout *layout = &memory->layout;
    int error = tl_memory_check(memory, diag);
    if (error)
        return error;
    if (process >= layout->process_count || process_count > layout->process_count - process)
        return tl_diag_set(diag, TL_E_FORMAT, "histogram: there is no process slot %u", process);
    if (!layout->hist_off || probe >= layout->hist_count)
        return tl_diag_set(diag, TL_E_FORMAT, "histogram: there is none of probe %u", probe);
    struct tl_walk walk;
    uint64_t block, start, end;
    uint64_t off = layout->hist_off + (uint64_t)probe * sizeof *out;
    tl_walk_init(&walk, memory, process, process_count, off, sizeof *out);
    while (tl_walk_next(&walk, &block, &start, &end)) {
        uint64_t index = (start - tl_block_off(memory, block) - off) / sizeof(uint64_t);
        for (uint64_t at = start; at < end; at += sizeof(uint64_t), index++) {
            uint64_t value = tl_memory_word(memory, at), *sum = (uint64_t *)out + index;
            if (index != WORD_MIN && index != WORD_MAX)
                *sum += value;
            else if (value > *sum)
                *sum = value;
        }
    }
    return 0;
}

int tl_drain_hist(const struct tl_drain_memory *memory, uint32_t probe, struct tl_hist *out,
                  struct tl_diag *diag)
{
    return hist_sum(memory, 0, memory->layout.process_count, probe, out, diag);
}

int tl_drain_process_hist(const struct tl_drain_memory *memory, uint32_t process, uint32_t probe,
                          struct tl_hist *out, struct tl_diag *diag)
{
    return hist_sum(memory, process, 1, probe, out, diag);
}

void tl_hist_bucket_range(uint32_t bucket, uint64_t *low, uint64_t *high)
{
    if (bucket < 2 * SUB_COUNT) { // one value each, also in the first octave above
        *low = *high = bucket;
        return;
    }
    if (bucket >= TL_HIST_BUCKETS - 1)
        bucket = TL_HIST_BUCKETS - 1;
    uint32_t shift = bucket / SUB_COUNT - 1;
    *low = (uint64_t)(SUB_COUNT + bucket % SUB_COUNT) << shift;
    *high = bucket == TL_HIST_BUCKETS - 1 ? UINT64_MAX : *low + ((uint64_t)1 << shift) - 1;
}

uint64_t tl_hist_count(const struct tl_hist *hist)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < TL_HIST_BUCKETS; i++)
        count += hist->bucket[i];
    return count;
}

double tl_hist_quantile(const struct tl_hist *hist, double part)
{
    uint64_t count = tl_hist_count(hist), seen = 0;
    uint64_t min = ~hist->min_inverted, max = hist->max;
    double wanted = part * (double)count;
    for (uint32_t i = 0; i < TL_HIST_BUCKETS; i++) {
        uint64_t low, high;
        seen += hist->bucket[i];
        if (!hist->bucket[i] || (double)seen < wanted)
            continue;
        tl_hist_bucket_range(i, &low, &high);
        // No value lies outside [min, max]: narrows the first and the last bucket.
        low = min > low && min <= high ? min : low;
        high = max < high && max >= low ? max : high;
        return (double)low + (double)(high - low) / 2;
    }
    return 0;
}

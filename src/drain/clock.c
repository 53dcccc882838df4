// Ticks of the processor's counter <-> CLOCK_MONOTONIC.
//
//        ns |              .knot 2      The map is a row of lines. A refresh takes a new reading,
//        adds a
//           |          . '              knot on the line that holds so far, and bends what comes
//           after it |     .knot 1               towards the truth. What lies before a knot stays
//           as it was |  .                        handed out. | knot 0
//           +---------------------- ticks
//
// It does not notice a counter that goes at different rates on different processors; the kernel
// does, and then uses another clock, and so do we (coarse).
//
// Invariant: the map never falls, and a value for ticks before the newest knot never changes (but
// for those before the oldest knot that is kept).
#include "arch/clock.h"
#include "drain/drain.h"

#include <string.h>
#include <time.h>

#define NS_PER_SECOND 1000000000ull
#define READING_TRIES 16
#define INIT_NS 5000000         // the first base line
#define REFRESH_NS_MIN 50000000 // knots are at least this far apart
#define BEND_NS_MIN                                                                                \
    100000000             // an error is made good within this time, or the time since the last knot
#define BEND_PART_MAX 0.5 // a line is at most so much steeper or flatter than the rate
#define JUMP_NS 1000000   // farther behind than this, the map jumps ahead
#define RATE_CHANGE_MAX 0.001 // more: the machine slept, or moved; the base line starts anew

struct reading {
    uint64_t ticks, ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t tl_clock_ticks(bool coarse)
{
    return coarse ? now_ns() : tl_arch_ticks();
}

// One clock between two readings of the other; of several tries the one with the least between.
static struct reading reading_take(void)
{
    struct reading best = {0};
    uint64_t width_min = UINT64_MAX;
    for (int i = 0; i < READING_TRIES; i++) {
        uint64_t before = tl_arch_ticks();
        uint64_t ns = now_ns();
        uint64_t width = tl_arch_ticks() - before;
        if (width < width_min) {
            width_min = width;
            best = (struct reading){.ticks = before + width / 2, .ns = ns};
        }
    }
    return best;
}

// base + ticks * rate; what does not fit is the largest.
static uint64_t line_ahead(uint64_t base, uint64_t ticks, double rate)
{
    double ns = (double)ticks * rate;
    uint64_t room = UINT64_MAX - base;
    return ns >= 9.0e18 || (uint64_t)ns > room ? UINT64_MAX : base + (uint64_t)ns;
}

static uint64_t line_back(uint64_t base, uint64_t ticks, double rate)
{
    double ns = (double)ticks * rate;
    return ns >= 9.0e18 || (uint64_t)ns > base ? 0 : base - (uint64_t)ns;
}

uint64_t tl_clock_map_ns(const struct tl_clock_map *map, uint64_t ticks)
{
    if (map->coarse)
        return ticks;
    uint32_t i = map->knot_count - 1;
    while (i && ticks < map->knot[i].ticks)
        i--;
    const struct tl_clock_knot *knot = &map->knot[i];
    if (ticks < knot->ticks)
        return line_back(knot->ns, knot->ticks - ticks, knot->ns_per_tick);
    uint64_t ns = line_ahead(knot->ns, ticks - knot->ticks, knot->ns_per_tick);
    // A knot's ns is this very line's value, or, after a jump, above it.
    return i + 1 < map->knot_count && ns > map->knot[i + 1].ns ? map->knot[i + 1].ns : ns;
}

static void knot_add(struct tl_clock_map *map, struct tl_clock_knot knot)
{
    if (map->knot_count == TL_CLOCK_KNOTS) {
        memmove(map->knot, map->knot + 1, sizeof map->knot - sizeof map->knot[0]);
        map->knot_count--;
    }
    map->knot[map->knot_count++] = knot;
}

void tl_clock_map_init(struct tl_clock_map *map, bool coarse)
{
    *map = (struct tl_clock_map){.coarse = coarse, .ns_per_tick = 1};
    if (coarse)
        return;
    struct reading first = reading_take(), last = first;
    const struct timespec pause = {.tv_nsec = INIT_NS};
    // Asked for again if a signal cut it short: the first base line must have some length.
    while (last.ns - first.ns < INIT_NS || last.ticks <= first.ticks) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        last = reading_take();
    }
    map->first_ticks = first.ticks;
    map->first_ns = first.ns;
    map->last_ticks = last.ticks;
    map->last_ns = last.ns;
    map->ns_per_tick = (double)(last.ns - first.ns) / (double)(last.ticks - first.ticks);
    knot_add(map, (struct tl_clock_knot){
                      .ticks = first.ticks, .ns = first.ns, .ns_per_tick = map->ns_per_tick});
}

// The rate over the base line up to a new reading. A base line that no longer fits is given up for
// the last reading's; after a sleep that rate is wrong too, and the next call gives it up in turn.
static void rate_update(struct tl_clock_map *map, struct reading now)
{
    double rate = (double)(now.ns - map->first_ns) / (double)(now.ticks - map->first_ticks);
    double change = rate / map->ns_per_tick - 1;
    if (change > -RATE_CHANGE_MAX && change < RATE_CHANGE_MAX) {
        map->ns_per_tick = rate;
    } else {
        map->ns_per_tick = (double)(now.ns - map->last_ns) / (double)(now.ticks - map->last_ticks);
        map->first_ticks = map->last_ticks;
        map->first_ns = map->last_ns;
    }
    map->last_ticks = now.ticks;
    map->last_ns = now.ns;
}

void tl_clock_map_refresh(struct tl_clock_map *map)
{
    if (map->coarse)
        return;
    const struct tl_clock_knot *newest = &map->knot[map->knot_count - 1];
    uint64_t ticks = tl_arch_ticks();
    if (ticks < newest->ticks ||
        (double)(ticks - newest->ticks) * map->ns_per_tick < REFRESH_NS_MIN)
        return;
    struct reading now = reading_take();
    if (now.ns <= map->last_ns || now.ticks <= map->last_ticks || now.ticks <= newest->ticks)
        return;
    double since_ns = (double)(now.ticks - newest->ticks) * map->ns_per_tick;
    rate_update(map, now);
    struct tl_clock_knot knot = {.ticks = now.ticks, .ns = tl_clock_map_ns(map, now.ticks)};
    if (now.ns > knot.ns && now.ns - knot.ns > JUMP_NS)
        knot.ns = now.ns;
    double error_ns = now.ns >= knot.ns ? (double)(now.ns - knot.ns) : -(double)(knot.ns - now.ns);
    double bend = error_ns / (since_ns > BEND_NS_MIN ? since_ns : BEND_NS_MIN);
    bend = bend > BEND_PART_MAX ? BEND_PART_MAX : bend < -BEND_PART_MAX ? -BEND_PART_MAX : bend;
    knot.ns_per_tick = map->ns_per_tick * (1 + bend);
    knot_add(map, knot);
}

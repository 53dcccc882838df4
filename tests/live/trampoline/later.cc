// A library that comes and goes while probes are in. Its functions call back, and throw through their own
// frames and their caller's.
#include <cstdint>
#include <stdexcept>

#define PROBED extern "C" __attribute__((noinline, noipa))

PROBED uint64_t later_throws(uint64_t depth, uint64_t (*back)(uint64_t))
{
    volatile uint64_t kept = depth;
    if (depth)
        return later_throws(depth - 1, back) + kept;
    throw std::runtime_error(back(1) == 2 ? "bottom" : "wrong");
}

PROBED uint64_t later_returns(uint64_t value, uint64_t (*back)(uint64_t))
{
    volatile uint64_t kept = value;
    return back(kept) + 1;
}

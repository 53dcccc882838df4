// C++ exceptions through probed functions, one way per mode, argv[1]. Prints results that no probe may
// change, and what probes must have counted (told.h).
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "told.h"

namespace
{
constexpr uint64_t LEVELS = 20, ROUNDS = 1000;
uint64_t destroyed;

struct Counted {
    uint64_t value;
    explicit Counted(uint64_t v) : value(v)
    {
    }
    ~Counted()
    {
        destroyed += value;
    }
};
} // namespace

extern "C" {
uint64_t aligns_first(uint64_t value);

PROBED uint64_t called(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 1;
}

// Throws at the bottom in two of three rounds; each frame has something to destroy.
PROBED uint64_t level(uint64_t levels, uint64_t round)
{
    Counted counted(levels);
    if (levels == 0) {
        if (round % 3)
            throw std::runtime_error("round " + std::to_string(round));
        return called(round);
    }
    return level(levels - 1, round) + levels;
}

PROBED uint64_t catches(uint64_t round)
{
    try {
        return level(LEVELS - 1, round);
    } catch (const std::runtime_error &error) {
        return std::strlen(error.what()) + called(round);
    }
}

// Caught and thrown on at every level.
PROBED uint64_t throws_on(uint64_t levels, uint64_t round)
{
    Counted counted(levels);
    if (levels == 0)
        throw round;
    try {
        return throws_on(levels - 1, round) + 1;
    } catch (uint64_t &thrown) {
        thrown += levels;
        throw;
    }
}

// Every second level keeps it.
PROBED uint64_t stops_half(uint64_t levels, uint64_t round)
{
    if (levels == 0)
        throw round;
    volatile uint64_t one = 1; // a call, not a loop
    if (levels % 2)
        return stops_half(levels - 1, round) + one;
    try {
        return stops_half(levels - 1, round) + 1;
    } catch (uint64_t thrown) {
        return thrown + called(levels);
    }
}

PROBED uint64_t throws_in_itself(uint64_t round)
{
    try {
        if (round % 2)
            throw std::logic_error("itself");
        return 1;
    } catch (const std::logic_error &) {
        return 2;
    }
}

PROBED uint64_t may_throw(uint64_t value)
{
    if (value % 2)
        throw value;
    return value;
}

PROBED uint64_t asks_library(uint64_t round)
{
    std::vector<int> some(5);
    return static_cast<uint64_t>(some.at(round % 10)) + std::stoul(round % 4 ? "12" : "none");
}

PROBED void keeps(std::exception_ptr *kept)
{
    try {
        level(LEVELS - 1, 1);
    } catch (...) {
        *kept = std::current_exception();
    }
}

PROBED uint64_t takes_up(const std::exception_ptr *kept)
{
    std::rethrow_exception(*kept);
}
}

namespace
{
void plain()
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ROUNDS * 3; i++)
        sum = sum * 31 + catches(i);
    std::printf("sum %" PRIu64 " destroyed %" PRIu64 "\n", sum, destroyed);
    expect("catches", ROUNDS * 3, ROUNDS * 3);
    expect("level", ROUNDS * 3 * LEVELS, ROUNDS * LEVELS);
    expect("called", ROUNDS * 3, ROUNDS * 3);
    std::printf("unwound catches %" PRIu64 "\n", ROUNDS * 2);
}

void again()
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        try {
            sum += throws_on(LEVELS, i);
        } catch (uint64_t thrown) {
            sum = sum * 31 + thrown;
        }
    }
    std::printf("sum %" PRIu64 " destroyed %" PRIu64 "\n", sum, destroyed);
    expect("throws_on", ROUNDS * (LEVELS + 1), 0);
}

void half()
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ROUNDS; i++)
        sum = sum * 31 + stops_half(LEVELS, i);
    std::printf("sum %" PRIu64 "\n", sum);
    // The two lowest never return, the third catches, the rest sees nothing.
    expect("stops_half", ROUNDS * (LEVELS + 1), ROUNDS * (LEVELS - 1));
    expect("called", ROUNDS, ROUNDS);
    std::printf("unwound stops_half %" PRIu64 "\n", ROUNDS * (LEVELS - 1));
}

void edges()
{
    uint64_t sum = 0, library = 0, returned = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        sum = sum * 31 + throws_in_itself(i);
        try {
            sum = sum * 31 + aligns_first(i);
        } catch (uint64_t thrown) {
            sum = sum * 17 + thrown;
        }
        try {
            library += asks_library(i);
            returned++;
        } catch (const std::exception &error) {
            library = library * 31 + std::strlen(error.what());
        }
    }
    std::printf("sum %" PRIu64 " library %" PRIu64 " %" PRIu64 "\n", sum, library, returned);
    expect("throws_in_itself", ROUNDS, ROUNDS);
    expect("aligns_first", ROUNDS, ROUNDS / 2);
    expect("calls_first", ROUNDS, ROUNDS / 2);
    expect("may_throw", ROUNDS, ROUNDS / 2);
    expect("asks_library", ROUNDS, returned);
    std::printf("unwound throws_in_itself %" PRIu64 "\n", ROUNDS / 2);
}

void threads()
{
    uint64_t sums[4] = {};
    std::vector<std::thread> running;
    for (auto &sum : sums) {
        running.emplace_back([&sum] {
            for (uint64_t i = 0; i < ROUNDS * 3; i++)
                sum = sum * 31 + catches(i);
        });
    }
    for (auto &thread : running)
        thread.join();
    std::printf("sums %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sums[0], sums[1], sums[2],
                sums[3]);
    expect("catches", 4 * ROUNDS * 3, 4 * ROUNDS * 3);
    expect("level", 4 * ROUNDS * 3 * LEVELS, 4 * ROUNDS * LEVELS);
    std::printf("unwound catches %" PRIu64 "\n", 4 * ROUNDS * 2);
}

void other_thread()
{
    uint64_t caught = 0;
    for (int i = 0; i < 20; i++) {
        std::exception_ptr kept;
        keeps(&kept);
        std::thread([&] {
            try {
                takes_up(&kept);
            } catch (const std::runtime_error &error) {
                caught += std::strlen(error.what());
            }
        }).join();
    }
    std::printf("caught %" PRIu64 "\n", caught);
    expect("keeps", 20, 20);
    expect("takes_up", 20, 0);
    expect("level", 20 * LEVELS, 0);
    std::printf("unwound keeps 20\n");
}

const struct {
    const char *name;
    void (*run)();
} modes[] = {{"plain", plain}, {"again", again},     {"half", half},
             {"edges", edges}, {"threads", threads}, {"other_thread", other_thread}};
} // namespace

int main(int argc, char **argv)
{
    for (const auto &mode : modes) {
        if (argc > 1 && std::strcmp(argv[1], mode.name) == 0) {
            mode.run();
            return 0;
        }
    }
    std::fprintf(stderr, "usage: %s MODE\n", argv[0]);
    return 2;
}

// Work for libstdc++: exceptions, streams, regular expressions, sorting, strings, containers, locales,
// threads. Prints results that no probe may change, then "throws N", "catches N", "rethrows N".
//
// usage: standard ROUNDS
#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <queue>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

namespace
{
unsigned long throws, catches, rethrows;

// What the library itself throws: at(), stoi(), substr(), bad casts, allocation.
std::string provoke(unsigned kind)
{
    std::vector<int> some(3);
    const std::string text = "short";
    switch (kind % 6) {
    case 0:
        return std::to_string(some.at(7));
    case 1:
        return std::to_string(std::stoi("no number"));
    case 2:
        return text.substr(100);
    case 3:
        return std::to_string(std::stol("99999999999999999999999"));
    case 4:
        some.resize(some.max_size());
        return "unreached";
    default:
        throw std::system_error(std::make_error_code(std::errc::no_such_file_or_directory), "made up");
    }
}

unsigned deep(unsigned levels, unsigned kind)
{
    const std::string local(levels + 20, 'x'); // to be destroyed on the way
    if (levels == 0)
        return static_cast<unsigned>(provoke(kind).size());
    if (levels % 5 == 0) {
        try {
            return deep(levels - 1, kind) + static_cast<unsigned>(local.size());
        } catch (...) {
            catches++;
            rethrows++;
            throw;
        }
    }
    return deep(levels - 1, kind) + static_cast<unsigned>(local.size());
}

void exceptions(unsigned rounds)
{
    std::map<std::string, unsigned> seen;
    for (unsigned i = 0; i < rounds; i++) {
        throws++;
        try {
            deep(20, i);
        } catch (const std::exception &error) {
            catches++;
            seen[error.what()]++;
        }
    }
    for (const auto &[what, count] : seen)
        std::cout << what << ": " << count << '\n';
}

void streams(unsigned rounds)
{
    std::ostringstream out;
    for (unsigned i = 0; i < rounds; i++) {
        out << std::setw(12) << std::setfill('.') << i << ' ' << std::hex << std::showbase << i * 7919u
            << std::dec << ' ' << std::setprecision(9) << i / 7.0 << ' ' << std::boolalpha << (i % 3 == 0)
            << ' ' << std::scientific << 1e10 / (i + 1) << std::defaultfloat << '\n';
    }
    std::istringstream in(out.str());
    std::string word;
    std::size_t hash = 0, words = 0;
    while (in >> word) {
        words++;
        for (const char c : word)
            hash = hash * 31 + static_cast<unsigned char>(c);
    }
    std::istringstream numbers("12 -7 3.25 0x1f nonsense");
    int a = 0, b = 0;
    double d = 0;
    unsigned h = 0;
    numbers >> a >> b >> d >> std::hex >> h;
    numbers >> std::dec >> a;
    std::cout << words << " words, " << hash << ' ' << a << ' ' << b << ' ' << d << ' ' << h << ' '
              << numbers.fail() << '\n';
    std::ifstream missing("/nowhere/at/all");
    std::cout << missing.is_open() << '\n';
}

void expressions(unsigned rounds)
{
    const std::regex pair("([a-z]+)=([0-9]+)"), mail("[[:alnum:]._]+@[[:alnum:].]+\\.[a-z]{2,}");
    std::string text;
    for (unsigned i = 0; i < rounds; i++)
        text += "key=" + std::to_string(i) + " some.one" + std::to_string(i) + "@host.example, ";
    unsigned long sum = 0, mails = 0;
    for (std::sregex_iterator i(text.begin(), text.end(), pair), end; i != end; ++i)
        sum += std::stoul((*i)[2]);
    for (std::sregex_iterator i(text.begin(), text.end(), mail), end; i != end; ++i)
        mails++;
    std::cout << sum << ' ' << mails << ' ' << std::regex_replace(text.substr(0, 40), pair, "$2:$1") << '\n';
    throws++;
    try {
        const std::regex bad("(unclosed");
    } catch (const std::regex_error &error) {
        catches++;
        std::cout << error.what() << '\n';
    }
}

void sorting(unsigned rounds)
{
    std::mt19937_64 random(42);
    std::vector<std::string> words;
    for (unsigned i = 0; i < rounds * 20; i++)
        words.push_back(std::to_string(random() % 100000) + (i % 2 ? "odd" : "even"));
    std::list<std::string> list(words.begin(), words.end());
    std::sort(words.begin(), words.end());
    list.sort(std::greater<>());
    std::stable_sort(words.begin(), words.end(), [](const auto &l, const auto &r) { return l.size() < r.size(); });
    std::set<std::string> set(words.begin(), words.end());
    std::unordered_map<std::string, int> counts;
    for (const auto &word : words)
        counts[word]++;
    std::priority_queue<std::string> queue(words.begin(), words.end());
    std::cout << words.front() << ' ' << words.back() << ' ' << list.front() << ' ' << set.size() << ' '
              << counts.size() << ' ' << queue.top() << '\n';
}

void locales()
{
    const std::locale classic = std::locale::classic();
    std::ostringstream out;
    out.imbue(classic);
    out << std::put_money("12345") << ' ' << std::use_facet<std::ctype<char>>(classic).toupper('x');
    const std::string a = "apple", b = "pear";
    out << ' ' << std::use_facet<std::collate<char>>(classic).compare(a.data(), a.data() + a.size(), b.data(),
                                                                     b.data() + b.size());
    std::wostringstream wide;
    wide << L"wide " << 3.5 << L' ' << std::setw(6) << 42;
    out << ' ' << wide.str().size();
    std::tm day = {};
    day.tm_year = 124;
    day.tm_mday = 29;
    day.tm_mon = 1;
    out << ' ' << std::put_time(&day, "%Y-%m-%d");
    throws++;
    try {
        out << std::locale("xx_NOWHERE").name();
    } catch (const std::runtime_error &) {
        catches++;
        out << " no such locale";
    }
    std::cout << out.str() << '\n';
}

void threads(unsigned rounds)
{
    std::mutex mutex;
    std::condition_variable changed;
    std::queue<std::string> queue;
    unsigned long sum = 0;
    std::exception_ptr kept;
    throws++;
    std::thread consumer([&] {
        for (unsigned i = 0; i < rounds; i++) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [&] { return !queue.empty(); });
            sum += std::stoul(queue.front());
            queue.pop();
        }
        try {
            throw std::runtime_error("from the thread");
        } catch (...) {
            kept = std::current_exception();
        }
        catches++;
    });
    for (unsigned i = 0; i < rounds; i++) {
        const std::lock_guard<std::mutex> lock(mutex);
        queue.push(std::to_string(i));
        changed.notify_one();
    }
    consumer.join();
    try {
        std::rethrow_exception(kept);
    } catch (const std::exception &error) {
        catches++;
        std::cout << error.what() << ' ' << sum << '\n';
    }
}
} // namespace

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 100;
    exceptions(rounds);
    streams(rounds);
    expressions(rounds);
    sorting(rounds);
    locales();
    threads(rounds);
    std::cout << "throws " << throws << "\ncatches " << catches << "\nrethrows " << rethrows << std::endl;
}

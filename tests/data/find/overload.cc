// C++ names: overloads, a template instance, a namespace, an exception's landing pads.
#include <cstdio>
#include <stdexcept>
#include <string>

static volatile int sink;

namespace shapes
{
__attribute__((noinline)) int area(int side)
{
    return sink = side * side;
}
__attribute__((noinline)) int area(int width, int height)
{
    return sink = width * height;
}
__attribute__((noinline)) int area(const char *text)
{
    return sink = text[0];
}
template <typename T> __attribute__((noinline)) T largest(T left, T right)
{
    sink = 1;
    return left > right ? left : right;
}
struct Box {
    int side;
    __attribute__((noinline)) explicit Box(int value) : side(value) { sink = value; }
    __attribute__((noinline)) ~Box() { sink = side; }
    __attribute__((noinline)) Box operator+(const Box &other) const { return Box(side + other.side); }
};
} // namespace shapes

__attribute__((noinline)) int area(int side)
{
    return sink = side + 1;
}

__attribute__((noinline)) void main_test()
{
    sink = 3;
}

__attribute__((noinline)) void throws(int value)
{
    if (value)
        throw std::runtime_error("value");
    sink = value;
}

__attribute__((noinline)) int catches(int value)
{
    try {
        std::string text(static_cast<size_t>(value), 'x');
        throws(value);
        sink = static_cast<int>(text.size());
    } catch (const std::runtime_error &) {
        return 4;
    } catch (...) {
        return 5;
    }
    return 6;
}

int main(int argc, char **)
{
    shapes::Box box = shapes::Box(argc) + shapes::Box(2);
    main_test();
    std::printf("%d\n", shapes::area(argc) + shapes::area(argc, 2) + shapes::area("a") + area(argc) +
                            shapes::largest(argc, 2) + static_cast<int>(shapes::largest(1.5, 2.5)) +
                            catches(argc) + box.side);
    return 0;
}

// The program that test_riscv64.c probes: no library, no system call. Many functions of the kinds that leave little
// room: one instruction and a return, a tail call, a branch at the entry, a loop back to it, a switch. It mixes
// all results into one word, which must be the same with every function, or every instruction, probed.
#define NOINLINE __attribute__((noinline, noclone))
typedef unsigned long word;

struct node {
    word value;
    struct node *next;
    word (*apply)(word, word);
    int kind;
};

static struct node node[64];
static word seen;

NOINLINE word get(const struct node *n) { return n->value; }
NOINLINE struct node *next(const struct node *n) { return n->next; }
NOINLINE int kind(const struct node *n) { return n->kind; }
NOINLINE void set(struct node *n, word value) { n->value = value; }
NOINLINE void both(struct node *n, word value, int kind) { n->value = value, n->kind = kind; }
NOINLINE word zero(void) { return 0; }
NOINLINE word one(void) { return 1; }
NOINLINE void nothing(void) { __asm__ volatile(""); }
NOINLINE word minus(word a) { return -a; }
NOINLINE word pass(word a) { return a; }
NOINLINE word *where(void) { return &seen; }
NOINLINE word what(void) { return seen; }
NOINLINE word low(word a) { return a > 127 ? a - 128 : a; }
NOINLINE word absolute(long a) { return a < 0 ? (word)-a : (word)a; }
NOINLINE int is_null(const void *p) { return p == 0; }
NOINLINE word add(word a, word b) { return a + b; }
NOINLINE word mix(word a, word b) { return (a ^ b) * 0x9e3779b97f4a7c15ul + (a >> 7); }
NOINLINE word tail(word a, word b) { return mix(b, a); }
NOINLINE word tail_small(word a) { return add(a, 1); }
NOINLINE word tail_where(word a) { return a ? mix(a, 3) : zero(); }
NOINLINE word calls_first(word a) { return mix(a, one()) + what(); }
NOINLINE word chain(const struct node *n) { return n->next ? n->next->value : 5; }

NOINLINE word loop(word count, word step)
{
    do
        step += count * 3;
    while (--count);
    return step;
}

NOINLINE word length(const char *text)
{
    const char *end = text;
    while (*end)
        end++;
    return (word)(end - text);
}

NOINLINE word factorial(word n) { return n < 2 ? 1 : n * factorial(n - 1); }

NOINLINE word choose(int which, word a)
{
    switch (which) {
    case 0: return a + 11;
    case 1: return a * 3;
    case 2: return a ^ 0x55;
    case 3: return a - 7;
    case 4: return a << 3;
    case 5: return mix(a, 5);
    case 6: return a | 0x101;
    case 7: return ~a;
    case 8: return a >> 2;
    case 9: return a + what();
    default: return a;
    }
}

NOINLINE word through(word (*f)(word, word), word a) { return f(a, a + 1); }
NOINLINE double half(double a) { return a * 0.5; }
NOINLINE word eight(word a, word b, word c, word d, word e, word f, word g, word h)
{
    return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h;
}

// Long and straight: there is room in these.
#define ROUND(a, b, c) (a) += (b) ^ ((c) >> 3), (b) = ((b) << 5) + (c) * 7, (c) ^= (a) - ((b) >> 11)
NOINLINE word straight(word a, word b, word c)
{
    ROUND(a, b, c), ROUND(b, c, a), ROUND(c, a, b), ROUND(a, c, b), ROUND(b, a, c), ROUND(c, b, a);
    ROUND(a, b, c), ROUND(b, c, a), ROUND(c, a, b), ROUND(a, c, b), ROUND(b, a, c), ROUND(c, b, a);
    ROUND(a, b, c), ROUND(b, c, a), ROUND(c, a, b), ROUND(a, c, b), ROUND(b, a, c), ROUND(c, b, a);
    ROUND(a, b, c), ROUND(b, c, a), ROUND(c, a, b), ROUND(a, c, b), ROUND(b, a, c), ROUND(c, b, a);
    return a + b + c;
}

NOINLINE void stores(struct node *n, word a)
{
    n[0].value += a, n[1].value += a * 2, n[2].value ^= a, n[3].value += a >> 1, n[4].value -= a;
    n[5].value += a + 1, n[6].value += a * 3, n[7].value ^= a + 2, n[8].value += a >> 2, n[9].value -= a + 9;
    n[10].value += a + 5, n[11].value += a * 5, n[12].value ^= ~a, n[13].value += a >> 4, n[14].value -= a + 8;
    n[15].value += a + 6, n[16].value += a * 6, n[17].value ^= a + 7, n[18].value += a >> 5, n[19].value -= a + 7;
}

NOINLINE word walk(void)
{
    word sum = 0;
    for (struct node *n = &node[0]; !is_null(n); n = next(n)) {
        sum = mix(sum, get(n)) + (word)kind(n) + chain(n);
        sum = through(n->apply, sum);
        both(n, sum, kind(n) + 1);
        set(n, get(n) + low(sum & 0xff));
    }
    return sum;
}

NOINLINE word work(word round)
{
    word sum = round;
    for (word i = 0; i < 64; i++)
        node[i] = (struct node){mix(i, round), i < 63 ? &node[i + 1] : 0, i & 1 ? mix : tail, (int)(i % 12)};
    sum = mix(sum, walk());
    for (int i = 0; i < 12; i++)
        sum = mix(sum, choose(i, sum));
    sum = mix(sum, loop(7, sum)) + tail_small(sum) + tail_where(sum & 1) + calls_first(sum);
    sum = mix(sum, length("a text of some length") + factorial(10) + absolute((long)sum));
    sum += minus(pass(sum >> 3)) + eight(1, 2, 3, sum, 5, 6, sum >> 5, 8) + (word)half((double)(sum & 0xffff));
    nothing();
    stores(node, sum);
    sum += straight(sum, node[3].value, node[17].value);
    *where() = sum;
    return sum;
}

word start(void)
{
    word sum = 0;
    for (word round = 0; round < 2; round++)
        sum = mix(sum, work(round));
    return sum;
}

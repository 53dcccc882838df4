// Reads the command line. getopt_long does the words; what they may mean together is decided here.
//
// Invariant: nothing has been opened, started or attached when a usage error is reported.
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define LONG_ONLY                                                                                  \
    "jmDaFRTPBQ"        // letters that are no short options, or better known by their long form
#define SECONDS_MAX 1e8 // three years: milliseconds of it fit everywhere
#define PID_MAX_LIMIT 4194304 // Linux, include/linux/threads.h
#define RING_EVENTS_MAX (1u << 20)

// Long options; the value is the short letter, which tl_cli_command.allowed names.
static const struct option long_options[] = {
    {"pid", required_argument, NULL, 'p'},
    {"duration", required_argument, NULL, 'd'},
    {"interval", required_argument, NULL, 'i'},
    {"json", no_argument, NULL, 'j'},
    {"method", required_argument, NULL, 'm'},
    {"debug-dir", required_argument, NULL, 'D'},
    {"output", required_argument, NULL, 'o'},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"all-instructions", no_argument, NULL, 'a'},
    {"follow", no_argument, NULL, 'f'},
    {"no-follow", no_argument, NULL, 'F'},
    {"return", required_argument, NULL, 'R'},
    {"allow-traps", no_argument, NULL, 'T'},
    {"probes", required_argument, NULL, 'P'},
    {"ring-events", required_argument, NULL, 'B'},
    {"quick", no_argument, NULL, 'Q'},
    {NULL, 0, NULL, 0},
};

int tl_cli_seconds_parse(const char *text, double *out, struct tl_diag *diag)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}};
    char *end;
    errno = 0;
    // strtod takes "inf", "nan" and "0x1p3" too; a time starts with a digit or a point.
    double value = strspn(text, "0123456789.") ? strtod(text, &end) : (end = NULL, -1);
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    for (size_t i = 0; end && !hex && !errno && i < TL_ARRAY_COUNT(units); i++) {
        if (strcmp(end, units[i].unit) != 0)
            continue;
        value *= units[i].seconds;
        if (!(value > 0 && value <= SECONDS_MAX))
            break;
        *out = value;
        return 0;
    }
    return tl_cli_error(diag, TL_E_USAGE,
                        "'%s' is no time: give seconds above 0, as 5, 0.5 or 500ms", text);
}

// A whole number from 1 to max.
static int number_parse(const char *text, long max, const char *what, long *out,
                        struct tl_diag *diag)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value <= 0 || value > max ||
        strspn(text, "0123456789") != strlen(text))
        return tl_cli_error(diag, TL_E_USAGE, "'%s' is no %s", text, what);
    *out = value;
    return 0;
}

static int pid_parse(const char *text, pid_t *out, struct tl_diag *diag)
{
    long value = 0;
    int error = number_parse(text, PID_MAX_LIMIT, "process id", &value, diag);
    if (!error)
        *out = (pid_t)value;
    return error;
}

static int ring_parse(const char *text, uint32_t *out, struct tl_diag *diag)
{
    long value = 0;
    int error = number_parse(text, RING_EVENTS_MAX, "number of events, 1 to 1048576", &value, diag);
    if (!error)
        *out = (uint32_t)value;
    return error;
}

// Index of the name that text is. Names that are no choice are NULL.
static int choice_parse(const char *text, const char *const *names, size_t count,
                        const char *sentence, int *out, struct tl_diag *diag)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i] && strcmp(text, names[i]) == 0) {
            *out = (int)i;
            return 0;
        }
    }
    return tl_cli_error(diag, TL_E_USAGE, "'%s' is no %s", text, sentence);
}

static int method_parse(const char *text, enum tl_method *out, struct tl_diag *diag)
{
    static const char *const names[] = {
        [TL_METHOD_AUTO] = "auto",         [TL_METHOD_JUMP] = "jump", [TL_METHOD_KERNEL] = "kernel",
        [TL_METHOD_SIMULATE] = "simulate", [TL_METHOD_SLOT] = "slot", [TL_METHOD_STEP] = "step"};
    int value = 0;
    int error = choice_parse(text, names, TL_ARRAY_COUNT(names),
                             "method: auto, jump, kernel, simulate, slot or step", &value, diag);
    if (!error)
        *out = (enum tl_method)value;
    return error;
}

static int return_parse(const char *text, enum tl_return_way *out, struct tl_diag *diag)
{
    static const char *const names[] = {
        [TL_RETURN_EXIT] = "exit", [TL_RETURN_TRAMPOLINE] = "trampoline"};
    int value = 0;
    int error = choice_parse(text, names, TL_ARRAY_COUNT(names),
                             "way to probe a return: exit or trampoline", &value, diag);
    if (!error)
        *out = (enum tl_return_way)value;
    return error;
}

static int once(bool *given, const char *option, struct tl_diag *diag)
{
    if (*given)
        return tl_cli_error(diag, TL_E_USAGE, "%s is given twice", option);
    *given = true;
    return 0;
}

struct parse {
    const struct tl_cli_command *command;
    struct tl_cli_options options;
    bool given[128];
};

static int word_add(struct tl_cli_options *options, const char *word, struct tl_diag *diag)
{
    if (options->word_count == TL_CLI_WORDS_MAX)
        return tl_cli_error(diag, TL_E_USAGE, "more than %d words", TL_CLI_WORDS_MAX);
    options->words[options->word_count++] = word;
    return 0;
}

// The option as a person writes it.
static const char *option_name(int letter, char name[static 3])
{
    (void)snprintf(name, 3, "-%c", (char)letter);
    for (size_t i = 0; long_options[i].name; i++) {
        if (long_options[i].val == letter && strchr(LONG_ONLY, letter))
            return long_options[i].name;
    }
    return name;
}

static int value_take(struct tl_cli_options *options, int letter, const char *value,
                      struct tl_diag *diag)
{
    switch (letter) {
    case 'p':
        return pid_parse(value, &options->pid, diag);
    case 'd':
        return tl_cli_seconds_parse(value, &options->duration_s, diag);
    case 'i':
        return tl_cli_seconds_parse(value, &options->interval_s, diag);
    case 'm':
        return method_parse(value, &options->method, diag);
    case 'R':
        return return_parse(value, &options->return_way, diag);
    case 'B':
        return ring_parse(value, &options->ring_events, diag);
    case 'D':
        options->debug_dir = value;
        return 0;
    case 'P':
        options->probes_file = value;
        return 0;
    default:
        options->output = value;
        return 0;
    }
}

static int option_take(struct parse *parse, int letter, const char *value, struct tl_diag *diag)
{
    struct tl_cli_options *options = &parse->options;
    const struct {
        char letter;
        bool *flag;
    } flags[] = {{'j', &options->json},      {'a', &options->all_insns},   {'q', &options->quiet},
                 {'v', &options->verbose},   {'h', &options->help},        {'f', &options->follow},
                 {'F', &options->no_follow}, {'T', &options->allow_traps}, {'Q', &options->quick}};
    char name[3];
    const char *shown = option_name(letter, name);
    if (letter != 'h' && !strchr(parse->command->allowed, letter))
        return tl_cli_error(diag, TL_E_USAGE, "%s%s is no option of this command",
                            shown == name ? "" : "--", shown);
    for (size_t i = 0; i < TL_ARRAY_COUNT(flags); i++) {
        if (flags[i].letter == letter) {
            *flags[i].flag = true;
            return 0;
        }
    }
    int error = once(&parse->given[letter & 127], shown, diag);
    return error ? error : value_take(options, letter, value, diag);
}

static int check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (options->help)
        return 0;
    if (options->quiet && options->verbose)
        return tl_cli_error(diag, TL_E_USAGE, "-q and -v contradict each other");
    if (options->follow && options->no_follow)
        return tl_cli_error(diag, TL_E_USAGE, "-f and --no-follow contradict each other");
    if (options->pid && options->argv)
        return tl_cli_error(diag, TL_E_USAGE, "give either -p PID or -- COMMAND, not both");
    if (options->argv && !options->argv[0])
        return tl_cli_error(diag, TL_E_USAGE, "no command follows --");
    if (options->duration_s > 0 && options->interval_s > options->duration_s)
        return tl_cli_error(diag, TL_E_USAGE, "the interval (-i) is longer than the run (-d)");
    return 0;
}

// '-' makes getopt hand over words in their order and never look at POSIXLY_CORRECT; ':' makes it
// tell a missing value from an unknown option.
#define SHORT_OPTIONS "-:p:d:i:o:qvhajf"

static int words_parse(struct parse *parse, int argc, char **argv, struct tl_diag *diag)
{
    int error = 0;
    opterr = 0;
    optind = 0; // glibc: start anew
    while (!error) {
        int at = optind ? optind : 1;
        int letter = getopt_long(argc, argv, SHORT_OPTIONS, long_options, NULL);
        const char *word = at < argc ? argv[at] : "";
        if (letter == -1)
            break;
        if (letter == 1)
            error = word_add(&parse->options, optarg, diag);
        else if (letter == ':')
            error = tl_cli_error(diag, TL_E_USAGE, "%s wants a value", word);
        else if (letter == '?' && optopt && strncmp(word, "--", 2) == 0)
            error = tl_cli_error(diag, TL_E_USAGE, "%s takes no value", word);
        else if (letter == '?')
            error = tl_cli_error(diag, TL_E_USAGE, "unknown option %s", word);
        else
            error = option_take(parse, letter, optarg, diag);
    }
    return error;
}

int tl_cli_options_parse(const struct tl_cli_command *command, int argc, char **argv,
                         struct tl_cli_options *out, struct tl_diag *diag)
{
    struct parse parse = {.command = command, .options = {.command = command->name}};
    parse.options.words = calloc((size_t)argc + 1, sizeof *parse.options.words);
    if (!parse.options.words)
        return tl_cli_error(diag, TL_E_NOMEM, "out of memory");
    // What follows the first "--" is the command to start; getopt must not see it.
    int own = argc;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            parse.options.argv = argv + i + 1;
            own = i;
            break;
        }
    }
    int error = 0;
    if (parse.options.argv && !strchr(command->allowed, '-'))
        error = tl_cli_error(diag, TL_E_USAGE, "this command starts no program (--)");
    if (!error)
        error = words_parse(&parse, own, argv, diag);
    if (!error)
        error = check(&parse.options, diag);
    if (!error && !parse.options.help)
        error = command->check(&parse.options, diag);
    if (error) {
        tl_cli_options_deinit(&parse.options);
        return error;
    }
    *out = parse.options;
    return 0;
}

void tl_cli_options_deinit(struct tl_cli_options *options)
{
    free(options->words);
    free(options->probes_text);
    options->words = NULL;
    options->probes_text = NULL;
}

bool tl_cli_follow(const struct tl_cli_options *options)
{
    return options->argv ? !options->no_follow : options->follow;
}

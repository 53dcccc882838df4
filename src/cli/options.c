// Reads the command line. getopt_long does the words; what they may mean together is decided here.
//
// Invariant: nothing has been opened, started or attached when a usage error is reported.
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define SECONDS_MAX 1e8       // three years: milliseconds of it fit everywhere
#define PID_MAX_LIMIT 4194304 // Linux, include/linux/threads.h

// Long options; the value is the short letter, which tl_cli_command.allowed names.
static const struct option long_options[] = {
    {"pid", required_argument, NULL, 'p'},        {"duration", required_argument, NULL, 'd'},
    {"interval", required_argument, NULL, 'i'},   {"json", no_argument, NULL, 'j'},
    {"method", required_argument, NULL, 'm'},     {"debug-dir", required_argument, NULL, 'D'},
    {"output", required_argument, NULL, 'o'},     {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},          {"help", no_argument, NULL, 'h'},
    {"all-instructions", no_argument, NULL, 'a'}, {NULL, 0, NULL, 0},
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
    return tl_diag_set(diag, TL_E_USAGE,
                       "'%s' is no time: give seconds above 0, as 5, 0.5 or 500ms", text);
}

static int pid_parse(const char *text, pid_t *out, struct tl_diag *diag)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value <= 0 || value > PID_MAX_LIMIT ||
        strspn(text, "0123456789") != strlen(text))
        return tl_diag_set(diag, TL_E_USAGE, "'%s' is no process id", text);
    *out = (pid_t)value;
    return 0;
}

static int method_parse(const char *text, enum tl_method *out, struct tl_diag *diag)
{
    static const char *const names[] = {
        [TL_METHOD_AUTO] = "auto", [TL_METHOD_JUMP] = "jump", [TL_METHOD_KERNEL] = "kernel"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum tl_method)i;
            return 0;
        }
    }
    return tl_diag_set(diag, TL_E_USAGE, "'%s' is no method of this version: auto, jump or kernel",
                       text);
}

static int once(bool *given, const char *option, struct tl_diag *diag)
{
    if (*given)
        return tl_diag_set(diag, TL_E_USAGE, "%s is given twice", option);
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
        return tl_diag_set(diag, TL_E_USAGE, "more than %d words", TL_CLI_WORDS_MAX);
    options->words[options->word_count++] = word;
    return 0;
}

static int option_take(struct parse *parse, int letter, const char *value, struct tl_diag *diag)
{
    struct tl_cli_options *options = &parse->options;
    char name[3] = {'-', (char)letter, 0};
    bool repeatable = letter == 'q' || letter == 'v' || letter == 'h' || letter == 'j';
    const char *shown = name;
    for (size_t i = 0; long_options[i].name; i++) {
        if (long_options[i].val == letter && strchr("jmDa", letter))
            shown = long_options[i].name;
    }
    if (letter != 'h' && !strchr(parse->command->allowed, letter))
        return tl_diag_set(diag, TL_E_USAGE, "%s%s is no option of this command",
                           shown == name ? "" : "--", shown);
    int error = repeatable ? 0 : once(&parse->given[letter & 127], shown, diag);
    if (error)
        return error;
    switch (letter) {
    case 'p':
        return pid_parse(value, &options->pid, diag);
    case 'd':
        return tl_cli_seconds_parse(value, &options->duration_s, diag);
    case 'i':
        return tl_cli_seconds_parse(value, &options->interval_s, diag);
    case 'm':
        options->has_method = true;
        return method_parse(value, &options->method, diag);
    case 'D':
        options->debug_dir = value;
        return 0;
    case 'o':
        options->output = value;
        return 0;
    case 'j':
        options->json = true;
        return 0;
    case 'a':
        options->all_insns = true;
        return 0;
    case 'q':
        options->quiet = true;
        return 0;
    case 'v':
        options->verbose = true;
        return 0;
    default:
        options->help = true;
        return 0;
    }
}

static int check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (options->help)
        return 0;
    if (options->quiet && options->verbose)
        return tl_diag_set(diag, TL_E_USAGE, "-q and -v contradict each other");
    if (options->pid && options->argv)
        return tl_diag_set(diag, TL_E_USAGE, "give either -p PID or -- COMMAND, not both");
    if (options->argv && !options->argv[0])
        return tl_diag_set(diag, TL_E_USAGE, "no command follows --");
    if (options->duration_s > 0 && options->interval_s > options->duration_s)
        return tl_diag_set(diag, TL_E_USAGE, "the interval (-i) is longer than the run (-d)");
    return 0;
}

// '-' makes getopt hand over words in their order and never look at POSIXLY_CORRECT; ':' makes it
// tell a missing value from an unknown option.
#define SHORT_OPTIONS "-:p:d:i:o:qvhaj"

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
            error = tl_diag_set(diag, TL_E_USAGE, "%s wants a value", word);
        else if (letter == '?' && optopt && strncmp(word, "--", 2) == 0)
            error = tl_diag_set(diag, TL_E_USAGE, "%s takes no value", word);
        else if (letter == '?')
            error = tl_diag_set(diag, TL_E_USAGE, "unknown option %s", word);
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
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
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
        error = tl_diag_set(diag, TL_E_USAGE, "this command starts no program (--)");
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
    options->words = NULL;
}

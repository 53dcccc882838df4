// trapless list and trapless explain: both only look. No lock, no ptrace; a file needs no process.
//
// Invariant: what list prints is what count would match, since both ask the same find stage.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "find/find.h"

// ---- list
// ------------------------------------------------------------------------------------------

struct list {
    struct tl_cli *cli;
    struct tl_maps maps;
    struct tl_modules *modules;
    const char *pattern;
    size_t found;
};

static int list_open(struct list *list, struct tl_diag *diag)
{
    const struct tl_cli_options *options = &list->cli->options;
    struct tl_image_options image = {.debug_dir = options->debug_dir};
    char root[64];
    if (!options->pid)
        return tl_modules_of_file(options->words[0], &image, &list->modules, diag);
    (void)snprintf(root, sizeof root, "/proc/%d/root", (int)options->pid);
    image.root = root;
    int error = tl_maps_read(options->pid, &list->maps, diag);
    if (!error)
        error = tl_modules_of_process(options->pid, &list->maps, &image, &list->modules, diag);
    return error;
}

// All functions at symbols[first].vaddr, as one line. Returns how many symbols that were.
static size_t function_show(struct list *list, const struct tl_module *module,
                            const struct tl_symbol *symbols, size_t first, size_t count)
{
    struct tl_show_function function = {.file = module->path,
                                        .addr = symbols[first].vaddr + (tl_addr)module->bias,
                                        .size = symbols[first].size};
    size_t last = first;
    for (; last < count && symbols[last].vaddr == symbols[first].vaddr; last++) {
        const struct tl_symbol *symbol = &symbols[last];
        if (function.name_count && strcmp(symbols[last - 1].name, symbol->name) == 0)
            continue; // in both tables
        if (function.name_count < TL_SHOW_NAMES_MAX) {
            function.names[function.name_count] = symbol->name;
            function.demangled[function.name_count++] = symbol->demangled;
        }
        if (symbol->size > function.size)
            function.size = symbol->size;
    }
    tl_show_function(&list->cli->show, &function);
    list->found++;
    return last - first;
}

static size_t symbol_first_at(const struct tl_symbol *symbols, size_t count, tl_addr vaddr)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbols[middle].vaddr < vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void module_list(struct list *list, const struct tl_module *module)
{
    const struct tl_symbol *symbols = NULL;
    size_t count = tl_image_symbols(module->image, &symbols);
    for (size_t i = 0; i < count;)
        i += function_show(list, module, symbols, i, count);
}

// With a pattern: the functions of the sites that count would probe.
static int pattern_list(struct list *list, struct tl_diag *diag)
{
    struct tl_probe_spec spec;
    int error = tl_probe_parse(list->pattern, &spec, diag);
    if (error)
        return error;
    const struct tl_find_context context = {.modules = list->modules,
                                            .pid = list->cli->options.pid};
    struct tl_sites sites = {0};
    int result = tl_find_sites(&context, &spec, &sites, diag);
    for (size_t i = 0; result > 0 && i < sites.count; i++) {
        struct tl_module *module = tl_modules_get(list->modules, sites.site[i].module);
        const struct tl_symbol *symbols = NULL;
        size_t count = tl_image_symbols(module->image, &symbols);
        tl_addr at = sites.site[i].function ? sites.site[i].function : sites.site[i].vaddr;
        size_t first = symbol_first_at(symbols, count, at);
        if (first < count && symbols[first].vaddr == at)
            (void)function_show(list, module, symbols, first, count);
    }
    tl_sites_deinit(&sites);
    tl_probe_spec_deinit(&spec);
    return result < 0 ? result : 0;
}

static int list_run(struct tl_cli *cli)
{
    const struct tl_cli_options *options = &cli->options;
    struct list list = {.cli = cli};
    struct tl_diag diag = {{0}};
    size_t pattern_at = options->pid ? 0 : 1;
    list.pattern = options->word_count > pattern_at ? options->words[pattern_at] : NULL;
    int error = list_open(&list, &diag);
    if (!error && list.pattern)
        error = pattern_list(&list, &diag);
    else if (!error)
        for (size_t i = 0; i < tl_modules_count(list.modules); i++)
            module_list(&list, tl_modules_get(list.modules, i));
    if (!error && !list.found)
        error =
            diag.text[0] ? TL_E_NOMATCH : tl_diag_set(&diag, TL_E_NOMATCH, "no function matched");
    int status = error ? tl_cli_fail(cli, error, &diag) : TL_EXIT_DONE;
    if (list.modules && tl_modules_notes(list.modules)[0])
        tl_cli_note(cli, "%s", tl_modules_notes(list.modules));
    tl_modules_destroy(list.modules);
    tl_maps_deinit(&list.maps);
    return status;
}

static int list_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    size_t words_max = options->pid ? 1 : 2;
    if (!options->pid && !options->word_count)
        return tl_diag_set(diag, TL_E_USAGE, "nothing to list: give -p PID or a FILE");
    if (options->word_count > words_max)
        return tl_diag_set(diag, TL_E_USAGE, "'%s' is one word too many",
                           options->words[words_max]);
    return 0;
}

const struct tl_cli_command tl_cli_list_command = {
    .name = "list",
    .allowed = "pojqvD",
    .usage = "list [-p PID | FILE] [PATTERN]",
    .help = "Lists functions: address, size in bytes, file, names (demangled ones in brackets).\n"
            "Of a process: all its files, or those that PATTERN names (FUNCTION is in the main\n"
            "program, FILE:FUNCTION elsewhere, *:FUNCTION everywhere; * and ? match).\n"
            "\n"
            "  -p, --pid PID         a running process, else a FILE\n"
            "      --debug-dir DIR   look for separate debug files here first\n"
            "      --json            JSON lines\n"
            "  -o, --output FILE     write to FILE\n"
            "  -q, -v                quiet, verbose\n",
    .check = list_check,
    .run = list_run,
};

// ---- explain
// ---------------------------------------------------------------------------------------

static void sites_print(struct tl_cli *cli, struct tl_session *session)
{
    size_t reasons[TL_REFUSAL_COUNT] = {0};
    struct tl_session_totals totals;
    size_t count = tl_session_site_count(session);
    for (size_t i = 0; i < count && !ferror(cli->out); i++) {
        const struct tl_site_report *report = tl_session_site(session, i);
        tl_show_site(&cli->show, report);
        if (report->rung == TL_RUNG_REFUSED && (unsigned)report->refusal < TL_REFUSAL_COUNT)
            reasons[report->refusal]++;
    }
    tl_session_totals(session, &totals);
    tl_show_summary(&cli->show, &totals, reasons, false);
}

static int explain_run(struct tl_cli *cli)
{
    const struct tl_cli_options *options = &cli->options;
    size_t first = options->pid ? 0 : 1, matched = 0;
    struct tl_session *session = NULL;
    struct tl_diag diag = {{0}};
    const struct tl_session_options session_options = {.size = sizeof session_options,
                                                       .pid = options->pid,
                                                       .file =
                                                           options->pid ? NULL : options->words[0],
                                                       .method = options->method,
                                                       .debug_dir = options->debug_dir,
                                                       .progress = tl_cli_progress,
                                                       .opaque = cli,
                                                       .read_only = true,
                                                       .all_insns = options->all_insns};
    int error = tl_session_create(&session_options, &session, &diag);
    for (size_t i = first; !error && i < options->word_count; i++) {
        int result = tl_session_add(session, options->words[i], &diag);
        if (result < 0 && result != TL_E_NOMATCH)
            error = result;
        else if (result <= 0)
            tl_cli_note(cli, "%s", diag.text);
        else
            matched += (size_t)result;
    }
    if (!error && !matched)
        error = tl_diag_set(&diag, TL_E_NOMATCH, "no probe matched");
    if (!error)
        error = tl_session_explain(session, &diag);
    tl_cli_progress_end(cli);
    if (!error) {
        sites_print(cli, session);
        tl_cli_notes(cli, session);
    }
    int status = error ? tl_cli_fail(cli, error, &diag) : TL_EXIT_DONE;
    tl_session_destroy(session);
    return status;
}

static int explain_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (!options->pid && !options->word_count)
        return tl_diag_set(diag, TL_E_USAGE, "nothing to explain: give -p PID or a FILE");
    if (options->word_count < (options->pid ? 1u : 2u))
        return tl_diag_set(diag, TL_E_USAGE, "no pattern is given");
    return 0;
}

const struct tl_cli_command tl_cli_explain_command = {
    .name = "explain",
    .allowed = "pojqvDma",
    .usage = "explain [-p PID | FILE] PATTERN... [--json]",
    .help =
        "Says for every site that PATTERN matches which rung it would get, why, and what would be\n"
        "overwritten. Changes nothing. Each site is planned as if it were the only one.\n"
        "\n"
        "  -p, --pid PID         a running process, else a FILE\n"
        "  -a, --all-instructions  every instruction of the functions, not only their entry\n"
        "      --method METHOD   auto, jump, kernel\n"
        "      --debug-dir DIR   look for separate debug files here first\n"
        "      --json            JSON lines\n"
        "  -o, --output FILE     write to FILE\n"
        "  -q, -v                quiet, verbose\n",
    .check = explain_check,
    .run = explain_run,
};

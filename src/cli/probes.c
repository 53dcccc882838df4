// Probes from the command line and from a file.
//
// It knows nothing of what a probe looks like: each goes to the session as it was written.
// Invariant: a probe that matched nothing is noted, or counted in the last note.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define FILE_SIZE_MAX (256u << 20)
#define FILE_PIECE 65536
#define UNMATCHED_SHOWN_MAX 20

static int text_read(FILE *file, const char *name, char **out, size_t *out_size,
                     struct tl_diag *diag)
{
    char *text = NULL;
    size_t used = 0, size = 0;
    for (;;) {
        if (size - used <= FILE_PIECE) {
            size = size ? size * 2 : 2 * FILE_PIECE + 1;
            char *more = size > FILE_SIZE_MAX ? NULL : realloc(text, size);
            if (!more) {
                free(text);
                return tl_cli_error(diag, TL_E_LIMIT, "%s: too large for a list of probes", name);
            }
            text = more;
        }
        size_t got = fread(text + used, 1, FILE_PIECE, file);
        used += got;
        if (got < FILE_PIECE)
            break;
    }
    if (ferror(file)) {
        free(text);
        return tl_cli_error(diag, TL_E_SYSTEM, "%s: %s", name, strerror(errno));
    }
    text[used] = 0;
    *out = text;
    *out_size = used;
    return 0;
}

// Cuts off a comment, and blanks on both sides. A # inside a word is part of a name.
static char *line_trim(char *line)
{
    line += strspn(line, " \t\r");
    for (char *at = line; *at; at++) {
        if (*at == '#' && (at == line || strchr(" \t", at[-1]))) {
            *at = 0;
            break;
        }
    }
    size_t length = strlen(line);
    while (length && strchr(" \t\r", line[length - 1]))
        line[--length] = 0;
    return line;
}

static int lines_add(struct tl_cli_options *options, const char *name, struct tl_diag *diag)
{
    size_t before = options->word_count, lines = 1;
    for (const char *at = options->probes_text; (at = strchr(at, '\n')); at++)
        lines++;
    const char **words = realloc(options->words, (before + lines + 1) * sizeof *words);
    if (!words)
        return tl_cli_error(diag, TL_E_NOMEM, "out of memory");
    options->words = words;
    char *rest = options->probes_text;
    while (rest) {
        char *line = line_trim(strsep(&rest, "\n"));
        if (!*line)
            continue;
        if (options->word_count - before == TL_CLI_PROBES_MAX)
            return tl_cli_error(diag, TL_E_LIMIT, "%s: more than %d probes", name,
                                TL_CLI_PROBES_MAX);
        options->words[options->word_count++] = line;
    }
    if (!options->word_count)
        return tl_cli_error(diag, TL_E_USAGE, "%s: no probe is in it, and none is given", name);
    return 0;
}

int tl_cli_probes_read(struct tl_cli_options *options, struct tl_diag *diag)
{
    if (!options->probes_file)
        return 0;
    bool standard = strcmp(options->probes_file, "-") == 0;
    const char *name = standard ? "standard input" : options->probes_file;
    FILE *file = standard ? stdin : fopen(options->probes_file, "re");
    if (!file)
        return tl_cli_error(diag, TL_E_SYSTEM, "%s: %s", name, strerror(errno));
    size_t size = 0;
    int error = text_read(file, name, &options->probes_text, &size, diag);
    if (!standard)
        (void)fclose(file);
    if (!error && strlen(options->probes_text) != size)
        error = tl_cli_error(diag, TL_E_USAGE, "%s: this is no list of probes", name);
    return error ? error : lines_add(options, name, diag);
}

int tl_cli_probes_add(struct tl_cli *cli, struct tl_session *session, size_t first_word,
                      struct tl_diag *diag)
{
    const struct tl_cli_options *options = &cli->options;
    size_t unmatched = 0;
    for (size_t i = first_word; i < options->word_count; i++) {
        int result = tl_session_add(session, options->words[i], diag);
        if (result < 0 && result != TL_E_NOMATCH)
            return result;
        if (result <= 0 && (unmatched++ < UNMATCHED_SHOWN_MAX || options->verbose))
            tl_cli_note(cli, "%s", diag->text);
        tl_cli_progress(cli, "matched", i + 1, options->word_count);
    }
    if (unmatched > UNMATCHED_SHOWN_MAX && !options->verbose)
        tl_cli_note(cli, "and %zu more matched nothing (-v names them)",
                    unmatched - UNMATCHED_SHOWN_MAX);
    return 0; // the session says whether no match at all is an error: a library may come later
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_docs: help and the manual page from the tables. Completion is in cli_complete.c.
 */
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "version.h"

#define WRAP 80

/* ---- help ---- */

/* Words of `text` in lines of WRAP columns, each begun by `indent` blanks; the cursor stands at
 * `at`. */
static void wrap(const char *text, size_t indent, size_t at, struct buf *out)
{
    struct str rest = str_c(text), word;
    bool more = true, first = true;

    while (str_next(&rest, ' ', &more, &word)) {
        if (!word.len)
            continue;
        if (!first && at + 1 + word.len > WRAP) {
            (void)buf_add_c(out, '\n');
            term_pad(indent, out);
            at = indent;
        } else if (!first) {
            (void)buf_add_c(out, ' ');
            at++;
        }
        (void)buf_add_str(out, word);
        at += word.len;
        first = false;
    }
    (void)buf_add_c(out, '\n');
}

static void help_option(const struct cli_option *o, struct buf *out)
{
    size_t begin = out->len;

    (void)buf_addf(out, "  %c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
                   o->letter ? ", " : "  ", o->name, o->value ? " " : "", o->value ? o->value : "");
    size_t used = out->len - begin;
    if (used > 26) {
        (void)buf_add_c(out, '\n');
        used = 0;
    }
    term_pad(28 - used, out);
    wrap(o->help, 28, 28, out);
    if (o->choices && o->choices[0] != '@') {
        term_pad(28, out);
        (void)buf_addf(out, "(%s)\n", o->choices);
    }
}

static void help_options(const struct cli_table *t, const struct cli_command *cmd, bool everywhere,
                         struct buf *out)
{
    bool first = true;

    for (size_t i = 0; i < t->options_len; i++) {
        const struct cli_option *o = &t->options[i];
        if (o->everywhere != everywhere || !cli_command_takes(cmd, o))
            continue;
        if (first)
            (void)buf_add_str(out,
                              everywhere ? STR("\nOptions of all commands\n") : STR("\nOptions\n"));
        help_option(o, out);
        first = false;
    }
}

void cli_help(const struct cli_table *t, const char *program, struct buf *out)
{
    (void)buf_addf(out, "usage: %s COMMAND [options]\n\nCommands\n", program);
    for (size_t i = 0; t->commands[i]; i++) {
        (void)buf_addf(out, "  %-16s ", t->commands[i]->name);
        wrap(t->commands[i]->help, 19, 19, out);
    }
    help_options(t, NULL, true, out);
    (void)buf_addf(out,
                   "\nExit codes: 0 done; 1 done, and the answer is a no (nothing found, not "
                   "ready, over\n--fail-over, partial); 2 could not be done.\n"
                   "%s COMMAND --help says more about a command.\n",
                   program);
}

/* As a whole word, or the first one. */
static bool says(struct str line, struct str word, bool first)
{
    bool more = true;
    struct str one;

    while (str_next(&line, ' ', &more, &one)) {
        while (one.len && strchr(",.;:", one.ptr[one.len - 1]))
            one.len--;
        if (str_eq(one, word))
            return true;
        if (first)
            return false;
    }
    return false;
}

/* Lines about one word begin with it; a word that begins none stands in that of another one. */
static bool line_is_of(const struct cli_command *cmd, struct str line, struct str word)
{
    struct str rest = str_c(cmd->more), one;
    bool more = true, begins = false;

    while (str_next(&rest, '\n', &more, &one))
        begins |= says(one, word, true);
    return says(line, word, begins);
}

void cli_help_command(const struct cli_table *t, const char *program, const struct cli_command *cmd,
                      const char *word, struct buf *out)
{
    bool one = word && cmd->words && says(str_c(cmd->words), str_c(word), false);
    struct str rest = str_c(cmd->more), line;
    bool more = true;
    char text[1024];
    bool named = cli_names(program, cmd);

    (void)buf_addf(out, "usage: %s%s%s%s%s\n\n", program, named ? "" : " ", named ? "" : cmd->name,
                   cmd->args[0] ? " " : "", cmd->args);
    wrap(cmd->help, 0, 0, out);
    while (str_next(&rest, '\n', &more, &line)) {
        if (one && !line_is_of(cmd, line, str_c(word)))
            continue;
        CHECK(line.len < sizeof(text));
        memcpy(text, line.ptr, line.len);
        text[line.len] = '\0';
        (void)buf_add_c(out, '\n');
        wrap(text, 0, 0, out);
    }
    if (one)
        (void)buf_addf(out, "\nOf the other words: %s%s%s --help\n", program, named ? "" : " ",
                       named ? "" : cmd->name);
    help_options(t, cmd, false, out);
    help_options(t, cmd, true, out);
}

/* ---- the manual page (man(7)) ---- */

/* Text as roff takes it: '-' is a hyphen there, a dot or quote that begins a line a request. */
static void roff(const char *text, struct buf *out)
{
    bool begins = true;

    for (const char *p = text; *p; p++) {
        if (begins && (*p == '.' || *p == '\''))
            (void)buf_add_str(out, STR("\\&"));
        begins = *p == '\n';
        if (*p == '\\')
            (void)buf_add_str(out, STR("\\e"));
        else if (*p == '-')
            (void)buf_add_str(out, STR("\\-"));
        else if (*p == '\'')
            (void)buf_add_str(out, STR("\\(aq"));
        else if (*p == '~')
            (void)buf_add_str(out, STR("\\(ti"));
        else if (*p == '`')
            (void)buf_add_str(out, STR("\\(ga"));
        else
            (void)buf_add_c(out, *p);
    }
}

static void man_option(const struct cli_option *o, struct buf *out)
{
    (void)buf_add_str(out, STR(".TP\n"));
    if (o->letter)
        (void)buf_addf(out, "\\fB\\-%c\\fR, ", o->letter);
    (void)buf_add_str(out, STR("\\fB\\-\\-"));
    roff(o->name, out);
    (void)buf_add_str(out, STR("\\fR"));
    if (o->value)
        (void)buf_addf(out, " \\fI%s\\fR", o->value);
    (void)buf_add_c(out, '\n');
    roff(o->help, out);
    if (o->choices && o->choices[0] != '@') {
        (void)buf_add_str(out, STR(" ("));
        roff(o->choices, out);
        (void)buf_add_c(out, ')');
    }
    (void)buf_add_str(out, STR(".\n"));
}

static void man_command(const struct cli_table *t, const struct cli_command *cmd, struct buf *out)
{
    struct str rest = str_c(cmd->more), line;
    bool more = true, first = true;
    char text[1024];

    (void)buf_add_str(out, STR(".SS \""));
    roff(cmd->name, out);
    (void)buf_add_str(out, cmd->args[0] ? STR(" ") : STR(""));
    for (const char *p = cmd->args; *p; p++) { /* inside quotes a quote is two */
        char one[3] = { *p, *p == '"' ? '"' : '\0', '\0' };
        roff(one, out);
    }
    (void)buf_add_str(out, STR("\"\n"));
    roff(cmd->help, out);
    (void)buf_add_c(out, '\n');
    while (str_next(&rest, '\n', &more, &line)) {
        CHECK(line.len < sizeof(text));
        memcpy(text, line.ptr, line.len);
        text[line.len] = '\0';
        (void)buf_add_str(out, STR(".PP\n"));
        roff(text, out);
        (void)buf_add_c(out, '\n');
    }
    for (size_t i = 0; i < t->options_len; i++) {
        if (t->options[i].everywhere || !cli_command_takes(cmd, &t->options[i]))
            continue;
        if (first)
            (void)buf_add_str(out, STR(".PP\nOptions:"));
        (void)buf_addf(out, "%s \\fB\\-\\-", first ? "" : ",");
        roff(t->options[i].name, out);
        (void)buf_add_str(out, STR("\\fR"));
        first = false;
    }
    (void)buf_add_str(out, first ? STR("") : STR(".\n"));
}

void cli_man(const struct cli_table *t, struct buf *out)
{
    (void)buf_add_str(
        out, STR(".TH EMBERTREECTL 1 \"\" \"Embertree " EMBERTREE_VERSION "\" \"Embertree\"\n"));
    (void)buf_add_str(
        out, STR(".SH NAME\nembertreectl \\- ask "
                 "a continuous profiling server, from a terminal or a script\n.SH SYNOPSIS\n"
                 ".B embertreectl\n.I command\n[\\fIoptions\\fR] [\\fIarguments\\fR]\n"
                 ".SH DESCRIPTION\nShows what programs spend their time and memory on, as an "
                 "Embertree server keeps it: functions, call trees, differences, files for other "
                 "tools. Names that come from the server are made harmless before they reach a "
                 "terminal.\n.SH COMMANDS\n"));
    for (size_t i = 0; t->commands[i]; i++)
        man_command(t, t->commands[i], out);
    (void)buf_add_str(out, STR(".SH OPTIONS OF ALL COMMANDS\n"));
    for (size_t i = 0; i < t->options_len; i++)
        if (t->options[i].everywhere)
            man_option(&t->options[i], out);
    (void)buf_add_str(out, STR(".SH OTHER OPTIONS\n"));
    for (size_t i = 0; i < t->options_len; i++)
        if (!t->options[i].everywhere)
            man_option(&t->options[i], out);
    (void)buf_add_str(
        out, STR(".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nDone, and the answer is a no: nothing "
                 "found, not ready, a function over \\-\\-fail\\-over, an answer without some "
                 "ingesters.\n.TP\n2\nCould not be done, or called in a wrong way.\n"
                 ".SH ENVIRONMENT\n.TP\nEMBERTREE_URL, EMBERTREE_TENANT, EMBERTREE_TOKEN, "
                 "EMBERTREE_TOKEN_FILE\nUsed "
                 "where the option is not given.\n.TP\nNO_COLOR\nNo colours unless asked for.\n"
                 ".SH EXAMPLES\n.nf\nembertreectl top my\\-service\n"
                 "embertreectl tree my\\-service \\-t alloc_space \\-\\-from now\\-1d\n"
                 "embertreectl query my\\-service \\-f pgo \\-o default.pgo\n"
                 "embertreectl diff my\\-service \\-q \\(aqversion=\"2\"\\(aq \\-\\-base\\-query "
                 "\\(aqversion=\"1\"\\(aq \\-\\-fail\\-over 5\n.fi\n"));
}

int ctl_man(struct cli *c)
{
    cli_man(c->table, &c->out);
    return CLI_DONE;
}

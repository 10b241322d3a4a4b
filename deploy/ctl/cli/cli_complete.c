/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_complete: completion for bash, zsh and fish, written out from the tables. Services come from
 * the server when they are asked for, with a limit of two seconds.
 */
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define SERVICES "embertreectl services --names --quiet --timeout 2s 2>/dev/null"

/* What an option's or argument's words are, unless they are asked for. */
static const char *words_of(const char *choices)
{
    static const struct {
        const char *name, *words;
    } sets[] = { { "@types", CLI_TYPES },
                 { "@formats", "folded json pprof pgo html svg dot tree" },
                 { "@levels", "10s 1m 10m 1h 6h 1d 8d 64d" } };

    if (!choices)
        return "";
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (strcmp(choices, sets[i].name) == 0)
            return sets[i].words;
    return choices[0] == '@' ? "" : choices;
}

static bool is(const char *choices, const char *what)
{
    return choices && strcmp(choices, what) == 0;
}

static void options_of(const struct cli_table *t, const struct cli_command *cmd, struct buf *out)
{
    for (size_t i = 0; i < t->options_len; i++)
        if (cli_command_takes(cmd, &t->options[i]))
            (void)buf_addf(out, " --%s", t->options[i].name);
}

/* ---- bash ---- */

static void bash_values(const struct cli_table *t, struct buf *out)
{
    (void)buf_add_str(out, STR("    case $prev in\n"));
    for (size_t i = 0; i < t->options_len; i++) {
        const struct cli_option *o = &t->options[i];
        if (o->kind == CLI_FLAG)
            continue;
        (void)buf_addf(out, "    --%s", o->name);
        if (o->letter)
            (void)buf_addf(out, "|-%c", o->letter);
        if (is(o->choices, "@files"))
            (void)buf_add_str(out, STR(") COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"));
        else if (is(o->choices, "@services"))
            (void)buf_add_str(out, STR(") _embertreectl_services ;;\n"));
        else
            (void)buf_addf(out, ") COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n",
                           words_of(o->choices));
    }
    (void)buf_add_str(out, STR("    *) return 1 ;;\n    esac\n    return 0\n}\n"));
}

static void bash_commands(const struct cli_table *t, struct buf *out)
{
    for (size_t i = 0; t->commands[i]; i++) {
        const struct cli_command *c = t->commands[i];
        (void)buf_addf(out, "    %s) options='", c->name);
        options_of(t, c, out);
        (void)buf_addf(out, "'; words='%s' ;;\n", c->words ? c->words : "");
    }
}

static void bash(const struct cli_table *t, struct buf *out)
{
    (void)buf_add_str(out, STR("# bash completion of embertreectl\n"
                               "_embertreectl_services() {\n"
                               "    local IFS=$'\\n'\n"
                               "    COMPREPLY=($(compgen -W \"$(" SERVICES ")\" -- \"$cur\"))\n"
                               "}\n"
                               "_embertreectl_value() {\n"));
    bash_values(t, out);
    (void)buf_add_str(out, STR("_embertreectl() {\n"
                               "    local cur prev command= options words i\n"
                               "    cur=${COMP_WORDS[COMP_CWORD]}\n"
                               "    prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                               "    COMPREPLY=()\n"
                               /* bash cuts words at '=' and ':', too */
                               "    case $cur in =) cur= ;; esac\n"
                               "    case $prev in =) prev=${COMP_WORDS[COMP_CWORD-2]} ;; esac\n"
                               "    _embertreectl_value && return\n"
                               "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                               "        prev=${COMP_WORDS[i-1]}\n"
                               "        case ${COMP_WORDS[i]} in\n"
                               "        -*|=|:) continue ;;\n"
                               "        esac\n"
                               "        case $prev in\n"
                               "        =|:) continue ;;\n"
                               "        esac\n"
                               "        if ! _embertreectl_value; then\n"
                               "            command=${COMP_WORDS[i]}; break\n"
                               "        fi\n"
                               "    done\n"
                               "    COMPREPLY=()\n"
                               "    case $command in\n"));
    bash_commands(t, out);
    (void)buf_add_str(out, STR("    '') options='--help --version"));
    options_of(t, NULL, out);
    (void)buf_add_str(out, STR("'; words='"));
    for (size_t i = 0; t->commands[i]; i++)
        (void)buf_addf(out, "%s%s", i ? " " : "", t->commands[i]->name);
    (void)buf_add_str(out, STR("' ;;\n"
                               "    *) return ;;\n"
                               "    esac\n"
                               "    case $cur in -*)\n"
                               "        COMPREPLY=($(compgen -W \"$options --help\" -- \"$cur\"))\n"
                               "        return ;;\n"
                               "    esac\n"
                               "    case $words in\n"
                               "    @services) _embertreectl_services ;;\n"
                               "    @files) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                               "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
                               "    esac\n"
                               "}\n"
                               "complete -o filenames -F _embertreectl embertreectl\n"));
}

/* ---- zsh ---- */

/* Inside single quotes, and where ':', '[' and ']' mean something. */
static void zsh_text(const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s == '\'')
            (void)buf_add_str(out, STR("'\\''"));
        else if (strchr(":[]\\", *s))
            (void)buf_addf(out, "\\%c", *s);
        else
            (void)buf_add_c(out, *s);
    }
}

static void zsh_action(const char *choices, struct buf *out)
{
    if (is(choices, "@files"))
        (void)buf_add_str(out, STR("_files"));
    else if (is(choices, "@services"))
        (void)buf_add_str(out, STR("_embertreectl_services"));
    else if (words_of(choices)[0])
        (void)buf_addf(out, "(%s)", words_of(choices));
    else
        (void)buf_add_c(out, ' ');
}

static void zsh_options(const struct cli_table *t, const struct cli_command *cmd, struct buf *out)
{
    for (size_t i = 0; i < t->options_len; i++) {
        const struct cli_option *o = &t->options[i];
        if (!cli_command_takes(cmd, o))
            continue;
        (void)buf_addf(out, " \\\n            '--%s%s[", o->name, o->kind == CLI_FLAG ? "" : "=");
        zsh_text(o->help, out);
        (void)buf_add_c(out, ']');
        if (o->kind != CLI_FLAG) {
            (void)buf_addf(out, ":%s:", o->value);
            zsh_action(o->choices, out);
        }
        (void)buf_add_c(out, '\'');
    }
}

static void zsh(const struct cli_table *t, struct buf *out)
{
    (void)buf_add_str(out, STR("#compdef embertreectl\n"
                               "_embertreectl_services() {\n"
                               "    local -a names\n"
                               "    names=(\"${(@f)$(" SERVICES ")}\")\n"
                               "    compadd -a names\n"
                               "}\n"
                               "_embertreectl() {\n"
                               "    local context state line\n"
                               "    local -a commands\n"
                               "    commands=(\n"));
    for (size_t i = 0; t->commands[i]; i++) {
        (void)buf_addf(out, "        '%s:", t->commands[i]->name);
        zsh_text(t->commands[i]->help, out);
        (void)buf_add_str(out, STR("'\n"));
    }
    (void)buf_add_str(out, STR("    )\n    _arguments -C"));
    zsh_options(t, NULL, out);
    (void)buf_add_str(out, STR(" \\\n            '1:command:->command' '*::argument:->rest'\n"
                               "    case $state in\n"
                               "    command) _describe command commands ;;\n"
                               "    rest)\n"
                               "        case $line[1] in\n"));
    for (size_t i = 0; t->commands[i]; i++) {
        const struct cli_command *c = t->commands[i];
        (void)buf_addf(out, "        %s) _arguments", c->name);
        zsh_options(t, c, out);
        if (c->words) {
            (void)buf_add_str(out, STR(" \\\n            '*:argument:"));
            zsh_action(c->words, out);
            (void)buf_add_c(out, '\'');
        }
        (void)buf_add_str(out, STR(" ;;\n"));
    }
    (void)buf_add_str(out, STR("        esac ;;\n    esac\n}\n"
                               "if [ \"$funcstack[1]\" = _embertreectl ]; then\n"
                               "    _embertreectl \"$@\"\nelse\n"
                               "    compdef _embertreectl embertreectl\nfi\n"));
}

/* ---- fish ---- */

static void fish_text(const char *s, struct buf *out)
{
    (void)buf_add_c(out, '\'');
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\')
            (void)buf_add_c(out, '\\');
        (void)buf_add_c(out, *s);
    }
    (void)buf_add_c(out, '\'');
}

static void fish_words(const char *choices, struct buf *out)
{
    if (is(choices, "@services"))
        (void)buf_add_str(out, STR(" -a '(" SERVICES ")'"));
    else if (words_of(choices)[0])
        (void)buf_addf(out, " -a '%s'", words_of(choices));
}

static void fish_option(const struct cli_table *t, const struct cli_option *o, struct buf *out)
{
    (void)buf_add_str(out, STR("complete -c embertreectl -f"));
    if (!o->everywhere) {
        (void)buf_add_str(out, STR(" -n '__fish_seen_subcommand_from"));
        for (size_t i = 0; t->commands[i]; i++)
            if (cli_command_takes(t->commands[i], o))
                (void)buf_addf(out, " %s", t->commands[i]->name);
        (void)buf_add_c(out, '\'');
    }
    (void)buf_addf(out, " -l %s", o->name);
    if (o->letter)
        (void)buf_addf(out, " -s %c", o->letter);
    if (o->kind != CLI_FLAG)
        (void)buf_add_str(out, is(o->choices, "@files") ? STR(" -r -F") : STR(" -x"));
    fish_words(o->choices, out);
    (void)buf_add_str(out, STR(" -d "));
    fish_text(o->help, out);
    (void)buf_add_c(out, '\n');
}

static void fish(const struct cli_table *t, struct buf *out)
{
    (void)buf_add_str(out, STR("# fish completion of embertreectl\n"));
    for (size_t i = 0; t->commands[i]; i++) {
        const struct cli_command *c = t->commands[i];
        (void)buf_addf(out, "complete -c embertreectl -f -n __fish_use_subcommand -a %s -d ",
                       c->name);
        fish_text(c->help, out);
        (void)buf_add_c(out, '\n');
        if (!c->words)
            continue;
        (void)buf_addf(out, "complete -c embertreectl %s -n '__fish_seen_subcommand_from %s'",
                       is(c->words, "@files") ? "-F" : "-f", c->name);
        fish_words(c->words, out);
        (void)buf_add_c(out, '\n');
    }
    for (size_t i = 0; i < t->options_len; i++)
        fish_option(t, &t->options[i], out);
}

bool cli_completion(const struct cli_table *t, struct str shell, struct buf *out)
{
    static const struct {
        const char *name;
        void (*put)(const struct cli_table *t, struct buf *out);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        if (str_eqc(shell, shells[i].name)) {
            shells[i].put(t, out);
            return true;
        }
    }
    return false;
}

int ctl_completion(struct cli *c)
{
    struct err e;

    if (cli_completion(c->table, str_c(c->args[0]), &c->out))
        return CLI_DONE;
    (void)err_set(&e, ERR_CONFIG, "completion for bash, zsh or fish, not for %.60s", c->args[0]);
    return cli_fail(c, &e);
}

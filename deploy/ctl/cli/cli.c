/* SPDX-License-Identifier: Apache-2.0
 *
 * cli: from main to a command and back to an exit code.
 *
 * Results are collected in c->out and written in few pieces; a reader that goes away (`| head`) is
 * no error, a full disk is. Global options may stand before the command, too.
 */
#include "deploy/ctl/cli/cli.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/conf/conf.h"
#include "common/net/client/http_client.h"
#include "common/sys/clock.h"
#include "version.h"

#define OUT_MAX  (1 * GIB)
#define TEXT_MAX (4 * MIB)
#define NAMES    128

/* ---- output ---- */

void cli_flush(struct cli *c)
{
    struct str s = buf_str(&c->out);
    struct err e;

    if (!buf_ok(&c->out)) {
        (void)err_set(&e, ERR_LIMIT, "the result is over %zu bytes: ask for less", c->out.max);
        exit(cli_fail(c, &e));
    }
    while (s.len && !c->out_ended) {
        ssize_t n = write(STDOUT_FILENO, s.ptr, s.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EPIPE) {
            (void)err_errno(&e, errno, "cannot write the result");
            exit(cli_fail(c, &e));
        }
        c->out_ended = n < 0;
        s = str_sub(s, n < 0 ? 0 : (size_t)n, s.len);
    }
    buf_reset(&c->out);
}

void cli_json_end(struct cli *c)
{
    struct buf safe;

    (void)buf_add_c(&c->out, '\n');
    if (c->term.tty) {
        buf_init(&safe, OUT_MAX);
        term_lines(&c->term, buf_str(&c->out), &safe);
        buf_move(&c->out, &safe);
        buf_deinit(&safe);
    }
    cli_flush(c);
}

static void say(const struct cli *c, struct str text)
{
    struct buf b;

    buf_init(&b, 16 * KIB);
    (void)buf_addf(&b, "%s: ", c->program);
    term_lines(&c->term, text, &b);
    (void)fprintf(stderr, "%.*s\n", STR_ARG(buf_str(&b)));
    buf_deinit(&b);
}

int cli_fail(const struct cli *c, const struct err *e)
{
    say(c, str_c(e->text));
    return CLI_FAILED;
}

void cli_note(const struct cli *c, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (!c->o.quiet)
        say(c, str_c(text));
}

int cli_done(const struct cli *c)
{
    if (!c->was_partial)
        return CLI_DONE;
    say(c, STR("ingesters are missing: this is a part of the answer"));
    return CLI_NO;
}

/* ---- options ---- */

const struct cli_command *cli_command_find(const struct cli_table *t, struct str name)
{
    for (size_t i = 0; t->commands[i]; i++)
        if (str_eqc(name, t->commands[i]->name))
            return t->commands[i];
    return NULL;
}

bool cli_names(const char *program, const struct cli_command *cmd)
{
    struct str p = str_c(program), name = str_c(cmd->name);

    return str_ends(p, name) && p.len > name.len && p.ptr[p.len - name.len - 1] == ' ';
}

bool cli_command_takes(const struct cli_command *cmd, const struct cli_option *o)
{
    struct str rest = str_c(cmd ? cmd->options : ""), name;
    bool more = true;

    if (o->everywhere)
        return true;
    while (str_next(&rest, ' ', &more, &name))
        if (str_eqc(name, o->name))
            return true;
    return false;
}

static const struct cli_option *find_option(const struct cli_table *t, struct str name, char letter)
{
    if (str_eq(name, STR("url"))) /* what it was called before */
        name = STR("server");
    for (size_t i = 0; i < t->options_len; i++)
        if (letter ? t->options[i].letter == letter : str_eqc(name, t->options[i].name))
            return &t->options[i];
    return NULL;
}

static int no_option(const struct cli *c, struct str name, struct err *e)
{
    const struct cli_table *t = c->table;
    const char *names[NAMES], *near;
    size_t n = 0;

    for (size_t i = 0; i < t->options_len && n < NAMES; i++)
        if (cli_command_takes(c->command, &t->options[i]))
            names[n++] = t->options[i].name;
    near = conf_nearest(name, names, n);
    bool word = c->command && !cli_names(c->program, c->command);
    if (near)
        return err_set(e, ERR_CONFIG, "--%.*s is no option here; did you mean --%s?",
                       (int)MIN(name.len, 60), name.ptr, near);
    return err_set(e, ERR_CONFIG, "--%.*s is no option here; %s%s%s --help lists them",
                   (int)MIN(name.len, 60), name.ptr, c->program, word ? " " : "",
                   word ? c->command->name : "");
}

static bool is_choice(const char *choices, struct str v)
{
    struct str rest = str_c(choices), one;
    bool more = true;

    while (str_next(&rest, ' ', &more, &one))
        if (str_eq(one, v))
            return true;
    return false;
}

static int put_option(struct cli_opts *o, const struct cli_option *opt, const char *text,
                      struct err *e)
{
    char *to = (char *)o + opt->at;
    struct str v = str_c(text);
    double percent;
    uint64_t n;

    switch (opt->kind) {
    case CLI_FLAG:
        *(bool *)(void *)to = true;
        return 0;
    case CLI_TEXT:
        if (opt->choices && opt->choices[0] != '@' && !is_choice(opt->choices, v))
            return err_set(e, ERR_CONFIG, "--%s %s: want one of %s", opt->name, text, opt->choices);
        *(const char **)(void *)to = text;
        return 0;
    case CLI_NUMBER:
        if (!str_u64(v, &n) || (opt->most && n > opt->most))
            return err_set(e, ERR_CONFIG, "--%s %s: want a number%s%.0" PRIu64, opt->name, text,
                           opt->most ? " up to " : "", opt->most);
        *(uint64_t *)(void *)to = n;
        return 0;
    case CLI_PERCENT:
        v.len -= str_ends(v, STR("%"));
        if (!str_double(v, &percent) || percent < 0 || !isfinite(percent))
            return err_set(e, ERR_CONFIG, "--%s %s: want a percentage such as 2.5", opt->name,
                           text);
        *(double *)(void *)to = percent;
        return 0;
    case CLI_DURATION:
        if (str_u64(v, &n) ? n > UINT64_MAX / 1000 : !str_duration_ms(v, &n))
            return err_set(e, ERR_CONFIG, "--%s %s: want 10s, 5m, 2h, ...", opt->name, text);
        n *= str_u64(v, &(uint64_t){ 0 }) ? 1000 : 1;
        if (n == 0 || n > opt->most)
            return err_set(e, ERR_CONFIG,
                           "--%s %s: want more than nothing and at most %" PRIu64 " s", opt->name,
                           text, opt->most / 1000);
        *(uint64_t *)(void *)to = n;
        return 0;
    }
    return 0;
}

/* "--name=value", "--name value", "-n value", "-nvalue"; moves *i over a value of its own. */
static int take_option(struct cli *c, int argc, char *const *argv, int *i, struct err *e)
{
    struct str arg = str_c(argv[*i]), name;
    bool is_long = arg.ptr[1] == '-';
    const char *value = NULL;
    ptrdiff_t eq = is_long ? str_find(arg, '=') : -1;
    const struct cli_option *o;

    name = is_long ? str_sub(arg, 2, eq < 0 ? arg.len : (size_t)eq) : STR("");
    o = find_option(c->table, name, is_long ? '\0' : arg.ptr[1]);
    if (!o || !cli_command_takes(c->command, o))
        return no_option(c, is_long ? name : str_sub(arg, 1, 2), e);
    if (eq >= 0)
        value = argv[*i] + eq + 1;
    else if (!is_long && arg.len > 2)
        value = argv[*i] + 2;
    if (o->kind == CLI_FLAG && value)
        return err_set(e, ERR_CONFIG, "--%s takes no value", o->name);
    if (o->kind != CLI_FLAG && !value) {
        if (*i + 1 == argc)
            return err_set(e, ERR_CONFIG, "--%s wants a value: --%s %s", o->name, o->name,
                           o->value);
        value = argv[++*i];
    }
    return put_option(&c->o, o, value, e);
}

static int name_command(struct cli *c, struct str name, struct err *e)
{
    const char *names[NAMES], *near;
    size_t n = 0;

    c->command = cli_command_find(c->table, name);
    if (c->command)
        return 0;
    for (; c->table->commands[n] && n < NAMES; n++)
        names[n] = c->table->commands[n]->name;
    near = conf_nearest(name, names, n);
    return err_set(e, ERR_CONFIG, "\"%.*s\" is no command; %s%s%s", (int)MIN(name.len, 60),
                   name.ptr, near ? "did you mean " : c->program, near ? near : " --help",
                   near ? "?" : " lists them");
}

int cli_parse(struct cli *c, int argc, char *const *argv, const char **ret_args, struct err *e)
{
    bool options = true;

    c->args = ret_args;
    for (int i = 1; i < argc; i++) {
        struct str arg = str_c(argv[i]);
        if (!options || arg.len < 2 || arg.ptr[0] != '-') {
            bool names_it = !c->command;
            if (names_it && name_command(c, arg, e))
                return e->code;
            if (!names_it || c->command->plain)
                ret_args[c->args_len++] = argv[i];
            if (!c->command->plain)
                continue;
            while (++i < argc) /* its own options, behind its name */
                ret_args[c->args_len++] = argv[i];
        } else if (str_eqc(arg, "--")) {
            options = false;
        } else if (str_eqc(arg, "--help") || str_eqc(arg, "-h")) {
            return CLI_HELP;
        } else if (!c->command && str_eqc(arg, "--version")) {
            return CLI_VERSION;
        } else if (take_option(c, argc, argv, &i, e)) {
            return e->code;
        }
    }
    return 0;
}

/* ---- main ---- */

static const char *from_env(const char *name, const char *otherwise)
{
    const char *v = getenv(name);

    return v && v[0] ? v : otherwise;
}

static void start(struct cli *c, const struct cli_table *t, const char *program)
{
    *c = (struct cli){ .table = t, .program = program, .now_ms = clock_wall_ms(clock_real()) };
    c->o = (struct cli_opts){ .server = from_env("EMBERTREE_URL", "http://127.0.0.1:4040"),
                              .tenant = from_env("EMBERTREE_TENANT", NULL),
                              .token = from_env("EMBERTREE_TOKEN", NULL),
                              .color = "auto",
                              .limit = UINT64_MAX,
                              .depth = UINT64_MAX,
                              .interval_ms = 10000,
                              .window_ms = 0,
                              .min_percent = -1,
                              .fail_over = -1,
                              .retries = 20 };
    buf_init(&c->out, OUT_MAX);
}

static void end(struct cli *c)
{
    http_client_free(c->http);
    if (c->socket_drop)
        c->socket_drop(c);
    xfree(c->secret);
    buf_deinit(&c->out);
}

static int print_text(struct cli *c, void (*put)(const struct cli *c, struct buf *out))
{
    put(c, &c->out);
    cli_flush(c);
    return CLI_DONE;
}

static void put_help(const struct cli *c, struct buf *out)
{
    if (c->command && !c->command->plain)
        cli_help_command(c->table, c->program, c->command, c->args_len ? c->args[0] : NULL, out);
    else
        cli_help(c->table, c->program, out);
}

static void put_version(const struct cli *c, struct buf *out)
{
    (void)buf_addf(out, "%s %s\n", c->program, EMBERTREE_BUILD);
}

static int wrong_args(const struct cli *c, struct err *e)
{
    const struct cli_command *cmd = c->command;
    bool word = !cli_names(c->program, cmd);
    const char *gap = word ? " " : "", *name = word ? cmd->name : "";

    if (c->args_len < cmd->args_min)
        return err_set(e, ERR_CONFIG, "want %s; %s%s%s --help says more", cmd->args, c->program,
                       gap, name);
    return err_set(e, ERR_CONFIG, "\"%.100s\" is one argument too many; want %s%s%s %s",
                   c->args[cmd->args_max], c->program, gap, name, cmd->args);
}

static int run(struct cli *c, int rc, struct err *e)
{
    if (rc == CLI_HELP)
        return print_text(c, put_help);
    if (rc == CLI_VERSION)
        return print_text(c, put_version);
    if (rc)
        return cli_fail(c, e);
    if (!c->command) {
        struct buf b;
        buf_init(&b, TEXT_MAX);
        cli_help(c->table, c->program, &b);
        (void)fprintf(stderr, "%.*s", STR_ARG(buf_str(&b)));
        buf_deinit(&b);
        return CLI_FAILED;
    }
    if (c->args_len < c->command->args_min || c->args_len > c->command->args_max) {
        (void)wrong_args(c, e);
        return cli_fail(c, e);
    }
    /* A reader that goes away is seen by write, and must not kill a TLS connection being closed. */
    (void)signal(SIGPIPE, SIG_IGN);
    term_detect(&c->term, c->o.color, c->o.width);
    int code = c->command->run(c);
    cli_flush(c);
    return code;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int cli_main(const struct cli_table *t, int argc, char **argv)
{
    const char **args = XNEW_ARRAY(const char *, (size_t)argc + 1);
    struct err e = { 0 };
    struct cli c;
    int code, rc;

    start(&c, t, base_name(argc > 0 ? argv[0] : "embertreectl"));
    rc = cli_parse(&c, argc, argv, args, &e);
    if (!rc && c.command && c.command->plain)
        code = c.command->plain->run((int)c.args_len, argv + argc - c.args_len);
    else
        code = run(&c, rc, &e);
    end(&c);
    xfree(args);
    return code;
}

int cli_run_plain(const struct cli_table *t, const struct cli_command *cmd, const char *program,
                  int argc, char **argv)
{
    const char **args = XNEW_ARRAY(const char *, (size_t)argc + 1);
    struct err e = { 0 };
    struct cli c;

    start(&c, t, program);
    c.command = cmd;
    int code = run(&c, cli_parse(&c, argc, argv, args, &e), &e);
    end(&c);
    xfree(args);
    return code;
}

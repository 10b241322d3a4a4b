/* SPDX-License-Identifier: Apache-2.0
 *
 * role: the one way into every binary: a command, or options and a process with the roles it links.
 *
 *   role_main ──first argument is a command──> its run()
 *       └──> load (options) ──> answer (--help, --version, ...) or startable ──> process_run
 *
 * All errors of the options are printed before anything is opened, so an operator repairs them in
 * one go. The exit code is 2 for options that cannot be read, 1 for a start that fails, else that
 * of the process. Thread: the main thread, which becomes the loop's.
 */
#include "common/role/core/role.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/obs/log.h"
#include "common/role/core/command.h"
#include "common/role/process/check.h"
#include "common/role/process/process.h"
#include "version.h"

#define TEXT_BYTES_MAX (4 * MIB)
#define COMMANDS_MAX   32

static const char *program_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int print_text(struct buf *text)
{
    int code = fwrite(text->ptr, 1, text->len, stdout) == text->len && fflush(stdout) == 0;

    buf_deinit(text);
    return code ? 0 : 1;
}

static void help_commands(const char *program, struct buf *text)
{
    for (size_t i = 0; commands[i]; i++)
        (void)buf_addf(text, "%s%s %s %s\n      %s\n", i ? "" : "\nCommands\n\n", program,
                       commands[i]->name, commands[i]->args, commands[i]->help);
}

/* The command named by the first argument; NULL: none, the roles shall run. */
static const struct command *find_command(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && commands[i]; i++) {
        if (strcmp(argv[1], commands[i]->name) == 0)
            return commands[i];
    }
    return NULL;
}

/* A word in the first place was meant as one. */
static void no_command(const char *word, struct err *e)
{
    const char *names[COMMANDS_MAX];
    const char *near;
    size_t n = 0;

    while (n < COMMANDS_MAX && commands[n]) {
        names[n] = commands[n]->name;
        n++;
    }
    near = conf_nearest(str_c(word), names, n);
    if (n)
        (void)err_set(e, ERR_CONFIG, "there is no command \"%.40s\"%s%s%s (--help lists them)",
                      word, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* --help, --version, --print-config, --print-reference: print and go. */
static int answer(enum conf_action action, const char *program, const struct conf *conf,
                  const struct conf_table *const *tables, size_t n)
{
    struct buf text;

    buf_init(&text, TEXT_BYTES_MAX);
    if (action == CONF_HELP) {
        conf_help(tables, n, program, &text);
        help_commands(program, &text);
    } else if (action == CONF_PRINT)
        conf_print(conf, &text);
    else if (action == CONF_REFERENCE)
        conf_reference(tables, n, &text);
    else
        (void)buf_addf(&text, "%s %s\n", program, EMBERTREE_BUILD);
    return print_text(&text);
}

/* ---- a start --------------------------------------------------------------------------------- */

static void say_wrong(void *cookie, const char *option, const struct err *e)
{
    (void)fprintf(stderr, "%s: %s%s%s\n", (const char *)cookie, option, option[0] ? ": " : "",
                  e->text);
}

static void say_conf(void *cookie, const struct err *e)
{
    say_wrong(cookie, "", e);
}

static void say_odd(void *cookie, const char *text)
{
    log_warn("a setting is not what it says", KV_CSTR("program", cookie), KV_CSTR("why", text));
}

/* All that is wrong is said before anything is opened. */
static bool startable(const char *program, const struct conf *conf)
{
    struct role_checks c = { .conf = conf,
                             .all_in_one = roles[0] && roles[1],
                             .wrong = say_wrong,
                             .odd = say_odd,
                             .cookie = (void *)(uintptr_t)program };

    role_check(roles, &c);
    return !c.said;
}

/* Options; NULL: something was wrong, and said. */
static struct conf *load(const char *program, const struct conf_table *const *tables, size_t n,
                         int argc, char **argv)
{
    struct conf_wrong wrong = { .fn = say_conf, .cookie = (void *)(uintptr_t)program };
    struct conf *conf = NULL;
    struct err e;

    if (argc > 1 && argv[1][0] != '-' && commands[0]) {
        no_command(argv[1], &e);
        say_conf((void *)(uintptr_t)program, &e);
        return NULL;
    }
    if (conf_load_all(tables, n, argc, argv, &wrong, &conf))
        return NULL;
    if (wrong.said) {
        conf_free(conf);
        return NULL;
    }
    return conf;
}

int role_main(int argc, char **argv)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(roles, tables);
    const char *program = program_name(argc > 0 ? argv[0] : "embertree");
    enum log_level level = LOG_INFO;
    struct conf *conf = NULL;
    struct process process;
    const struct command *command = find_command(argc, argv);
    struct err e = { 0 };
    int code;

    if (command)
        return command->run(argc - 1, argv + 1);
    conf = load(program, tables, n, argc, argv);
    if (!conf)
        return 2;
    if (conf_action(conf) != CONF_RUN) {
        code = answer(conf_action(conf), program, conf, tables, n);
        conf_free(conf);
        return code;
    }
    CHECK(log_level_parse(str_c(((const struct log_conf *)conf_get(conf, &log_options))->level),
                          &level));
    log_set_level(level);
    if (!startable(program, conf)) {
        conf_free(conf);
        return 1;
    }
    if (process_start(&process, program, conf, roles, &e)) {
        (void)fprintf(stderr, "%s: %s\n", program, e.text);
        /* Threads of half-started roles may still run: leave without tidying under their feet. */
        (void)fflush(stderr);
        _Exit(1);
    }
    code = process_run(&process);
    conf_free(conf);
    return code;
}

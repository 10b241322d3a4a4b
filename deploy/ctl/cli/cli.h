/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h: the frame of embertreectl. Parsing, --help, the man page and completion read one table of
 * options and one of commands (cli_table.c), so that nothing is written twice. The folder does not
 * know these tables: main passes them.
 *
 * A command gets a struct cli with the options read, writes its result onto c->out (cli_flush in
 * between, if it is long) and returns an exit code: CLI_DONE, CLI_NO, or CLI_FAILED by cli_fail().
 */
#ifndef DEPLOY_CTL_CLI_CLI_H
#define DEPLOY_CTL_CLI_CLI_H

#include "common/base/json.h"
#include "common/role/core/command.h"
#include "deploy/ctl/cli/term.h"

enum cli_exit {
    CLI_DONE = 0,
    CLI_NO = 1, /* done, and the answer is a no: nothing found, not ready, over a limit, partial */
    CLI_FAILED = 2, /* could not be done, or called in a wrong way */
};

struct cli_opts {
    const char *server, *tenant, *token, *token_file;
    const char *tls_ca, *tls_cert, *tls_key;
    bool insecure;
    uint64_t timeout_ms;
    bool json, quiet;
    const char *color;
    uint64_t width;

    const char *from, *until, *type, *query, *service;
    bool partial;
    uint64_t limit, depth, max_nodes, interval_ms, window_ms, count, retries;
    double min_percent, fail_over; /* fail_over < 0: not given */
    const char *sort, *mode, *format, *output, *by, *function;
    const char *base, *base_from, *base_until, *base_query;
    bool names, per_service, yes, dry_run, all, wait, apply;
    const char *id, *name, *step, *level, *state, *reason, *who, *shard, *without;
    /* keys */
    const char *for_tenants, *roles, *match, *set, *owner, *valid_for, *nets, *overlap;
    bool edit, offline;
};

struct http_client;
struct cli {
    const struct cli_table *table;
    const struct cli_command *command;
    const char *program;
    struct cli_opts o;
    const char *const *args; /* what stands without dashes, behind the command's name */
    size_t args_len;
    struct term term;
    struct buf out; /* cli_flush writes it to standard output */
    bool out_ended; /* the reader closed the pipe: not an error, and no more is written */
    bool was_partial;
    bool noticed;                       /* a notice of the server was shown: once is enough */
    struct http_client *http;           /* owned; NULL before the first question */
    char *secret;                       /* owned; the text of --token-file */
    char *socket;                       /* owned; the Unix socket that is asked; NULL: by the URL */
    int socket_dir;                     /* of a long path, its folder, open; else -1 */
    void (*socket_drop)(struct cli *c); /* of ask/, frees both at the end; NULL with socket */
    int64_t now_ms;                     /* of the start: one meaning of "now" in a command */
};

enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_NUMBER, CLI_PERCENT, CLI_DURATION };

struct cli_option {
    const char *name; /* without dashes */
    char letter;      /* or 0 */
    enum cli_kind kind;
    size_t at;           /* in struct cli_opts */
    const char *value;   /* what stands for it in help: "TIME"; NULL of a flag */
    const char *choices; /* "self total", or NULL. "@files", "@services", "@types": completion */
    const char *help;    /* a sentence without its full stop */
    uint64_t most;       /* of numbers; 0: no limit */
    bool everywhere;     /* a global one, every command takes it */
};

struct cli_command {
    const char *name;
    const char *args;    /* "[SERVICE]" */
    const char *help;    /* one sentence with a full stop */
    const char *more;    /* paragraphs for --help and the man page; NULL: none */
    const char *options; /* names of options it takes, blanks between */
    const char *words;   /* completion of its arguments: "@services", "@files", words; NULL */
    size_t args_min, args_max;
    int (*run)(struct cli *c);
    const struct command *plain; /* has its own options instead; run is NULL then */
};
struct cli_table {
    const struct cli_option *options;
    size_t options_len;
    const struct cli_command *const *commands; /* NULL-ended */
};

/* embertreectl's main. */
int cli_main(const struct cli_table *t, int argc, char **argv);
/* One command with what follows it, for the all-in-one: argv[0] is its name. */
int cli_run_plain(const struct cli_table *t, const struct cli_command *cmd, const char *program,
                  int argc, char **argv);
/* Options of c->table and arguments of `argv` into c->o and *ret_args (`argc` entries, the
 * caller's). With c->command NULL the first argument names it. CLI_HELP if help is asked for.
 * ERR_CONFIG. */
enum { CLI_HELP = -1, CLI_VERSION = -2 };
NODISCARD int cli_parse(struct cli *c, int argc, char *const *argv, const char **ret_args,
                        struct err *e);
const struct cli_command *cli_command_find(const struct cli_table *t,
                                           struct str name); /* or NULL */
/* True if `program` ("embertree import") has the command's name in it. */
bool cli_names(const char *program, const struct cli_command *cmd);
bool cli_command_takes(const struct cli_command *cmd, const struct cli_option *o);

/* Writes c->out out. Fails the process with CLI_FAILED if that can't be done; a closed pipe only
 * sets out_ended. */
void cli_flush(struct cli *c);
/* For --json: escapes what a terminal would obey, adds the line end, flushes. */
void cli_json_end(struct cli *c);
/* Says it on standard error, harmless; returns CLI_FAILED. */
int cli_fail(const struct cli *c, const struct err *e);
void cli_note(const struct cli *c, const char *fmt, ...) PRINTF(2, 3);
/* CLI_NO where an answer lacked ingesters, after saying so; else CLI_DONE. */
int cli_done(const struct cli *c);

/* cli_docs.c, cli_complete.c: from the tables. `shell`: bash, zsh, fish; false: none of them. */
void cli_help(const struct cli_table *t, const char *program, struct buf *out);
/* word: of cmd->words, the only one to be told about; NULL: all of them. */
void cli_help_command(const struct cli_table *t, const char *program, const struct cli_command *cmd,
                      const char *word, struct buf *out);
void cli_man(const struct cli_table *t, struct buf *out);
bool cli_completion(const struct cli_table *t, struct str shell, struct buf *out);

/* Short names of profile types, for completion and help. */
#define CLI_TYPES                                                                                  \
    "cpu samples wall itimer alloc_space alloc_objects inuse_space inuse_objects goroutine mutex " \
    "contentions delay block lock_count lock_time"

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.h: options from tables: one row gives the YAML key, the flag, the default, the bounds, the
 * help line and the reference text.
 *
 * Table "http" with row "listen" is `http: {listen: ...}` in the YAML file and --http.listen=... on
 * the command line. Precedence: flag over file over default. Booleans may be given as bare flags.
 * A flag may have dashes where its key has underscores.
 * Unknown keys are refused with line and nearest name; so are values out of bounds.
 */
#ifndef COMMON_CONF_CONF_H
#define COMMON_CONF_CONF_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum conf_type {
    CONF_T_STR,      /* const char * */
    CONF_T_BYTES,    /* uint64_t; "64MiB" */
    CONF_T_DURATION, /* uint64_t milliseconds; "10s" */
    CONF_T_U64,      /* uint64_t */
    CONF_T_BOOL,     /* bool */
    CONF_T_ENUM,     /* const char *, one of `choices` */
    CONF_T_LIST,     /* struct conf_list; YAML sequence, or comma-separated in a flag */
};
struct conf_list {
    const char *const *items;
    size_t len;
};
struct conf_row {
    const char *name;
    enum conf_type type;
    size_t offset; /* of the field in the table's struct */
    const char *def;
    const char *min, *max; /* same notation as the value; NULL = none */
    const char *choices;   /* "a|b|c" for CONF_T_ENUM */
    const char *help;      /* one sentence, ends with a full stop */
};
struct conf_table {
    const char *section;
    const char *title; /* one line above the section in --help */
    const struct conf_row *rows;
    size_t rows_len;
    size_t size; /* of the struct */
};

#define CONF_STR(st, f, n, d, h)                               \
    {                                                          \
        n, CONF_T_STR, offsetof(st, f), d, NULL, NULL, NULL, h \
    }
#define CONF_BYTES(st, f, n, d, lo, hi, h)                   \
    {                                                        \
        n, CONF_T_BYTES, offsetof(st, f), d, lo, hi, NULL, h \
    }
#define CONF_DURATION(st, f, n, d, lo, hi, h)                   \
    {                                                           \
        n, CONF_T_DURATION, offsetof(st, f), d, lo, hi, NULL, h \
    }
#define CONF_U64(st, f, n, d, lo, hi, h)                   \
    {                                                      \
        n, CONF_T_U64, offsetof(st, f), d, lo, hi, NULL, h \
    }
#define CONF_BOOL(st, f, n, d, h)                               \
    {                                                           \
        n, CONF_T_BOOL, offsetof(st, f), d, NULL, NULL, NULL, h \
    }
#define CONF_ENUM(st, f, n, d, c, h)                         \
    {                                                        \
        n, CONF_T_ENUM, offsetof(st, f), d, NULL, NULL, c, h \
    }
#define CONF_LIST(st, f, n, d, h)                               \
    {                                                           \
        n, CONF_T_LIST, offsetof(st, f), d, NULL, NULL, NULL, h \
    }

struct conf;
/* Reads defaults, then the file given by --config (if any), then flags. --help, --version,
 * --print-config and --print-reference are recognised: conf_action tells. Unknown anything is
 * ERR_CONFIG. */
NODISCARD int conf_load(const struct conf_table *const *tables, size_t n, int argc,
                        char *const *argv, struct conf **ret, struct err *e);
/* The same, but each error is reported on its own, and reading continues: a wrong value keeps its
 * default. An error of the YAML itself ends it like conf_load; else 0, with *ret_wrong said. */
struct conf_wrong {
    void (*fn)(void *cookie, const struct err *e);
    void *cookie;
    size_t said;
};
NODISCARD int conf_load_all(const struct conf_table *const *tables, size_t n, int argc,
                            char *const *argv, struct conf_wrong *wrong, struct conf **ret);
void conf_free(struct conf *c);
enum conf_action { CONF_RUN, CONF_HELP, CONF_VERSION, CONF_PRINT, CONF_REFERENCE };
enum conf_action conf_action(const struct conf *c);
/* The filled struct of a table; lives as long as the conf. */
const void *conf_get(const struct conf *c, const struct conf_table *t);
/* A number, size, or duration in ms of any table, by its names; false: this process has no such
 * option. For what fits only to an option of another role. */
bool conf_number(const struct conf *c, const char *section, const char *name, uint64_t *ret);
/* --help text; the whole effective configuration as YAML; the reference as Markdown. */
void conf_help(const struct conf_table *const *tables, size_t n, const char *program,
               struct buf *out);
void conf_print(const struct conf *c, struct buf *out);
void conf_reference(const struct conf_table *const *tables, size_t n, struct buf *out);

/* The entry of `names` that is nearest to `wrong`, or NULL when none is near. */
const char *conf_nearest(struct str wrong, const char *const *names, size_t n);

#endif

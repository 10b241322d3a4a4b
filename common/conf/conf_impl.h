/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_impl.h: declarations shared by the files of this folder and its tests. Other folders do not
 * include it.
 */
#ifndef COMMON_CONF_CONF_IMPL_H
#define COMMON_CONF_CONF_IMPL_H

#include "common/base/vec.h"
#include "common/conf/conf.h"

enum { CONF_FILE_MAX = 1024 * 1024, CONF_LIST_MAX = 4096, CONF_NAME_MAX = 64 };

struct conf {
    const struct conf_table **tables; /* owned array of borrowed tables, each once */
    void **structs;                   /* owned; one per table */
    size_t tables_len;
    VEC(void *) owned; /* strings and lists the structs point to */
    enum conf_action action;
    const char *file;         /* borrowed from argv; NULL: no --config */
    struct conf_wrong *wrong; /* borrowed while it is loaded; NULL: the first error ends it */
};

/* 0: the error was reported, and reading continues; else its code. */
NODISCARD int conf_go_on(struct conf *c, const struct err *e);
/* A conf with all defaults. */
struct conf *conf_new(const struct conf_table *const *tables, size_t n);
bool conf_has_section(const struct conf *c, struct str section);
bool conf_find(const struct conf *c, struct str section, struct str name, size_t *ret_table,
               const struct conf_row **ret_row);
/* Checks and stores a value; a list is split at commas. Error texts start with "section.name". */
NODISCARD int conf_put(struct conf *c, size_t table, const struct conf_row *row, struct str value,
                       struct err *e);
NODISCARD int conf_put_items(struct conf *c, size_t table, const struct conf_row *row,
                             const struct str *items, size_t n, struct err *e);

/* `; did you mean "x"?` for a section or for a name in it; empty when nothing is near. */
struct conf_hint {
    char text[CONF_NAME_MAX * 3];
};
struct conf_hint conf_hint_section(const struct conf *c, struct str wrong);
struct conf_hint conf_hint_name(const struct conf *c, struct str section, struct str wrong);
struct conf_hint conf_hint_flag(const struct conf *c, struct str wrong);
/* Printable and cut, for error texts. */
struct conf_hint conf_quote(struct str s);

NODISCARD int conf_yaml_apply(struct conf *c, const char *file, struct str text, struct err *e);
NODISCARD int conf_flags_scan(struct conf *c, int argc, char *const *argv, struct err *e);
NODISCARD int conf_flags_apply(struct conf *c, int argc, char *const *argv, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * conf: fills one struct per table, by offset, from text.
 *
 *   defaults ──> file (conf_yaml.c) ──> flags (conf_flags.c)     later wins
 *
 * Every value, wherever it comes from, goes through conf_put: one place checks type and bounds and
 * says what is wrong. Strings and lists are copied and owned by the conf; replaced ones stay until
 * conf_free, since the tables are small and a conf is loaded once.
 */
#include "common/conf/conf.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/conf/conf_impl.h"
#include "common/sys/fs.h"

/* ---- life ------------------------------------------------------------------------------------ */

static void check_table(const struct conf *c, const struct conf_table *t)
{
    CHECK(strlen(t->section) < CONF_NAME_MAX);
    for (size_t i = 0; i < t->rows_len; i++) {
        CHECK(strlen(t->rows[i].name) < CONF_NAME_MAX);
        CHECK(t->rows[i].offset < t->size);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(t->rows[i].name, t->rows[j].name) != 0);
        for (size_t k = 0; k < c->tables_len; k++)
            for (size_t j = 0; j < c->tables[k]->rows_len; j++)
                CHECK(strcmp(c->tables[k]->section, t->section) != 0 ||
                      strcmp(c->tables[k]->rows[j].name, t->rows[i].name) != 0);
    }
}

static void add_table(struct conf *c, const struct conf_table *t)
{
    size_t at = c->tables_len;
    struct err e = { 0 };

    for (size_t i = 0; i < at; i++)
        if (c->tables[i] == t)
            return;
    check_table(c, t);
    c->tables[at] = t;
    c->structs[at] = xcalloc(1, t->size);
    c->tables_len++;
    for (size_t i = 0; i < t->rows_len; i++) {
        const struct conf_row *r = &t->rows[i];

        if (conf_put(c, at, r, str_c(r->def ? r->def : ""), &e)) {
            (void)fprintf(stderr, "default of %s\n", e.text);
            CHECK(false && "a default is within its own bounds");
        }
    }
}

struct conf *conf_new(const struct conf_table *const *tables, size_t n)
{
    struct conf *c = XNEW(struct conf);

    c->tables = XNEW_ARRAY(const struct conf_table *, n + 1);
    c->structs = XNEW_ARRAY(void *, n + 1);
    for (size_t i = 0; i < n; i++)
        add_table(c, tables[i]);
    return c;
}

void conf_free(struct conf *c)
{
    if (!c)
        return;
    vec_for (i, &c->owned)
        xfree(c->owned.ptr[i]);
    vec_free(&c->owned);
    for (size_t i = 0; i < c->tables_len; i++)
        xfree(c->structs[i]);
    xfree(c->structs);
    xfree(c->tables);
    xfree(c);
}

enum conf_action conf_action(const struct conf *c)
{
    return c->action;
}

const void *conf_get(const struct conf *c, const struct conf_table *t)
{
    for (size_t i = 0; i < c->tables_len; i++)
        if (c->tables[i] == t)
            return c->structs[i];
    CHECK(false && "conf_get asks for a table that was loaded");
    return NULL;
}

/* ---- finding --------------------------------------------------------------------------------- */

bool conf_has_section(const struct conf *c, struct str section)
{
    for (size_t i = 0; i < c->tables_len; i++)
        if (str_eqc(section, c->tables[i]->section))
            return true;
    return false;
}

bool conf_find(const struct conf *c, struct str section, struct str name, size_t *ret_table,
               const struct conf_row **ret_row)
{
    for (size_t i = 0; i < c->tables_len; i++) {
        const struct conf_table *t = c->tables[i];

        if (!str_eqc(section, t->section))
            continue;
        for (size_t j = 0; j < t->rows_len; j++)
            if (str_eqc(name, t->rows[j].name)) {
                *ret_table = i;
                *ret_row = &t->rows[j];
                return true;
            }
    }
    return false;
}

bool conf_number(const struct conf *c, const char *section, const char *name, uint64_t *ret)
{
    const struct conf_row *row;
    size_t at;

    if (!conf_find(c, str_c(section), str_c(name), &at, &row))
        return false;
    CHECK(row->type == CONF_T_U64 || row->type == CONF_T_BYTES || row->type == CONF_T_DURATION);
    memcpy(ret, (const char *)c->structs[at] + row->offset, sizeof(*ret));
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int wrong(const struct conf *c, size_t table, const struct conf_row *row, struct str value,
                 const char *want, struct err *e)
{
    struct conf_hint shown = conf_quote(value);

    return err_set(e, ERR_CONFIG, "%s.%s is \"%s\": want %s", c->tables[table]->section, row->name,
                   shown.text, want);
}

static bool parse_number(enum conf_type type, struct str s, uint64_t *ret)
{
    if (type == CONF_T_BYTES)
        return str_bytes(s, ret);
    if (type == CONF_T_DURATION)
        return str_duration_ms(s, ret);
    return str_u64(s, ret);
}

static int put_number(struct conf *c, size_t table, const struct conf_row *row, struct str value,
                      uint64_t *to, struct err *e)
{
    const char *section = c->tables[table]->section;
    uint64_t v, bound;

    if (!parse_number(row->type, value, &v))
        return wrong(c, table, row, value,
                     row->type == CONF_T_BYTES      ? "a size such as 64MiB"
                     : row->type == CONF_T_DURATION ? "a duration such as 10s"
                                                    : "a whole number",
                     e);
    if (row->min) {
        CHECK(parse_number(row->type, str_c(row->min), &bound));
        if (v < bound)
            return err_set(e, ERR_CONFIG, "%s.%s is %.*s, least is %s", section, row->name,
                           STR_ARG(value), row->min);
    }
    if (row->max) {
        CHECK(parse_number(row->type, str_c(row->max), &bound));
        if (v > bound)
            return err_set(e, ERR_CONFIG, "%s.%s is %.*s, most is %s", section, row->name,
                           STR_ARG(value), row->max);
    }
    *to = v;
    return 0;
}

static bool parse_bool(struct str s, bool *ret)
{
    static const char *const yes[] = { "true", "yes", "on" };
    static const char *const no[] = { "false", "no", "off" };

    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (!str_eq_nocase(s, str_c(yes[i])) && !str_eq_nocase(s, str_c(no[i])))
            continue;
        *ret = str_eq_nocase(s, str_c(yes[i]));
        return true;
    }
    return false;
}

static bool is_choice(const struct conf_row *row, struct str value)
{
    struct str rest = str_c(row->choices), part;
    bool more = true;

    while (str_next(&rest, '|', &more, &part))
        if (str_eq(part, value))
            return true;
    return false;
}

static char *own_string(struct conf *c, struct str s)
{
    char *copy = xmalloc(s.len + 1);

    if (s.len)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    vec_push(&c->owned, copy);
    return copy;
}

int conf_put_items(struct conf *c, size_t table, const struct conf_row *row,
                   const struct str *items, size_t n, struct err *e)
{
    struct conf_list *to = (void *)((char *)c->structs[table] + row->offset);
    const char **list;

    CHECK(row->type == CONF_T_LIST);
    if (n > CONF_LIST_MAX)
        return err_set(e, ERR_CONFIG, "%s.%s has %zu items, most is %d", c->tables[table]->section,
                       row->name, n, CONF_LIST_MAX);
    for (size_t i = 0; i < n; i++)
        if (items[i].len == 0 || memchr(items[i].ptr, '\0', items[i].len) ||
            !str_utf8_valid(items[i]))
            return wrong(c, table, row, items[i], "items of text", e);
    list = XNEW_ARRAY(const char *, n + 1);
    for (size_t i = 0; i < n; i++)
        list[i] = own_string(c, items[i]);
    vec_push(&c->owned, list);
    *to = (struct conf_list){ list, n };
    return 0;
}

static int put_list(struct conf *c, size_t table, const struct conf_row *row, struct str value,
                    struct err *e)
{
    VEC(struct str) items = { 0 };
    struct str rest = value, part;
    bool more = true;
    int result;

    if (str_trim(value).len)
        while (items.len <= CONF_LIST_MAX && str_next(&rest, ',', &more, &part))
            vec_push(&items, str_trim(part));
    result = conf_put_items(c, table, row, items.ptr, items.len, e);
    vec_free(&items);
    return result;
}

int conf_put(struct conf *c, size_t table, const struct conf_row *row, struct str value,
             struct err *e)
{
    void *to = (char *)c->structs[table] + row->offset;

    if ((value.len && memchr(value.ptr, '\0', value.len)) || !str_utf8_valid(value))
        return wrong(c, table, row, value, "text in UTF-8 without NUL", e);
    switch (row->type) {
    case CONF_T_STR:
        *(const char **)to = own_string(c, value);
        return 0;
    case CONF_T_ENUM:
        if (!is_choice(row, value))
            return wrong(c, table, row, value, row->choices, e);
        *(const char **)to = own_string(c, value);
        return 0;
    case CONF_T_BOOL:
        return parse_bool(value, to) ? 0 : wrong(c, table, row, value, "true or false", e);
    case CONF_T_BYTES:
    case CONF_T_DURATION:
    case CONF_T_U64:
        return put_number(c, table, row, value, to, e);
    case CONF_T_LIST:
        return put_list(c, table, row, value, e);
    }
    CHECK(false && "a row has one of the types");
    return ERR_INTERNAL;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load_file(struct conf *c, struct err *e)
{
    const struct fs *fs = fs_real();
    struct buf text;
    int result;

    buf_init(&text, CONF_FILE_MAX);
    result = fs->read_file(fs, c->file, &text, e);
    if (result)
        e->code = result = ERR_CONFIG;
    else
        result = conf_yaml_apply(c, c->file, buf_str(&text), e);
    buf_deinit(&text);
    return result;
}

int conf_go_on(struct conf *c, const struct err *e)
{
    if (!c->wrong)
        return e->code;
    c->wrong->said++;
    c->wrong->fn(c->wrong->cookie, e);
    return 0;
}

static int load(struct conf *c, int argc, char *const *argv, struct err *e)
{
    int result = conf_flags_scan(c, argc, argv, e);

    /* --help works even if other settings are wrong. */
    if (!result && c->action != CONF_HELP && c->action != CONF_VERSION) {
        if (c->file && load_file(c, e))
            result = conf_go_on(c, e); /* flags are looked at, too */
        if (!result)
            result = conf_flags_apply(c, argc, argv, e);
    }
    return result;
}

int conf_load(const struct conf_table *const *tables, size_t n, int argc, char *const *argv,
              struct conf **ret, struct err *e)
{
    struct conf *c = conf_new(tables, n);
    int result = load(c, argc, argv, e);

    if (result) {
        conf_free(c);
        return result;
    }
    *ret = c;
    return 0;
}

int conf_load_all(const struct conf_table *const *tables, size_t n, int argc, char *const *argv,
                  struct conf_wrong *wrong, struct conf **ret)
{
    struct conf *c = conf_new(tables, n);
    struct err e = { 0 };

    c->wrong = wrong;
    if (load(c, argc, argv, &e)) {
        wrong->said++;
        wrong->fn(wrong->cookie, &e);
        conf_free(c);
        return e.code;
    }
    c->wrong = NULL;
    *ret = c;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_text: the tables as text for people: --help, --print-config, the reference.
 *
 * What conf_print writes is a configuration file that loads to the same values (a test holds it to
 * that); so strings are always quoted, with everything outside printable ASCII escaped.
 */
#include <stdio.h>

#include "common/conf/conf_impl.h"

static const char *kind(const struct conf_row *row)
{
    switch (row->type) {
    case CONF_T_STR:
        return "text";
    case CONF_T_BYTES:
        return "size";
    case CONF_T_DURATION:
        return "duration";
    case CONF_T_U64:
        return "number";
    case CONF_T_BOOL:
        return "bool";
    case CONF_T_ENUM:
        return row->choices;
    case CONF_T_LIST:
        return "a,b,...";
    }
    return "?";
}

/* Tables may be given twice (two roles that use the same section): shown once. */
static bool is_repeated(const struct conf_table *const *tables, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (tables[j] == tables[i])
            return true;
    return false;
}

static bool has_default(const struct conf_row *row)
{
    return row->def && *row->def;
}

/* ---- help ------------------------------------------------------------------------------------ */

static void help_row(const struct conf_table *t, const struct conf_row *row, struct buf *out)
{
    (void)buf_addf(out, "  --%s%s.%s", row->type == CONF_T_BOOL ? "[no-]" : "", t->section,
                   row->name);
    if (row->type != CONF_T_BOOL)
        (void)buf_addf(out, " <%s>", kind(row));
    (void)buf_addf(out, "\n      %s", row->help);
    if (has_default(row) || row->min || row->max)
        (void)buf_addf(out, " (");
    if (has_default(row))
        (void)buf_addf(out, "default %s%s", row->def, row->min || row->max ? ", " : "");
    if (row->min && row->max)
        (void)buf_addf(out, "%s to %s", row->min, row->max);
    else if (row->min)
        (void)buf_addf(out, "at least %s", row->min);
    else if (row->max)
        (void)buf_addf(out, "at most %s", row->max);
    (void)buf_addf(out, "%s\n", has_default(row) || row->min || row->max ? ")" : "");
}

/* More rows of the section before, under the same title. */
static bool is_more(const struct conf_table *const *tables, size_t i)
{
    return i > 0 && strcmp(tables[i]->section, tables[i - 1]->section) == 0 &&
           strcmp(tables[i]->title, tables[i - 1]->title) == 0;
}

void conf_help(const struct conf_table *const *tables, size_t n, const char *program,
               struct buf *out)
{
    (void)buf_addf(out,
                   "Usage: %s [--config <file>] [--<section>.<name>=<value> ...]\n\n"
                   "  --config <file>\n      Read this YAML file first; flags override it.\n"
                   "  --print-config\n      Print the configuration in effect as YAML, and exit.\n"
                   "  --print-reference\n      Print all options as Markdown, and exit.\n"
                   "  --version\n      Print the version, and exit.\n"
                   "  --help\n      Print this, and exit.\n\n"
                   "In the file, --http.listen=x is written as `http:` with `listen: x` below.\n",
                   program);
    for (size_t i = 0; i < n; i++) {
        if (is_repeated(tables, i))
            continue;
        if (!is_more(tables, i))
            (void)buf_addf(out, "\n%s\n", tables[i]->title);
        for (size_t j = 0; j < tables[i]->rows_len; j++)
            help_row(tables[i], &tables[i]->rows[j], out);
    }
}

/* ---- the effective configuration ------------------------------------------------------------- */

/* Length and code point of the UTF-8 sequence at s (known to be valid). */
static size_t utf8_take(struct str s, uint32_t *ret)
{
    unsigned char c = (unsigned char)s.ptr[0];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t v = n == 1 ? c : c & (0x7fu >> n);

    for (size_t i = 1; i < n; i++)
        v = v << 6 | ((unsigned char)s.ptr[i] & 0x3f);
    *ret = v;
    return n;
}

static void add_quoted(const char *text, struct buf *out)
{
    struct str s = str_c(text);

    (void)buf_add_c(out, '"');
    while (s.len) {
        uint32_t v;
        size_t n = utf8_take(s, &v);

        if (v == '"' || v == '\\')
            (void)buf_addf(out, "\\%c", (char)v);
        else if (v >= ' ' && v < 0x7f)
            (void)buf_add_c(out, (char)v);
        else if (v < 0x10000)
            (void)buf_addf(out, "\\u%04x", v);
        else
            (void)buf_addf(out, "\\U%08x", v);
        s = str_sub(s, n, s.len);
    }
    (void)buf_add_c(out, '"');
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* In the largest unit that divides it. */
static void add_with_unit(uint64_t v, const struct unit *units, size_t n, struct buf *out)
{
    size_t i = 0;

    while (i + 1 < n && (v == 0 || v % units[i].factor != 0))
        i++;
    (void)buf_addf(out, "%" PRIu64 "%s", v / units[i].factor, units[i].name);
}

static void add_value(const struct conf_row *row, const void *at, struct buf *out)
{
    static const struct unit sizes[] = {
        { "GiB", GIB }, { "MiB", MIB }, { "KiB", KIB }, { "", 1 }
    };
    static const struct unit times[] = {
        { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 }
    };
    const struct conf_list *list = at;

    switch (row->type) {
    case CONF_T_STR:
    case CONF_T_ENUM:
        add_quoted(*(const char *const *)at, out);
        return;
    case CONF_T_BYTES:
        add_with_unit(*(const uint64_t *)at, sizes, ARRAY_LEN(sizes), out);
        return;
    case CONF_T_DURATION:
        add_with_unit(*(const uint64_t *)at, times, ARRAY_LEN(times), out);
        return;
    case CONF_T_U64:
        (void)buf_add_u64(out, *(const uint64_t *)at);
        return;
    case CONF_T_BOOL:
        (void)buf_addf(out, "%s", *(const bool *)at ? "true" : "false");
        return;
    case CONF_T_LIST:
        (void)buf_add_c(out, '[');
        for (size_t i = 0; i < list->len; i++) {
            (void)buf_addf(out, "%s", i ? ", " : "");
            add_quoted(list->items[i], out);
        }
        (void)buf_add_c(out, ']');
        return;
    }
}

static bool section_done(const struct conf *c, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(c->tables[j]->section, c->tables[i]->section) == 0)
            return true;
    return false;
}

void conf_print(const struct conf *c, struct buf *out)
{
    for (size_t i = 0; i < c->tables_len; i++) {
        if (section_done(c, i))
            continue;
        (void)buf_addf(out, "%s%s:\n", i ? "\n" : "", c->tables[i]->section);
        for (size_t k = i; k < c->tables_len; k++) {
            const struct conf_table *t = c->tables[k];

            if (strcmp(t->section, c->tables[i]->section) != 0)
                continue;
            for (size_t j = 0; j < t->rows_len; j++) {
                (void)buf_addf(out, "  %s: ", t->rows[j].name);
                add_value(&t->rows[j], (const char *)c->structs[k] + t->rows[j].offset, out);
                (void)buf_add_c(out, '\n');
            }
        }
    }
}

/* ---- reference ------------------------------------------------------------------------------- */

/* A '|' would end the table cell. */
static void add_cell(const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s == '|')
            (void)buf_add_c(out, '\\');
        (void)buf_add_c(out, *s);
    }
}

void conf_reference(const struct conf_table *const *tables, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct conf_table *t = tables[i];

        if (is_repeated(tables, i))
            continue;
        if (!is_more(tables, i))
            (void)buf_addf(out,
                           "%s## %s: %s\n\n| key | kind | default | from | to | meaning |\n"
                           "|---|---|---|---|---|---|\n",
                           i ? "\n" : "", t->section, t->title);
        for (size_t j = 0; j < t->rows_len; j++) {
            const struct conf_row *row = &t->rows[j];

            (void)buf_addf(out, "| `%s.%s` | ", t->section, row->name);
            add_cell(kind(row), out);
            (void)buf_addf(out, " | %s%s%s | %s | %s | ", has_default(row) ? "`" : "",
                           has_default(row) ? row->def : "", has_default(row) ? "`" : "",
                           row->min ? row->min : "", row->max ? row->max : "");
            add_cell(row->help, out);
            (void)buf_addf(out, " |\n");
        }
    }
}

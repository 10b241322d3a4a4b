/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_yaml: the configuration file, from libyaml's events.
 *
 * A file is one document, a mapping of sections, each a mapping of names to scalars or to sequences
 * of scalars. That is three levels, so the reader is a state machine without recursion, and
 * anything deeper is refused at its first event. Anchors, aliases, tags, further documents and
 * repeated keys are refused too: each is a way to say something other than what is read.
 *
 *   START ── document ──> SECTIONS ── key ──> SECTION ── mapping ──> NAMES ── key ──> VALUE
 *     VALUE ── scalar ──> NAMES          VALUE ── sequence ──> ITEMS ── end ──> NAMES
 *     NAMES ── end ──> SECTIONS ── end ──> END
 */
#include <yaml.h>

#include "common/base/mem.h"
#include "common/conf/conf_impl.h"

enum state { START, SECTIONS, SECTION, NAMES, VALUE, ITEMS, END };

struct reader {
    struct conf *conf; /* borrowed */
    const char *file;  /* borrowed, for messages */
    enum state state;
    size_t line;           /* of the current event, from 1 */
    size_t *section_lines; /* owned, per table: where its section was seen; 0: not yet */
    size_t **row_lines;    /* owned, per table and row */
    char section[CONF_NAME_MAX];
    size_t table;               /* in VALUE and ITEMS */
    const struct conf_row *row; /* NULL: not known, said; its value is passed over */
    bool skip;                  /* the same of a section */
    VEC(char *) item_bytes;     /* owned copies, in ITEMS */
    VEC(struct str) items;
};

static struct reader *reader_new(struct conf *c, const char *file)
{
    struct reader *r = XNEW(struct reader);

    r->conf = c;
    r->file = file;
    r->section_lines = XNEW_ARRAY(size_t, c->tables_len + 1);
    r->row_lines = XNEW_ARRAY(size_t *, c->tables_len + 1);
    for (size_t i = 0; i < c->tables_len; i++)
        r->row_lines[i] = XNEW_ARRAY(size_t, c->tables[i]->rows_len + 1);
    return r;
}

static void drop_items(struct reader *r)
{
    vec_for (i, &r->item_bytes)
        xfree(r->item_bytes.ptr[i]);
    r->item_bytes.len = r->items.len = 0;
}

static void reader_free(struct reader *r)
{
    drop_items(r);
    vec_free(&r->item_bytes);
    vec_free(&r->items);
    for (size_t i = 0; i < r->conf->tables_len; i++)
        xfree(r->row_lines[i]);
    xfree(r->row_lines);
    xfree(r->section_lines);
    xfree(r);
}

static int refuse(const struct reader *r, struct err *e, const char *what)
{
    return err_set(e, ERR_CONFIG, "%s line %zu: %s", r->file, r->line, what);
}

static struct str scalar_str(const yaml_event_t *ev)
{
    return str_n(ev->data.scalar.value, ev->data.scalar.length);
}

/* `key:` with nothing behind it, or a plain ~ or null. */
static bool is_null(const yaml_event_t *ev)
{
    struct str s = scalar_str(ev);

    return ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (s.len == 0 || str_eqc(s, "~") || str_eq_nocase(s, STR("null")));
}

/* ---- events ---------------------------------------------------------------------------------- */

static int on_section_key(struct reader *r, struct str key, struct err *e)
{
    struct conf_hint shown = conf_quote(key);

    if (!conf_has_section(r->conf, key)) {
        struct conf_hint h = conf_hint_section(r->conf, key);

        (void)err_set(e, ERR_CONFIG, "%s line %zu: unknown section \"%s\"%s", r->file, r->line,
                      shown.text, h.text);
        r->skip = true;
        r->state = SECTION;
        return conf_go_on(r->conf, e);
    }
    r->skip = false;
    for (size_t i = 0; i < r->conf->tables_len; i++) {
        if (!str_eqc(key, r->conf->tables[i]->section))
            continue;
        if (r->section_lines[i])
            return err_set(e, ERR_CONFIG, "%s line %zu: section \"%s\" was already on line %zu",
                           r->file, r->line, shown.text, r->section_lines[i]);
        r->section_lines[i] = r->line;
    }
    memcpy(r->section, key.ptr, key.len); /* the section of a table: it fits */
    r->section[key.len] = '\0';
    r->state = SECTION;
    return 0;
}

static int on_name_key(struct reader *r, struct str key, struct err *e)
{
    struct conf_hint shown = conf_quote(key);
    size_t *seen;

    r->state = VALUE;
    if (r->skip) {
        r->row = NULL;
        return 0;
    }
    if (!conf_find(r->conf, str_c(r->section), key, &r->table, &r->row)) {
        struct conf_hint h = conf_hint_name(r->conf, str_c(r->section), key);

        (void)err_set(e, ERR_CONFIG, "%s line %zu: unknown key \"%s\" in section \"%s\"%s", r->file,
                      r->line, shown.text, r->section, h.text);
        r->row = NULL;
        return conf_go_on(r->conf, e);
    }
    seen = &r->row_lines[r->table][r->row - r->conf->tables[r->table]->rows];
    if (*seen)
        return err_set(e, ERR_CONFIG, "%s line %zu: \"%s.%s\" was already on line %zu", r->file,
                       r->line, r->section, shown.text, *seen);
    *seen = r->line;
    return 0;
}

static int on_value(struct reader *r, const yaml_event_t *ev, struct err *e)
{
    int rc = 0;

    r->state = NAMES;
    if (!r->row)
        return 0;
    if (is_null(ev))
        rc = err_set(e, ERR_CONFIG,
                     "%s line %zu: %s.%s has no value: leave the line out, or write \"\"", r->file,
                     r->line, r->section, r->row->name);
    else if (conf_put(r->conf, r->table, r->row, scalar_str(ev), e))
        rc = err_wrap(e, "%s line %zu", r->file, r->line);
    return rc ? conf_go_on(r->conf, e) : 0;
}

static int on_item(struct reader *r, const yaml_event_t *ev, struct err *e)
{
    struct str s = scalar_str(ev);
    char *copy;

    if (is_null(ev))
        return refuse(r, e, "an item has no value");
    if (r->items.len >= CONF_LIST_MAX)
        return refuse(r, e, "too many items");
    copy = xmemdup(ev->data.scalar.value, s.len + 1); /* libyaml ends it with a NUL */
    vec_push(&r->item_bytes, copy);
    vec_push(&r->items, str_n(copy, s.len));
    return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *ev, struct err *e)
{
    if (ev->data.scalar.anchor)
        return refuse(r, e, "anchors (&name) are not accepted here");
    if (ev->data.scalar.tag)
        return refuse(r, e, "tags (!name) are not accepted here");
    switch (r->state) {
    case SECTIONS:
        return on_section_key(r, scalar_str(ev), e);
    case NAMES:
        return on_name_key(r, scalar_str(ev), e);
    case VALUE:
        return on_value(r, ev, e);
    case ITEMS:
        return on_item(r, ev, e);
    case SECTION:
        if (!is_null(ev))
            return refuse(r, e, "a section holds `name: value` lines, not a value");
        r->state = SECTIONS; /* all of it commented out */
        return 0;
    case START:
        if (!is_null(ev))
            return refuse(r, e, "want sections such as `http:` with `name: value` lines below");
        r->state = END;
        return 0;
    case END:
        break;
    }
    return refuse(r, e, "text after the end");
}

static int on_mapping(struct reader *r, const yaml_event_t *ev, struct err *e)
{
    if (ev->data.mapping_start.anchor || ev->data.mapping_start.tag)
        return refuse(r, e, "anchors and tags are not accepted here");
    if (r->state == START)
        r->state = SECTIONS;
    else if (r->state == SECTION)
        r->state = NAMES;
    else if (r->state == VALUE)
        return err_set(e, ERR_CONFIG, "%s line %zu: %s.%s wants a value, not lines below it",
                       r->file, r->line, r->section, r->row ? r->row->name : "?");
    else
        return refuse(r, e, "a mapping does not belong here");
    return 0;
}

static int on_sequence(struct reader *r, const yaml_event_t *ev, struct err *e)
{
    if (ev->data.sequence_start.anchor || ev->data.sequence_start.tag)
        return refuse(r, e, "anchors and tags are not accepted here");
    if (r->state != VALUE)
        return refuse(r, e, "a list does not belong here");
    if (r->row && r->row->type != CONF_T_LIST)
        return err_set(e, ERR_CONFIG, "%s line %zu: %s.%s wants one value, not a list", r->file,
                       r->line, r->section, r->row->name);
    r->state = ITEMS;
    return 0;
}

static int on_sequence_end(struct reader *r, struct err *e)
{
    int rc = 0;

    if (r->row && conf_put_items(r->conf, r->table, r->row, r->items.ptr, r->items.len, e))
        rc = err_wrap(e, "%s line %zu", r->file, r->line) ? conf_go_on(r->conf, e) : 0;
    drop_items(r);
    r->state = NAMES;
    return rc;
}

static int on_event(struct reader *r, const yaml_event_t *ev, struct err *e)
{
    r->line = ev->start_mark.line + 1;
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(r, ev, e);
    case YAML_MAPPING_START_EVENT:
        return on_mapping(r, ev, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_sequence(r, ev, e);
    case YAML_SEQUENCE_END_EVENT:
        return on_sequence_end(r, e);
    case YAML_MAPPING_END_EVENT:
        r->state = r->state == NAMES ? SECTIONS : END;
        return 0;
    case YAML_ALIAS_EVENT:
        return refuse(r, e, "aliases (*name) are not accepted here");
    case YAML_DOCUMENT_START_EVENT:
        return r->state == START ? 0 : refuse(r, e, "a second document is not accepted");
    case YAML_DOCUMENT_END_EVENT:
        r->state = END;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
        return 0;
    }
    return refuse(r, e, "an event of an unknown kind");
}

int conf_yaml_apply(struct conf *c, const char *file, struct str text, struct err *e)
{
    static const unsigned char nothing[1] = { 0 };
    struct reader *r;
    yaml_parser_t p;
    bool end = false;
    int result = 0;

    if (text.len > CONF_FILE_MAX)
        return err_set(e, ERR_CONFIG, "%s has more than %d bytes", file, CONF_FILE_MAX);
    CHECK(yaml_parser_initialize(&p)); /* fails only without memory */
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(
        &p, text.len ? (const unsigned char *)(const void *)text.ptr : nothing, text.len);
    r = reader_new(c, file);
    while (!result && !end) {
        yaml_event_t ev;

        if (!yaml_parser_parse(&p, &ev)) {
            result = err_set(e, ERR_CONFIG, "%s line %zu: %s", file, p.problem_mark.line + 1,
                             p.problem ? p.problem : "cannot be read");
            break;
        }
        result = on_event(r, &ev, e);
        end = ev.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&ev);
    }
    reader_free(r);
    yaml_parser_delete(&p);
    return result;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * space: whose bytes the files are, by service.
 */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/vec.h"
#include "deploy/ctl/ask.h"
#include "deploy/ctl/commands.h"

#define SERVICES 30

struct owner {
    struct str tenant, service;
    double bytes;
};
struct owners {
    VEC(struct owner) at;
};

static int by_bytes(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;
    int c;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    c = str_cmp(x->tenant, y->tenant);
    return c ? c : str_cmp(x->service, y->service);
}

/* Rows of one owner follow one another: the server sorts them so. */
static void read_rows(const struct json_val *rows, struct owners *ret)
{
    struct err e;

    for (size_t i = 0; i < json_len(rows); i++) {
        const struct json_val *v = json_at(rows, i);
        struct owner o = { STR(""), STR(""), 0 }, *last;
        if (json_take_str(json_get(v, "tenant", NULL), "", &o.tenant, &e) ||
            json_take_str(json_get(v, "service", NULL), "", &o.service, &e) ||
            json_take_double(json_get(v, "bytes", NULL), "", &o.bytes, &e))
            continue;
        last = ret->at.len ? &ret->at.ptr[ret->at.len - 1] : NULL;
        if (last && str_eq(last->tenant, o.tenant) && str_eq(last->service, o.service))
            last->bytes += o.bytes;
        else
            vec_push(&ret->at, o);
    }
    if (ret->at.len)
        qsort(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), by_bytes);
}

static double number(const struct json_val *obj, const char *key)
{
    struct err e;
    double v = 0;

    return json_take_double(json_get(obj, key, NULL), key, &v, &e) ? 0 : v;
}

static void put_line(const struct term *t, double bytes, double all, struct str tenant,
                     struct str name, struct buf *out)
{
    size_t used;

    term_value_right(bytes, STR("bytes"), false, 11, out);
    (void)buf_addf(out, " %6.1f %%  ", all > 0 ? 100 * bytes / all : 0.0);
    used = term_name(t, tenant, 16, out);
    term_pad(18 - used, out);
    (void)term_name(t, name, t->width > 50 ? t->width - 40 : 10, out);
    (void)buf_add_c(out, '\n');
}

static void put_volumes(const struct json_val *all, struct buf *out)
{
    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *v = json_at(all, i), *f = json_get(v, "forecast", NULL);

        (void)buf_addf(out, "volume %zu: ", i);
        term_value(number(v, "freeBytes"), STR("bytes"), out);
        (void)buf_add_str(out, STR(" free, "));
        term_value(number(v, "reserveBytes"), STR("bytes"), out);
        (void)buf_add_str(out, STR(" kept free"));
        if (f && json_get(f, "daysLeft", NULL))
            (void)buf_addf(out, ", full in %.0f days", number(f, "daysLeft"));
        else if (f)
            (void)buf_add_str(out, STR(", what is kept will fit"));
        (void)buf_add_c(out, '\n');
    }
}

void space_text(const struct term *t, const struct json_val *root, struct buf *out)
{
    const struct json_val *files = json_get(root, "files", NULL);
    double all = files ? number(files, "total") : number(root, "bytes"), rest = 0;
    struct owners o = { 0 };

    read_rows(json_get(root, "rows", NULL), &o);
    term_style(t, TERM_BOLD, out);
    (void)buf_addf(out, "%11s %8s  %-17s %s\n", "BYTES", "SHARE", "TENANT", "SERVICE");
    term_style(t, TERM_PLAIN, out);
    vec_for (i, &o.at) {
        const struct owner *one = &o.at.ptr[i];
        if (i < SERVICES)
            put_line(t, one->bytes, all, one->tenant,
                     one->service.len ? one->service : STR("(shared by its services)"), out);
        else
            rest += one->bytes;
    }
    if (rest > 0)
        put_line(t, rest, all, STR(""), STR("(smaller ones)"), out);
    if (files) {
        put_line(t, number(files, "log"), all, STR(""), STR("(write-ahead log)"), out);
        put_line(t, number(files, "obsolete") + number(files, "other"), all, STR(""),
                 STR("(other files)"), out);
    }
    put_line(t, all, all, STR(""), STR("(everything)"), out);
    put_volumes(json_get(root, "ingesters", NULL), out);
    vec_free(&o.at);
}

int ctl_space(struct cli *c)
{
    struct ask a = { .target = STR("/api/v1/space") };
    struct json_doc *doc = NULL;
    struct buf body;
    struct err e;

    buf_init(&body, ASK_JSON_MAX);
    int rc = ask_do(c, &a, &body, &e);
    if (!rc && json_parse(buf_str(&body), &doc, &e))
        rc = ask_strange(c, "no JSON", &e);
    if (!rc && c->o.json) {
        (void)buf_add_str(&c->out, str_trim(buf_str(&body)));
        cli_json_end(c);
    } else if (!rc) {
        space_text(&c->term, json_root(doc), &c->out);
    }
    json_doc_free(doc);
    buf_deinit(&body);
    return rc ? commands_fail(c, &e) : cli_done(c);
}

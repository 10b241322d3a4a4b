/* SPDX-License-Identifier: Apache-2.0
 *
 * space: whose bytes the files are, by service.
 *
 * The server answers with rows of (tenant, service, table, bytes), sorted by owner. They are added
 * up by owner, the largest SERVICES are printed, and the rest is one line, so that the sum of the
 * lines is always the size of the files. The volumes of the nodes follow, with the days left.
 */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/vec.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define SERVICES 30

struct owner {
    struct str tenant, service;
    double bytes, far;
};
struct owners {
    VEC(struct owner) at;
    double far; /* of all */
};

static int by_bytes(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;
    int c;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->far != y->far)
        return x->far > y->far ? -1 : 1;
    c = str_cmp(x->tenant, y->tenant);
    return c ? c : str_cmp(x->service, y->service);
}

static double number(const struct json_val *obj, const char *key)
{
    struct err e;
    double v = 0;

    return json_take_double(json_get(obj, key, NULL), key, &v, &e) ? 0 : v;
}

/* Rows of one owner follow one another: the server sorts them so. */
static void read_rows(const struct json_val *rows, struct owners *ret)
{
    struct err e;

    for (size_t i = 0; i < json_len(rows); i++) {
        const struct json_val *v = json_at(rows, i);
        struct owner o = { STR(""), STR(""), 0, 0 }, *last;
        if (json_take_str(json_get(v, "tenant", NULL), "", &o.tenant, &e) ||
            json_take_str(json_get(v, "service", NULL), "", &o.service, &e) ||
            json_take_double(json_get(v, "bytes", NULL), "", &o.bytes, &e))
            continue;
        o.far = number(v, "farBytes");
        ret->far += o.far;
        last = ret->at.len ? &ret->at.ptr[ret->at.len - 1] : NULL;
        if (last && str_eq(last->tenant, o.tenant) && str_eq(last->service, o.service)) {
            last->bytes += o.bytes;
            last->far += o.far;
        } else {
            vec_push(&ret->at, o);
        }
    }
    if (ret->at.len)
        qsort(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), by_bytes);
}

/* Of all: what shares are of, and whether there is a column for the cold tier. */
struct whole {
    const struct term *t;
    double bytes, far;
};

static void put_line(const struct whole *w, double bytes, double far, struct str tenant,
                     struct str name, struct buf *out)
{
    size_t used, width = w->t->width;

    term_value_right(bytes, STR("bytes"), false, 11, out);
    (void)buf_addf(out, " %6.1f %%  ", w->bytes > 0 ? 100 * bytes / w->bytes : 0.0);
    if (w->far > 0) {
        term_value_right(far, STR("bytes"), false, 11, out);
        (void)buf_add_str(out, STR("  "));
        width -= MIN(width, (size_t)13);
    }
    used = term_name(w->t, tenant, 16, out);
    term_pad(18 - used, out);
    (void)term_name(w->t, name, width > 50 ? width - 40 : 10, out);
    (void)buf_add_c(out, '\n');
}

static void put_volumes(const struct term *t, const struct json_val *all, struct buf *out)
{
    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *v = json_at(all, i), *f = json_get(v, "forecast", NULL);

        struct str node = STR("");
        struct err e;

        if (json_take_str(json_get(v, "node", NULL), "", &node, &e) == 0 && node.len) {
            (void)buf_add_str(out, STR("volume of "));
            (void)term_name(t, node, t->width > 50 ? t->width - 40 : 10, out);
            (void)buf_add_str(out, STR(": "));
        } else {
            (void)buf_addf(out, "volume %zu: ", i);
        }
        term_value(number(v, "freeBytes"), STR("bytes"), out);
        (void)buf_add_str(out, STR(" free, "));
        term_value(number(v, "reserveBytes"), STR("bytes"), out);
        (void)buf_add_str(out, STR(" kept free"));
        if (f && json_get(f, "daysLeft", NULL))
            (void)buf_addf(out, ", full in %.0f days", number(f, "daysLeft"));
        else if (f)
            (void)buf_add_str(out, STR(", all that retention keeps will fit"));
        (void)buf_add_c(out, '\n');
    }
}

static void put_head(const struct whole *w, struct buf *out)
{
    term_style(w->t, TERM_BOLD, out);
    (void)buf_addf(out, "%11s %8s  ", "BYTES", "SHARE");
    if (w->far > 0)
        (void)buf_addf(out, "%11s  ", "COLD TIER");
    (void)buf_addf(out, "%-17s %s\n", "TENANT", "SERVICE");
    term_style(w->t, TERM_PLAIN, out);
}

void space_text(const struct term *t, const struct json_val *root, struct buf *out)
{
    const struct json_val *files = json_get(root, "files", NULL);
    struct whole w = { .t = t, .bytes = files ? number(files, "total") : number(root, "bytes") };
    struct owner rest = { STR(""), STR(""), 0, 0 };
    struct owners o = { 0 };

    read_rows(json_get(root, "rows", NULL), &o);
    w.far = o.far;
    put_head(&w, out);
    vec_for (i, &o.at) {
        const struct owner *one = &o.at.ptr[i];
        if (i < SERVICES) {
            put_line(&w, one->bytes, one->far, one->tenant,
                     one->service.len  ? one->service
                     : one->tenant.len ? STR("(shared by its services)")
                                       : STR("(of no tenant)"),
                     out);
            continue;
        }
        rest.bytes += one->bytes;
        rest.far += one->far;
    }
    if (rest.bytes > 0 || rest.far > 0)
        put_line(&w, rest.bytes, rest.far, STR(""), STR("(smaller ones)"), out);
    if (files) {
        put_line(&w, number(files, "log"), 0, STR(""), STR("(write-ahead log)"), out);
        put_line(&w, number(files, "obsolete") + number(files, "other"), 0, STR(""),
                 STR("(other files)"), out);
    }
    put_line(&w, w.bytes, w.far, STR(""), STR("(everything)"), out);
    put_volumes(t, json_get(root, "ingesters", NULL), out);
    vec_free(&o.at);
}

static void put_space(struct cli *c, const struct json_val *root)
{
    space_text(&c->term, root, &c->out);
}

int ctl_space(struct cli *c)
{
    struct err e;

    return commands_show(c, &(struct ask){ .target = STR("/api/v1/space") }, put_space, &e)
               ? commands_fail(c, &e)
               : cli_done(c);
}

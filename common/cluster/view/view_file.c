/* SPDX-License-Identifier: Apache-2.0
 *
 * view_file: <data>/cluster.json: the cluster's id, its map, all records.
 *
 *   loop: changed ──1 s──> text of map and records ──> pool: write, sync, rename ──> loop: again?
 *                 ──20 ms, if this node leads──>
 *
 * Not on the loop, since a sync on a bad disk takes longer than a lease lasts, and this file is
 * worth no lease. At most one is written at a time, and once a second at most, however much
 * changes: what came meanwhile is in the next one. But where this node becomes a leader, it does
 * not wait: with etcd away a leader that restarts leads again by the record that it kept, and a
 * leader that crashed in its first second would have kept the record before (simulated world
 * 3007977).
 */
#include "common/cluster/view/view_file.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/json_in.h"

#define SAVE_AFTER_MS  1000
#define SAVE_SOON_MS   20   /* of many shards that get a leader at once, most come in this time */
#define AGAIN_AFTER_MS 5000 /* it could not be written; SAVE_AFTER_MS if this node leads */
#define FILE_MAX       (64 * MIB)

struct save {            /* one write; frees itself */
    struct view_file *f; /* NULL: gone meanwhile */
    const struct fs *fs;
    char *path; /* owned */
    struct buf text;
    uint64_t version; /* of the map in it */
    bool written, soon;
    struct err err;
};
struct view_file {
    struct view_file_opts o;
    char *path; /* owned */
    struct timer *timer;
    struct save *saving; /* NULL: none */
    bool due;            /* the timer runs, or will when that is done */
    bool soon;           /* it is due at once */
    uint64_t kept;       /* version of the map in the file */
};

/* ---- saving ---------------------------------------------------------------------------------- */

static void save_text(const struct view *v, struct buf *out)
{
    struct buf text;
    struct json j;

    buf_init(&text, MAP_BYTES_MAX * 2);
    json_init(&j, out);
    json_obj(&j);
    map_write(v->map, &text);
    if (v->cluster[0])
        json_put_cstr(&j, "cluster", v->cluster);
    if (v->led_astray)
        json_put_bool(&j, "led_astray", true);
    if (v->drained)
        json_put_bool(&j, "drained", true);
    json_put_str(&j, "map", buf_str(&text));
    json_key(&j, "records");
    json_arr(&j);
    for (uint32_t i = 0; i < v->slots_len; i++) {
        const struct view_slot *s = v->slots[i];

        if (!s->known)
            continue;
        buf_reset(&text);
        record_write(&s->record, &text);
        json_obj(&j);
        json_put_u64(&j, "shard", i);
        json_put_str(&j, "record", buf_str(&text));
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_obj_end(&j);
    buf_deinit(&text);
}

static void save_work(void *cookie)
{
    struct save *s = cookie;

    s->written = s->fs->write_file(s->fs, s->path, buf_str(&s->text), &s->err) == 0;
    if (s->written)
        err_clear(&s->err);
}

static uint64_t wait_ms(const struct view_file *f)
{
    return f->soon ? SAVE_SOON_MS : SAVE_AFTER_MS;
}

static void save_done(void *cookie)
{
    struct save *s = cookie;
    struct view_file *f = s->f;

    if (f) {
        f->saving = NULL;
        if (s->written)
            f->kept = s->version;
        if (s->err.code)
            f->o.failed(f->o.cookie, &s->err);
        f->soon |= s->soon && s->err.code;
        if (s->err.code)
            loop_timer_start(f->timer, f->soon ? SAVE_AFTER_MS : AGAIN_AFTER_MS, 0);
        else if (f->due)
            loop_timer_start(f->timer, wait_ms(f), 0);
        f->due = f->due || s->err.code; /* what waits for it waits until it is there */
    }
    buf_deinit(&s->text);
    xfree(s->path);
    xfree(s);
}

static void on_timer(void *cookie)
{
    struct view_file *f = cookie;
    bool soon = f->soon;
    struct save *s;

    f->due = f->soon = false;
    if (!f->o.view->map)
        return;
    s = XNEW(struct save);
    *s = (struct save){ .f = f,
                        .fs = f->o.fs,
                        .path = xstrdup(f->path),
                        .version = f->o.view->map->version,
                        .soon = soon };
    buf_init(&s->text, FILE_MAX);
    save_text(f->o.view, &s->text);
    f->saving = s;
    if (!buf_ok(&s->text)) {
        (void)err_set(&s->err, ERR_LIMIT, "the cluster's state takes over %d MiB",
                      (int)(FILE_MAX / MIB));
        save_done(s);
    } else if (!f->o.pool) {
        save_work(s);
        save_done(s);
    } else if (!pool_submit(f->o.pool, f->o.loop, save_work, save_done, s)) {
        f->due = true; /* all processors are busy: a little later */
        f->soon = soon;
        save_done(s);
    }
}

void view_file_changed(struct view_file *f, bool soon)
{
    if (f->due && (f->soon || !soon))
        return; /* not put off by what comes: it would never be written while much happens */
    f->due = true;
    f->soon = soon;
    if (!f->saving)
        loop_timer_start(f->timer, wait_ms(f), 0);
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load_records(struct view *v, const struct json_val *list, struct err *e)
{
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json_val *one = json_at(list, i);
        struct repl_record r;
        struct str text = STR_NULL;
        int64_t shard = -1;
        int code = json_take_i64(json_get(one, "shard", NULL), "shard", &shard, e);

        if (!code)
            code = json_take_str(json_get(one, "record", NULL), "record", &text, e);
        if (!code && (shard < 0 || shard >= CLUSTER_SHARDS_MAX))
            code = err_set(e, ERR_INPUT, "shard %" PRId64, shard);
        if (!code)
            code = record_parse(text, &r, e);
        if (code)
            return code;
        view_slots_room(v, (uint32_t)shard + 1);
        view_set_record(v, (uint32_t)shard, &r, 0);
    }
    return 0;
}

/* Builds without cluster ids wrote none. */
static int load_cluster(struct view *v, const struct json_val *one, struct err *e)
{
    struct str id = STR_NULL;
    int code = one ? json_take_str(one, "cluster", &id, e) : 0;

    if (!code && one && !cluster_id_ok(id))
        code = err_set(e, ERR_INPUT, "cluster: want %d hex digits", CLUSTER_ID_LEN);
    if (!code)
        (void)snprintf(v->cluster, sizeof(v->cluster), "%.*s", STR_ARG(id));
    return code;
}

static int load_text(struct view *v, struct str bytes, struct err *e)
{
    const struct map *m;
    struct json_doc *doc;
    struct str text = STR_NULL;
    int code = json_parse(bytes, &doc, e);

    if (code)
        return code;
    code = load_cluster(v, json_get(json_root(doc), "cluster", NULL), e);
    if (!code)
        code = json_take_str(json_get(json_root(doc), "map", NULL), "map", &text, e);
    if (!code)
        code = map_parse("map", text, false, &m, e);
    if (!code) {
        view_set_map(v, m);
        code = json_take_bool(json_get(json_root(doc), "led_astray", NULL), "led_astray",
                              &v->led_astray, e);
    }
    /* For a node that is in the map, the map says it. */
    if (!code && v->node && !map_node(v->map, v->node))
        code = json_take_bool(json_get(json_root(doc), "drained", NULL), "drained", &v->drained, e);
    if (!code) {
        code = load_records(v, json_get(json_root(doc), "records", NULL), e);
    }
    json_doc_free(doc);
    return code;
}

int view_file_load(struct view_file *f, struct err *e)
{
    struct buf in;
    int code;

    buf_init(&in, FILE_MAX);
    code = f->o.fs->read_file(f->o.fs, f->path, &in, e);
    if (!code)
        code = load_text(f->o.view, buf_str(&in), e);
    if (!code)
        f->kept = f->o.view->map->version;
    buf_deinit(&in);
    return code;
}

uint64_t view_file_kept(const struct view_file *f)
{
    return f->kept;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct view_file *view_file_new(const struct view_file_opts *o)
{
    struct view_file *f = XNEW(struct view_file);

    f->o = *o;
    f->path = xstrdup(o->path);
    f->timer = loop_timer_new(o->loop, on_timer, f);
    return f;
}

void view_file_free(struct view_file *f)
{
    if (!f)
        return;
    if (f->saving)
        f->saving->f = NULL;
    loop_timer_free(f->timer);
    xfree(f->path);
    xfree(f);
}

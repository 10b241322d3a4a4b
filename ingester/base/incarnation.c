/* SPDX-License-Identifier: Apache-2.0
 *
 * sole: starts are counted, in the folder and in the coordination service.
 *
 *   <data>/starts           6           what the folder has seen
 *   <data>/starts-after     id 6 life   the other folder's key that this folder found while empty
 *   <prefix>/once/<node>    id 6 life   its number (node-id), the same count, the process's number
 *   <prefix>/adopted...                 read only: common/cluster/rebuild/adopt.h
 *
 *   READING ──may speak──> CLEAR ──registered──> NOTED
 *
 * begin() comes on leaving READING, or as soon as the service is found to be away.
 *
 * A process begins when the service has counted no more starts of this folder than the folder
 * itself; then it counts one more here, and there when it is registered. So:
 *
 * - A folder that was put back has seen less than the service: refused.
 * - A copy next to the original: the process that starts second has the lower count: refused. If
 *   both start at the same time, one of them loses the compare-and-swap of the count.
 * - A copy that was made while the original runs has seen as much. Then the original's key lives on
 *   at another address: refused, when it still does after the time of a lease.
 * - A folder with another number has been the node since, and this one holds logs: refused. An
 *   empty folder is a lost disk: it may (ingester/replicas/replicas_cluster.c sees to what was
 * promised).
 * - `embertree adopt` made another folder the only copy of shards that were not served since, or
 *   made this folder another node: refused (adopt_check), and the service is left unchanged.
 *
 * Where the service is away, or was replaced, the count is not known. Then copies speak, and the
 * start is counted when the service is back. Members that know more than an old folder notice its
 * loss (common/repl/README.md, "Faults that are covered in part"). A process ends when another
 * process of the same folder has a higher count.
 *
 * On a full disk the start cannot be counted here, and then is not counted there either: the
 * process speaks, since it is neither old nor a copy of a live process, and counts once there is
 * room. Until then a copy made of the folder now would be taken for it, if this one ends first.
 */
#include "ingester/base/incarnation.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/rebuild/adopt.h"
#include "common/cluster/view/view.h"
#include "common/obs/log.h"
#include "ingester/base/folder.h"

#define SOON_MS  100
#define LOOK_MS  500
#define BEAT_MS  10000 /* a thousand nodes ask etcd a hundred times a second */
#define SPARE_MS 2000  /* a lease ends no later than this behind its time */
#define TEXT_MAX 256

enum incarnation_state { READING, CLEAR, NOTED };

struct once {
    uint64_t id, n, life;
};

struct incarnation {
    struct incarnation_opts o;
    const struct ingester *in;
    struct coord *coord;
    struct timer *timer;
    char addr[128], file[PATH_MAX], after_file[PATH_MAX], key[COORD_KEY_MAX];
    enum incarnation_state state;
    uint64_t seen; /* starts, as the folder says */
    uint64_t life, since_ms;
    int64_t rev; /* of the key when last read; 0: there is no key */
    bool has_logs, begun, asking;
    bool no_room;      /* to count the start; said */
    struct once found; /* the key when last read; all 0: there is no key */
    struct once after; /* as <data>/starts-after says; all 0: there is no such file */
};

static uint64_t now_ms(const struct incarnation *s)
{
    return clock_mono_ms(loop_clock(s->in->ctx->loop));
}

static void again(struct incarnation *s)
{
    s->asking = false;
    loop_timer_start(s->timer, s->state == NOTED ? BEAT_MS : LOOK_MS, 0);
}

/* True if the service is away, or is not that of this cluster (view.h): counts are unknown. */
static bool nobody_knows(const struct incarnation *s)
{
    const struct view *v = s->in->ctx->view;

    return view_stranger(v)[0] || (!view_trusts(v) && now_ms(s) - s->since_ms > SPARE_MS);
}

static void begin(struct incarnation *s)
{
    if (s->begun)
        return;
    s->begun = true;
    s->o.begin(s->o.cookie);
}

/* Nothing acked is lost by ending: what is on disk is, and it must not be told any more. */
static void end_process(const struct incarnation *s, const char *what, const char *where)
{
    log_error(what, KV_CSTR("node", s->in->ctx->node), KV_CSTR("data", s->in->ctx->data_dir),
              KV_U64("starts", s->seen), KV_CSTR("other", where));
    _exit(1);
}

/* ---- the key --------------------------------------------------------------------------------- */

static bool parse(struct str text, struct once *ret)
{
    char line[TEXT_MAX];

    (void)snprintf(line, sizeof(line), "%.*s", STR_ARG(str_sub(text, 0, TEXT_MAX - 1)));
    return sscanf(line, "%16" SCNx64 " %20" SCNu64 " %16" SCNx64, &ret->id, &ret->n, &ret->life) ==
           3;
}

static bool once_eq(const struct once *a, const struct once *b)
{
    return a->id == b->id && a->n == b->n && a->life == b->life;
}

static void check(const struct incarnation *s, const struct once *k)
{
    if (k->id != s->in->ctx->node_id) {
        if (s->has_logs && s->state == READING && !once_eq(k, &s->after))
            end_process(
                s,
                "another data folder has been this node's since, and other members may rely on its "
                "data: nothing is served from this folder. Keep both. If the other folder was a "
                "mistake (it was empty), stop its process, remove the key from etcd, and start "
                "with this folder again. If this folder is old, move it out of the way and start "
                "with an empty data.dir; delete it when `embertreectl cluster status` finds "
                "nothing",
                s->key);
        return;
    }
    if (k->life == s->life || k->n <= s->seen)
        return;
    end_process(s,
                "this data folder is a copy, or an old folder was restored: the cluster has "
                "counted more starts than it, and relies on the newer folder. Start the newer "
                "folder, or empty data.dir, so that the shards are copied from other members",
                s->key);
}

static void on_noted(void *cookie, const struct coord_reply *r)
{
    struct incarnation *s = cookie;

    if (!r->err && r->done)
        s->state = NOTED;
    again(s);
}

static void note(struct incarnation *s)
{
    struct coord_compare cmp = { .key = str_c(s->key), .rev = s->rev };
    struct view_node me;
    char text[TEXT_MAX];

    if (!view_node_find(s->in->ctx->view, s->in->ctx->node, &me) || !me.live ||
        strcmp(me.addr, s->addr) != 0) {
        again(s); /* not registered yet */
        return;
    }
    (void)snprintf(text, sizeof(text), "%016" PRIx64 " %" PRIu64 " %016" PRIx64,
                   s->in->ctx->node_id, s->seen + 1, s->life);
    struct coord_change chg = { .key = cmp.key, .value = str_c(text) };
    coord_txn(s->coord, &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &chg, .chg_len = 1 },
              on_noted, s);
}

/* ---- may it speak? --------------------------------------------------------------------------- */

/* On disk before any log is made: what this folder followed, if it was another folder, and that it
 * was started once more. */
static int count_start(const struct incarnation *s, struct err *e)
{
    const struct fs *fs = s->in->ctx->env->fs;
    const struct once *k = &s->found;
    char text[TEXT_MAX];

    if (k->id && k->id != s->in->ctx->node_id && !once_eq(k, &s->after)) {
        (void)snprintf(text, sizeof(text), "%016" PRIx64 " %" PRIu64 " %016" PRIx64 "\n", k->id,
                       k->n, k->life);
        if (fs->write_file(fs, s->after_file, str_c(text), e))
            return e->code;
    }
    (void)snprintf(text, sizeof(text), "%" PRIu64 "\n", s->seen + 1);
    return fs->write_file(fs, s->file, str_c(text), e);
}

static void clear(struct incarnation *s)
{
    struct err e;

    if (count_start(s, &e)) {
        if (!s->no_room)
            log_error("the start cannot be counted; it is tried again", KV_ERR(&e));
        s->no_room = true;
        if (e.code == ERR_NO_SPACE)
            begin(s);
        again(s);
        return;
    }
    s->state = CLEAR;
    folder_name(s->in);
    begin(s);
    again(s);
}

static bool has_file(const char *dir, const char *what, uint32_t shard)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s-%" PRIu32, dir, what, shard) < PATH_MAX &&
           access(path, F_OK) == 0;
}

/* Of the shards whose only copy was adopted and never served since. */
static void on_adopted(void *cookie, const struct coord_reply *r)
{
    struct incarnation *s = cookie;
    const struct role_ctx *ctx = s->in->ctx;
    struct adopt_folder f = { ctx->node, ctx->data_dir, ctx->node_id, false, true };
    struct err e;

    if (r->err) {
        begin(s);
        again(s);
        return;
    }
    for (uint32_t i = 0; i < view_shards(ctx->view); i++) {
        int64_t rev;
        const struct repl_record *rec = view_record(ctx->view, i, &rev);

        if (!rec || !adopt_untouched(rec, ctx->node))
            continue;
        f.untouched = true;
        f.has_logs &= has_file(ctx->data_dir, "log", i);
    }
    if (adopt_check(str_c(ctx->cluster->etcd_prefix), r, &f, &e))
        end_process(s, e.text, ctx->cluster->etcd_prefix);
    clear(s);
}

/* Our own process before this one had the same address, or its lease runs out. */
static void on_live(void *cookie, const struct coord_reply *r)
{
    struct incarnation *s = cookie;
    struct coord_key key = key_live(str_c(s->in->ctx->cluster->etcd_prefix), s->in->ctx->node);
    struct live live;
    struct err e;

    for (size_t i = 0; !r->err && i < r->kvs_len; i++) {
        if (!str_eq(r->kvs[i].key, key_str(&key)) || live_parse(r->kvs[i].value, &live, &e) ||
            live.id != s->in->ctx->node_id || strcmp(live.addr, s->addr) == 0)
            continue;
        if (now_ms(s) - s->since_ms > s->in->ctx->cluster->lease_ttl_ms + SPARE_MS)
            end_process(s,
                        "another process lives by a copy of this data folder. Stop one of them for "
                        "good; a node of its own needs an empty data.dir and a name",
                        live.addr);
        again(s);
        return;
    }
    if (r->err) {
        begin(s);
        again(s);
        return;
    }
    struct coord_key adopted = key_adopt(str_c(s->in->ctx->cluster->etcd_prefix));
    coord_list(s->coord, key_str(&adopted), on_adopted, s);
}

static void on_key(void *cookie, const struct coord_reply *r)
{
    struct incarnation *s = cookie;
    struct coord_key live = key_live(str_c(s->in->ctx->cluster->etcd_prefix), s->in->ctx->node);
    struct once k = { 0 };
    bool there = false;

    if (r->err || nobody_knows(s)) {
        begin(s);
        again(s);
        return;
    }
    if (!view_trusts(s->in->ctx->view)) { /* it has not said yet which cluster it holds */
        s->asking = false;
        loop_timer_start(s->timer, SOON_MS, 0);
        return;
    }
    s->rev = 0;
    for (size_t i = 0; i < r->kvs_len; i++) {
        if (!str_eq(r->kvs[i].key, str_c(s->key)))
            continue;
        s->rev = r->kvs[i].mod_rev;
        there = parse(r->kvs[i].value, &k);
    }
    s->found = k;
    if (there)
        check(s, &k);
    if (there && s->state == CLEAR && k.life == s->life) /* the answer to the note was lost */
        s->state = NOTED;
    if (s->state == NOTED && (!there || k.life != s->life))
        s->state = CLEAR; /* the service lost it, or went back to what was before */
    if (s->state == READING)
        coord_list(s->coord, key_str(&live), on_live, s);
    else if (s->state == CLEAR)
        note(s);
    else
        again(s);
}

static void on_timer(void *cookie)
{
    struct incarnation *s = cookie;

    if (s->asking)
        return;
    s->asking = true;
    coord_list(s->coord, str_c(s->key), on_key, s);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Reads starts-after. If the file is missing or cannot be parsed, a folder with logs is refused
 * where another folder has the key: the operator decides which folder is right. */
static int read_after(struct incarnation *s, struct err *e)
{
    const struct fs *fs = s->in->ctx->env->fs;
    struct buf in;
    int code;

    buf_init(&in, TEXT_MAX);
    code = fs->read_file(fs, s->after_file, &in, e);
    if (!code && !parse(buf_str(&in), &s->after))
        s->after = (struct once){ 0 };
    buf_deinit(&in);
    return code == ERR_NOT_FOUND ? 0 : code;
}

static int read_seen(struct incarnation *s, struct err *e)
{
    const struct fs *fs = s->in->ctx->env->fs;
    struct buf in;
    int code;

    buf_init(&in, TEXT_MAX);
    code = fs->read_file(fs, s->file, &in, e);
    if (!code && !str_u64(str_trim(buf_str(&in)), &s->seen))
        code = err_set(e, ERR_CORRUPT,
                       "%s holds no number: if this folder is the right one, write the number of "
                       "etcd's key %s into that file",
                       s->file, s->key);
    buf_deinit(&in);
    return code == ERR_NOT_FOUND ? 0 : code;
}

static bool has_logs(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    bool found = false;

    while (d && !found && (entry = readdir(d)) != NULL)
        found = str_starts(str_c(entry->d_name), STR("log-"));
    if (d)
        (void)closedir(d);
    return found;
}

int incarnation_new(const struct incarnation_opts *o, struct incarnation **ret, struct err *e)
{
    const struct role_ctx *ctx = o->in->ctx;
    struct incarnation *s = XNEW(struct incarnation);
    int code;

    s->o = *o;
    s->in = o->in;
    s->coord = ctx->coord;
    (void)snprintf(s->addr, sizeof(s->addr), "%s", o->addr);
    (void)snprintf(s->key, sizeof(s->key), "%s/once/%s", ctx->cluster->etcd_prefix, ctx->node);
    if (snprintf(s->file, sizeof(s->file), "%s/starts", ctx->data_dir) >= PATH_MAX ||
        snprintf(s->after_file, sizeof(s->after_file), "%s/starts-after", ctx->data_dir) >=
            PATH_MAX)
        code = err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    else if (!(code = read_after(s, e)))
        code = read_seen(s, e);
    if (code) {
        xfree(s);
        return code;
    }
    while (!s->life)
        ctx->env->random(ctx->env, &s->life, sizeof(s->life));
    s->has_logs = has_logs(ctx->data_dir);
    s->since_ms = now_ms(s);
    s->timer = loop_timer_new(ctx->loop, on_timer, s);
    loop_timer_start(s->timer, 0, 0);
    *ret = s;
    return 0;
}

void incarnation_free(struct incarnation *s)
{
    if (!s)
        return;
    coord_cancel(s->coord, s);
    loop_timer_free(s->timer);
    xfree(s);
}

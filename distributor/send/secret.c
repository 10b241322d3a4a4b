/* SPDX-License-Identifier: Apache-2.0
 *
 * secret: a push that comes again through another distributor has the same write id only if both
 * know the same secret. Where a service of coordination is, they agree on one there:
 *
 *   option given ──────────────────────────────────────────────> use the option
 *   else our file, made if missing ──no coordination───────────> use our file
 *        ├── it was agreed on earlier ─────────────────────────> use our file, and look
 *        │ look at <prefix>/write-id-secret
 *        ├── the key exists ──> into our file ─────────────────> use the key
 *        └── it does not ──> put ours, if it is still absent ──> look again
 *
 * The first distributor that puts the key decides permanently: the key is never changed. If the
 * service loses all its data, operators rebuild it (common/cluster/rebuild/etcd_rebuild.h). So each
 * distributor looks again once the view trusts the service again, and puts back the agreed secret.
 * A distributor that has not agreed on a secret waits for these first.
 *
 * Until the secret is known no push is taken: it would be stored under ids that no retry has. The
 * service may be unreachable for long when we start. A note next to our file (AGREED_FILE) says
 * that its secret was agreed on; with it the service is not needed. A file without the note may
 * have been made while the service was unreachable, or before there was one: then we wait.
 */
#include "distributor/send/secret.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/obs/log.h"

#define RETRY_MS    300
#define LOOKS       20 /* without a secret, in a cluster that was there before us: then ours */
#define AGREED_FILE "write-id-secret.agreed" /* of which key, and a hash of the secret */
#define AGREED_MAX  (COORD_KEY_MAX + 32)

struct secret {
    struct secret_opts o;
    char *key; /* owned; what it is called in the service */
    struct buf mine;
    bool known;  /* the tenants have it */
    bool agreed; /* the cluster agreed on `mine` */
    bool asking;
    bool looked; /* the service has spoken */
    uint32_t absent;
    uint64_t store; /* of the view: what the service held when it was looked at */
    struct timer *again;
};

static void look(void *cookie);

static void tell(struct secret *s, struct str text)
{
    struct write_secret secret = write_secret_of(text);

    tenants_secret(s->o.tenants, &secret);
    s->known = true;
}

/* ---- that it was agreed on ------------------------------------------------------------------ */

static int note_path(const struct secret *s, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/" AGREED_FILE, s->o.data_dir);

    return n < 0 || n >= PATH_MAX ? ERR_CONFIG : 0;
}

static void note_text(const struct secret *s, struct str secret, struct buf *out)
{
    struct write_secret h = write_secret_of(secret);

    (void)buf_addf(out, "%s %016" PRIx64 "\n", s->key, hash_mix(h.k0, h.k1));
}

static void note(const struct secret *s, struct str secret)
{
    char path[PATH_MAX];
    struct buf text;
    struct err e;

    if (!s->o.data_dir || note_path(s, path))
        return;
    buf_init(&text, AGREED_MAX);
    note_text(s, secret, &text);
    if (s->o.env->fs->write_file(s->o.env->fs, path, buf_str(&text), &e))
        log_warn("that the secret of write ids was agreed on could not be noted: a start without "
                 "the coordination service will wait for it",
                 KV_ERR(&e));
    buf_deinit(&text);
}

static bool was_agreed(const struct secret *s)
{
    char path[PATH_MAX];
    struct buf text, want;
    struct err e;

    if (!s->o.data_dir || note_path(s, path))
        return false;
    buf_init(&text, AGREED_MAX);
    buf_init(&want, AGREED_MAX);
    note_text(s, buf_str(&s->mine), &want);
    bool same = !s->o.env->fs->read_file(s->o.env->fs, path, &text, &e) &&
                str_eq(buf_str(&text), buf_str(&want));
    buf_deinit(&text);
    buf_deinit(&want);
    return same;
}

/* ---- agreeing --------------------------------------------------------------------------------*/

static void retry(struct secret *s)
{
    loop_timer_start(s->again, RETRY_MS, 0);
}

static void agreed(struct secret *s, struct str text)
{
    struct err e;

    if (text.len < WRITE_ID_SECRET_LEAST) {
        log_error("the write ids' secret in the coordination service is too short to be one",
                  KV_CSTR("key", s->key), KV_U64("bytes", text.len));
        return;
    }
    bool ours = str_eq(text, buf_str(&s->mine));

    if (!ours && s->o.data_dir && write_secret_keep(s->o.data_dir, s->o.env, text, &e)) {
        log_error("the write ids' secret of the cluster could not be kept", KV_ERR(&e));
    } else {
        if (!ours)
            log_info("write ids are made with the secret of the cluster", KV_CSTR("key", s->key));
        note(s, text);
    }
    if (!s->known && !ours) {
        buf_reset(&s->mine);
        (void)buf_add_str(&s->mine, text);
    }
    s->agreed |= ours || !s->known;
    if (!s->known)
        tell(s, text);
    else if (!ours)
        log_error("the cluster has agreed on another secret of write ids than the one in use here, "
                  "as after a loss of all that etcd had: restart this process, or what is pushed "
                  "here and sent again elsewhere counts twice",
                  KV_CSTR("key", s->key));
    s->looked = true;
}

/* If not, on_view comes once it is. */
static bool believed(const struct secret *s)
{
    return !s->o.view || view_trusts(s->o.view);
}

static void on_put(void *cookie, const struct coord_reply *r)
{
    struct secret *s = cookie;

    (void)r; /* done, not done, or unknown: the next look reads what is stored now */
    s->asking = false;
    look(s);
}

/* A distributor that agreed on a secret puts it back, and so does the first of a new cluster.
 * Others wait for LOOKS rounds: a running distributor may need some seconds until its view trusts
 * the service again (view_coord.c). */
static bool may_put(struct secret *s)
{
    if (s->agreed || !s->o.view || view_born(s->o.view))
        return true;
    return view_ready(s->o.view) && ++s->absent >= LOOKS;
}

static void on_looked(void *cookie, const struct coord_reply *r)
{
    struct secret *s = cookie;
    struct coord_compare cmp = { .key = str_c(s->key) };
    struct coord_change put = { .key = str_c(s->key), .value = buf_str(&s->mine) };

    s->asking = false;
    if (!believed(s))
        return;
    for (size_t i = 0; !r->err && i < r->kvs_len; i++)
        if (str_eqc(r->kvs[i].key, s->key)) {
            agreed(s, r->kvs[i].value);
            return;
        }
    if (r->err || !may_put(s)) {
        retry(s);
        return;
    }
    s->asking = true;
    coord_txn(s->o.coord,
              &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &put, .chg_len = 1 }, on_put,
              s);
}

static void look(void *cookie)
{
    struct secret *s = cookie;

    if (s->looked || s->asking || !believed(s))
        return;
    s->asking = true;
    coord_list(s->o.coord, str_c(s->key), on_looked, s);
}

static void on_view(void *cookie)
{
    struct secret *s = cookie;

    if (s->store != view_store(s->o.view)) {
        s->store = view_store(s->o.view);
        s->looked = false;
        s->absent = 0;
    }
    look(s);
}

static int load(struct secret *s, struct err *e)
{
    uint8_t bytes[32];
    bool old;

    if (s->o.data_dir)
        return write_secret_text(s->o.option, s->o.data_dir, s->o.env, &s->mine, &old, e);
    s->o.env->random(s->o.env, bytes, sizeof(bytes));
    hex_add(&s->mine, bytes, sizeof(bytes));
    return 0;
}

int secret_new(const struct secret_opts *o, struct secret **ret, struct err *e)
{
    struct secret *s = XNEW(struct secret);
    char key[COORD_KEY_MAX];

    s->o = *o;
    (void)snprintf(key, sizeof(key), "%s/write-id-secret", o->prefix ? o->prefix : "");
    s->key = xstrdup(key);
    buf_init(&s->mine, 64 * KIB);
    s->again = loop_timer_new(o->loop, look, s);
    if (load(s, e)) {
        secret_free(s);
        return e->code;
    }
    if (!o->coord || o->option[0]) {
        tell(s, buf_str(&s->mine));
    } else {
        s->agreed = was_agreed(s);
        if (s->agreed)
            tell(s, buf_str(&s->mine));
        if (o->view) {
            s->store = view_store(o->view);
            view_watch(o->view, on_view, s);
        }
        look(s);
    }
    *ret = s;
    return 0;
}

void secret_free(struct secret *s)
{
    if (!s)
        return;
    if (s->o.view)
        view_unwatch(s->o.view, on_view, s);
    if (s->o.coord)
        coord_cancel(s->o.coord, s);
    loop_timer_free(s->again);
    buf_deinit(&s->mine);
    xfree(s->key);
    xfree(s);
}

const char *secret_missing(const struct secret *s)
{
    if (s->known)
        return NULL;
    if (!believed(s))
        return "the distributors have not agreed on the secret of write ids yet: the coordination "
               "service does not answer";
    if (s->o.view && !view_ready(s->o.view))
        return "the distributors have not agreed on the secret of write ids yet: there is no "
               "cluster; it begins once as many ingesters live as there are to be copies "
               "(cluster.replicas)";
    return "the distributors have not agreed on the secret of write ids yet: waiting some seconds "
           "for a distributor that may have it";
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * secret: a push that comes again through another distributor has the same write id only if both
 * know the same secret. Where a service of coordination is, they agree on one there:
 *
 *   option given ──────────────────────────────────────────────> that one
 *   else our file, made if missing ──no coordination───────────> that one
 *        │ look at <prefix>/write-id-secret
 *        ├── it is there ──> into our file ────────────────────> that one
 *        └── it is not ──> put ours, if still nobody has ──> look again
 *
 * Whoever is first wins, for ever: the key is never changed. Until it is known no push is taken: it
 * would be stored under ids that nobody finds again. The service may be away when we start: then a
 * file that an earlier start left does after GRACE_MS, since what is in it was agreed on, but for
 * the one that was written by a version which did not agree.
 */
#include "distributor/secret.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"

#define RETRY_MS 300
#define GRACE_MS 10000

struct secret {
    struct secret_opts o;
    char *key; /* owned; what it is called in the service */
    struct buf mine;
    bool old;   /* ours was there before this start */
    bool known; /* the tenants were told */
    struct timer *again, *grace;
};

static void look(void *cookie);

static void tell(struct secret *s, struct str text)
{
    struct write_secret secret = write_secret_of(text);

    tenants_secret(s->o.tenants, &secret);
    s->known = true;
    loop_timer_stop(s->grace);
}

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
    if (!str_eq(text, buf_str(&s->mine))) {
        if (s->o.data_dir && write_secret_keep(s->o.data_dir, s->o.env, text, &e))
            log_error("the write ids' secret of the cluster could not be kept", KV_ERR(&e));
        log_info("write ids are made with the secret of the cluster", KV_CSTR("key", s->key));
    }
    tell(s, text);
}

static void on_put(void *cookie, const struct coord_reply *r)
{
    (void)r; /* done, not done, or nobody knows: what counts is what is there now */
    look(cookie);
}

static void on_looked(void *cookie, const struct coord_reply *r)
{
    struct secret *s = cookie;
    struct coord_compare cmp = { .key = str_c(s->key) };
    struct coord_change put = { .key = str_c(s->key), .value = buf_str(&s->mine) };

    if (s->known)
        return;
    if (r->err) {
        retry(s);
        return;
    }
    for (size_t i = 0; i < r->kvs_len; i++)
        if (str_eqc(r->kvs[i].key, s->key)) {
            agreed(s, r->kvs[i].value);
            return;
        }
    coord_txn(s->o.coord, &cmp, 1, &put, 1, on_put, s);
}

static void look(void *cookie)
{
    struct secret *s = cookie;

    if (!s->known)
        coord_list(s->o.coord, str_c(s->key), on_looked, s);
}

/* The service is away. */
static void on_grace(void *cookie)
{
    struct secret *s = cookie;

    if (s->known || !s->old)
        return;
    log_warn("the coordination service does not answer; write ids are made with the secret that "
             "was agreed on before",
             KV_CSTR("dir", s->o.data_dir));
    tell(s, buf_str(&s->mine));
}

static int load(struct secret *s, struct err *e)
{
    uint8_t bytes[32];

    if (s->o.data_dir)
        return write_secret_text(s->o.option, s->o.data_dir, s->o.env, &s->mine, &s->old, e);
    s->o.env->random(s->o.env, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        buf_addf(&s->mine, "%02x", bytes[i]);
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
    s->grace = loop_timer_new(o->loop, on_grace, s);
    if (load(s, e)) {
        secret_free(s);
        return e->code;
    }
    if (!o->coord || o->option[0]) {
        tell(s, buf_str(&s->mine));
    } else {
        loop_timer_start(s->grace, GRACE_MS, 0);
        look(s);
    }
    *ret = s;
    return 0;
}

void secret_free(struct secret *s)
{
    if (!s)
        return;
    if (s->o.coord)
        coord_cancel(s->o.coord, s);
    loop_timer_free(s->again);
    loop_timer_free(s->grace);
    buf_deinit(&s->mine);
    xfree(s->key);
    xfree(s);
}

const char *secret_missing(const struct secret *s)
{
    return s->known ? NULL
                    : "the distributors have not agreed on the secret of write ids yet: the "
                      "coordination service does not answer";
}

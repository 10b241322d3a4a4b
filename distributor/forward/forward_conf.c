/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_conf: the file as a struct whose text, selectors and rules live in one arena. It never
 * changes: a file that was changed becomes another struct, and who still sends by the old one holds
 * a reference to it.
 */
#include "distributor/forward/forward_conf.h"

#include "common/base/mem.h"
#include "common/conf/conf_tree.h"

#define ARENA_MAX   (16 * MIB)
#define HEADERS_MAX 32

struct reader {
    const char *file;
    struct forward_conf *conf;
    struct err *e;
};

static int full(struct reader *r)
{
    return err_set(r->e, ERR_CONFIG, "%s takes more than %zu bytes of memory", r->file,
                   (size_t)ARENA_MAX);
}

/* Text that is given, else "". */
static int take(struct reader *r, const struct conf_node *n, const char **ret)
{
    struct str s = STR("");

    if (conf_node_str(n, r->file, &s, r->e))
        return r->e->code;
    s = arena_strdup(r->conf->arena, s);
    *ret = s.ptr;
    return s.ptr ? 0 : full(r);
}

static int take_name(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    bool ok = n->key.len > 0 && n->key.len <= FORWARD_NAME_MAX && n->key.ptr[0] != '.';

    for (size_t i = 0; ok && i < n->key.len; i++) {
        char c = n->key.ptr[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_' || c == '.';
    }
    if (!ok)
        return conf_node_fail(n, r->file, r->e,
                              "\"%.*s\" is no name of a target: want 1 to %d of a-z A-Z 0-9 - _ .",
                              STR_ARG(n->key), FORWARD_NAME_MAX);
    struct str s = arena_strdup(r->conf->arena, n->key);
    t->name = s.ptr;
    return s.ptr ? 0 : full(r);
}

static int take_url(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    const struct conf_node *at = conf_node_get(n, "url");
    struct str s = STR("");
    struct err why;

    if (!at)
        return conf_node_fail(n, r->file, r->e, "%s has no url", t->name);
    if (conf_node_str(at, r->file, &s, r->e))
        return r->e->code;
    while (str_ends(s, STR("/")))
        s.len--;
    s = arena_strdup(r->conf->arena, s);
    if (!s.ptr)
        return full(r);
    if (http_client_url_check(s.ptr, &why))
        return conf_node_fail(at, r->file, r->e, "%s", why.text);
    t->url = s.ptr;
    return 0;
}

static int take_headers(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    const char **all;

    if (!n)
        return 0;
    if (conf_node_is(n, r->file, CONF_NODE_MAP, r->e))
        return r->e->code;
    if (n->len > HEADERS_MAX)
        return conf_node_fail(n, r->file, r->e, "%zu headers, at most %d", n->len, HEADERS_MAX);
    all = ARENA_ARRAY(r->conf->arena, const char *, n->len + 1);
    if (!all)
        return full(r);
    for (const struct conf_node *at = n->first; at; at = at->next) {
        struct str value = STR("");
        struct buf line;
        if (conf_node_str(at, r->file, &value, r->e))
            return r->e->code;
        for (size_t i = 0; i < value.len; i++)
            if ((unsigned char)value.ptr[i] < ' ')
                return conf_node_fail(at, r->file, r->e, "a header with a control byte");
        buf_init(&line, 64 * KIB);
        buf_add_str(&line, at->key);
        buf_add_str(&line, STR(": "));
        buf_add_str(&line, value);
        struct str kept = arena_strdup(r->conf->arena, buf_str(&line));
        buf_deinit(&line);
        if (!kept.ptr)
            return full(r);
        all[t->headers_len++] = kept.ptr;
    }
    t->headers = all;
    return 0;
}

static int take_auth(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    static const char *const keys[] = { "username", "password", "password_file", NULL };
    const struct conf_node *basic = conf_node_get(n, "basic_auth");

    if ((basic && conf_node_keys(basic, r->file, keys, r->e)) ||
        take(r, conf_node_get(basic, "username"), &t->user) ||
        take(r, conf_node_get(basic, "password"), &t->password) ||
        take(r, conf_node_get(basic, "password_file"), &t->password_file) ||
        take(r, conf_node_get(n, "bearer_token"), &t->bearer) ||
        take(r, conf_node_get(n, "bearer_token_file"), &t->bearer_file))
        return r->e->code;
    if (basic && !t->user[0])
        return conf_node_fail(basic, r->file, r->e, "basic_auth without a username");
    if (basic && (t->bearer[0] || t->bearer_file[0]))
        return conf_node_fail(basic, r->file, r->e, "want basic_auth or a bearer token, not both");
    return 0;
}

static int take_tls(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    static const char *const keys[] = { "ca_file", "cert_file", "key_file", "insecure_skip_verify",
                                        NULL };

    if (n && conf_node_keys(n, r->file, keys, r->e))
        return r->e->code;
    if (take(r, conf_node_get(n, "ca_file"), &t->tls.ca_file) ||
        take(r, conf_node_get(n, "cert_file"), &t->tls.cert_file) ||
        take(r, conf_node_get(n, "key_file"), &t->tls.key_file))
        return r->e->code;
    return conf_node_bool(conf_node_get(n, "insecure_skip_verify"), r->file, &t->tls.insecure,
                          r->e);
}

static int take_spool(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    static const char *const keys[] = { "max_bytes", "sync", NULL };
    struct str sync = STR("interval");

    t->spool_bytes = 1024 * (uint64_t)MIB;
    if (n && conf_node_keys(n, r->file, keys, r->e))
        return r->e->code;
    if (conf_node_bytes(conf_node_get(n, "max_bytes"), r->file, MIB, (uint64_t)1 << 50,
                        &t->spool_bytes, r->e) ||
        conf_node_choice(conf_node_get(n, "sync"), r->file, "none|interval|always", &sync, r->e))
        return r->e->code;
    t->sync = str_eqc(sync, "none")     ? FORWARD_SYNC_NONE
              : str_eqc(sync, "always") ? FORWARD_SYNC_ALWAYS
                                        : FORWARD_SYNC_INTERVAL;
    return 0;
}

static int take_labels(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    struct err why;

    if (!n)
        return 0;
    if (conf_node_is(n, r->file, CONF_NODE_MAP, r->e))
        return r->e->code;
    for (const struct conf_node *at = n->first; at; at = at->next) {
        struct str value = STR("");
        if (conf_node_str(at, r->file, &value, r->e))
            return r->e->code;
        if (!label_name_plain(at->key) || str_starts(at->key, STR("__")))
            return conf_node_fail(at, r->file, r->e, "\"%.*s\" is no name of a label",
                                  STR_ARG(at->key));
        if (labels_set(&t->add, r->conf->arena, at->key, value, &why))
            return conf_node_fail(at, r->file, r->e, "%s", why.text);
    }
    return 0;
}

static int take_selectors(struct reader *r, const struct conf_node *n, struct selector **ret,
                          size_t *ret_len)
{
    struct str *texts = NULL;
    size_t len = 0;
    struct err why;

    if (!n)
        return 0;
    if (conf_node_strs(n, r->file, r->conf->arena, &texts, &len, r->e))
        return r->e->code;
    *ret = ARENA_ARRAY(r->conf->arena, struct selector, len + 1);
    if (!*ret)
        return full(r);
    for (size_t i = 0; i < len; i++) {
        struct selector *s = &(*ret)[i];
        if (selector_parse(texts[i], SELECTOR_PROMETHEUS, r->conf->arena, s, &why))
            return conf_node_fail(n, r->file, r->e, "%s", why.text);
        *ret_len = i + 1;
        if (selector_compile(s, &why))
            return conf_node_fail(n, r->file, r->e, "%s", why.text);
        if (s->metric.len)
            return conf_node_fail(n, r->file, r->e,
                                  "want {name=\"value\", ...}, no text before it");
    }
    return 0;
}

static int take_rest(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    struct str mode = STR("push");

    t->timeout_ms = 10000;
    t->backoff_least_ms = 500;
    t->backoff_most_ms = 60000;
    t->concurrency = 2;
    if (conf_node_choice(conf_node_get(n, "mode"), r->file, "push|ingest", &mode, r->e) ||
        take(r, conf_node_get(n, "tenant"), &t->tenant) ||
        conf_node_bool(conf_node_get(n, "forward_tenant"), r->file, &t->forward_tenant, r->e) ||
        conf_node_ms(conf_node_get(n, "timeout"), r->file, 100, 600000, &t->timeout_ms, r->e) ||
        conf_node_ms(conf_node_get(n, "min_backoff"), r->file, 10, 3600000, &t->backoff_least_ms,
                     r->e) ||
        conf_node_ms(conf_node_get(n, "max_backoff"), r->file, 10, 3600000, &t->backoff_most_ms,
                     r->e) ||
        conf_node_u64(conf_node_get(n, "concurrency"), r->file, 1, FORWARD_CONCURRENCY_MAX,
                      &t->concurrency, r->e))
        return r->e->code;
    t->mode = str_eqc(mode, "ingest") ? FORWARD_INGEST : FORWARD_PUSH;
    t->backoff_most_ms = MAX(t->backoff_most_ms, t->backoff_least_ms);
    return 0;
}

static int read_target(struct reader *r, const struct conf_node *n, struct forward_target_conf *t)
{
    static const char *const keys[] = { "url",         "mode",           "headers",
                                        "basic_auth",  "bearer_token",   "bearer_token_file",
                                        "tenant",      "forward_tenant", "tls",
                                        "timeout",     "concurrency",    "min_backoff",
                                        "max_backoff", "spool",          "labels",
                                        "match",       "drop",           "relabel_configs",
                                        NULL };

    if (conf_node_keys(n, r->file, keys, r->e) || take_name(r, n, t) || take_url(r, n, t) ||
        take_headers(r, conf_node_get(n, "headers"), t) || take_auth(r, n, t) ||
        take_tls(r, conf_node_get(n, "tls"), t) || take_rest(r, n, t) ||
        take_spool(r, conf_node_get(n, "spool"), t) ||
        take_labels(r, conf_node_get(n, "labels"), t) ||
        take_selectors(r, conf_node_get(n, "match"), &t->match, &t->match_len) ||
        take_selectors(r, conf_node_get(n, "drop"), &t->drop, &t->drop_len) ||
        relabel_conf(conf_node_get(n, "relabel_configs"), r->file, &t->relabel, r->e))
        return r->e->code;
    return 0;
}

static int read_targets(struct reader *r, const struct conf_node *root)
{
    static const char *const keys[] = { "targets", NULL };
    const struct conf_node *all;

    if (conf_node_keys(root, r->file, keys, r->e))
        return r->e->code;
    all = conf_node_get(root, "targets");
    if (!all || all->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(all, r->file, CONF_NODE_MAP, r->e))
        return r->e->code;
    if (all->len > FORWARD_TARGETS_MAX)
        return conf_node_fail(all, r->file, r->e, "%zu targets, at most %d", all->len,
                              FORWARD_TARGETS_MAX);
    r->conf->targets = ARENA_ARRAY(r->conf->arena, struct forward_target_conf, all->len + 1);
    if (!r->conf->targets)
        return full(r);
    for (const struct conf_node *at = all->first; at; at = at->next) {
        struct forward_target_conf *t = &r->conf->targets[r->conf->len++];
        t->owner = r->conf;
        mutex_init(&t->lock);
        if (read_target(r, at, t))
            return r->e->code;
    }
    return 0;
}

int forward_conf_parse(const char *file, struct str text, struct forward_conf **ret, struct err *e)
{
    struct reader r = { .file = file, .conf = XNEW(struct forward_conf), .e = e };
    struct conf_node *root = NULL;

    atomic_init(&r.conf->refs, 1);
    r.conf->arena = arena_new(ARENA_MAX);
    if (conf_tree_parse(file, text, r.conf->arena, &root, e) || read_targets(&r, root)) {
        forward_conf_unref(r.conf);
        return e->code;
    }
    *ret = r.conf;
    return 0;
}

struct forward_conf *forward_conf_ref(struct forward_conf *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

void forward_conf_unref(struct forward_conf *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) > 1)
        return;
    for (size_t i = 0; i < c->len; i++) {
        struct forward_target_conf *t = &c->targets[i];
        for (size_t k = 0; k < t->match_len; k++)
            selector_deinit(&t->match[k]);
        for (size_t k = 0; k < t->drop_len; k++)
            selector_deinit(&t->drop[k]);
        relabel_free(t->relabel);
        mutex_deinit(&t->lock);
    }
    arena_free(c->arena);
    xfree(c);
}

/* 1: one of them matches. */
static int any(const struct selector *all, size_t n, const struct labels *l, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = selector_match(&all[i], l, e);
    return rc;
}

int forward_conf_labels(struct forward_target_conf *t, struct labels *l, struct arena *a,
                        struct err *e)
{
    int rc = 1;

    mutex_lock(&t->lock);
    if (t->match_len)
        rc = any(t->match, t->match_len, l, e);
    if (rc == 1) {
        rc = any(t->drop, t->drop_len, l, e);
        rc = rc < 0 ? -1 : !rc;
    }
    for (size_t i = 0; rc == 1 && i < t->add.len; i++)
        if (labels_set(l, a, t->add.ptr[i].name, t->add.ptr[i].value, e))
            rc = -1;
    if (rc == 1)
        rc = relabel_apply(t->relabel, l, a, e);
    mutex_unlock(&t->lock);
    return rc;
}

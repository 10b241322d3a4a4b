/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_targets: labels of a target, as Prometheus and Alloy make them.
 *
 *   address + labels found ─> + job, __address__, __scheme__, __profile_path_prefix__
 *        ─> relabel_configs ─> URL of what the rules left in __address__ and its kin
 *        ─> instance, service_name where missing ─> names that start with __ go
 *
 * service_name is, in this order: itself; the pod's annotation pyroscope.io/service_name; namespace
 * and container, else namespace and pod, with a '/' between them; the job.
 */
#include "distributor/scrape/scrape_targets.h"

#include "common/base/hash.h"

#define URL_MAX    8192
#define ANNOTATION "__meta_kubernetes_pod_annotation_pyroscope_io_service_name"
#define NO_ROOM    "too many targets: there is no room for their labels"
#define K8S(name)  STR("__meta_kubernetes_" name)

static bool set(struct labels *l, struct arena *a, struct str name, struct str value, struct err *e)
{
    return labels_set(l, a, name, value, e) == 0;
}

static bool set_missing(struct labels *l, struct arena *a, struct str name, struct str value,
                        struct err *e)
{
    return labels_get(l, name).len || !value.len || set(l, a, name, value, e);
}

static struct str join(struct arena *a, struct str x, struct str y)
{
    char *p = arena_alloc(a, x.len + y.len + 1);

    if (!p)
        return STR_NULL;
    memcpy(p, x.ptr, x.len);
    p[x.len] = '/';
    memcpy(p + x.len + 1, y.ptr, y.len);
    return str_n(p, x.len + 1 + y.len);
}

static struct str service_of(const struct labels *l, struct arena *a)
{
    struct str ns = labels_get(l, K8S("namespace")), in = labels_get(l, K8S("pod_container_name"));

    if (labels_get(l, STR("service_name")).len)
        return labels_get(l, STR("service_name"));
    if (labels_get(l, STR(ANNOTATION)).len)
        return labels_get(l, STR(ANNOTATION));
    if (!in.len)
        in = labels_get(l, K8S("pod_name"));
    if (ns.len && in.len)
        return join(a, ns, in);
    return labels_get(l, STR("job"));
}

static int check_address(struct str s, struct err *e)
{
    if (!s.len)
        return err_set(e, ERR_CONFIG, "the target has no __address__");
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f || strchr("/?#@\\\"<>", s.ptr[i]))
            return err_set(e, ERR_CONFIG, "\"%.*s\" is no host:port", (int)MIN(s.len, 100), s.ptr);
    return 0;
}

static bool path_clean(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f || strchr("?#\\\"<>", s.ptr[i]))
            return false;
    return s.len == 0 || s.ptr[0] == '/';
}

static int make_base(const struct labels *l, struct arena *a, struct scrape_target *t,
                     struct err *e)
{
    struct str scheme = labels_get(l, STR("__scheme__"));
    struct str prefix = labels_get(l, STR("__profile_path_prefix__"));
    struct buf b;

    t->address = arena_strdup(a, labels_get(l, STR("__address__")));
    if (check_address(t->address, e))
        return e->code;
    if (!str_eqc(scheme, "http") && !str_eqc(scheme, "https"))
        return err_set(e, ERR_CONFIG, "__scheme__ of %.*s is neither http nor https",
                       (int)MIN(t->address.len, 100), t->address.ptr);
    while (str_ends(prefix, STR("/")))
        prefix.len--;
    if (!path_clean(prefix))
        return err_set(e, ERR_CONFIG, "__profile_path_prefix__ of %.*s is no path",
                       (int)MIN(t->address.len, 100), t->address.ptr);
    buf_init(&b, URL_MAX);
    buf_addf(&b, "%.*s://%.*s%.*s", STR_ARG(scheme), STR_ARG(t->address), STR_ARG(prefix));
    t->base = buf_ok(&b) ? arena_strdup(a, buf_str(&b)) : STR_NULL;
    buf_deinit(&b);
    return t->base.ptr ? 0 : err_set(e, ERR_LIMIT, "the URL of a target is too long");
}

/* What stays: neither inside names nor service_name, which the series get in their own way. */
static bool keep_labels(const struct labels *l, struct arena *a, struct scrape_target *t)
{
    t->labels = (struct labels){ ARENA_ARRAY(a, struct label, l->len + 1), 0 };
    for (size_t i = 0; t->labels.ptr && i < l->len; i++) {
        const struct label *at = &l->ptr[i];
        if (str_starts(at->name, STR("__")) || str_eqc(at->name, "service_name") || !at->value.len)
            continue;
        struct label copy = { arena_strdup(a, at->name), arena_strdup(a, at->value) };
        if (!copy.name.ptr || !copy.value.ptr)
            return false;
        t->labels.ptr[t->labels.len++] = copy;
    }
    return t->labels.ptr != NULL;
}

static uint64_t hash_of(const struct scrape_job *j, const struct scrape_target *t)
{
    uint64_t h = hash64(j->name.ptr, j->name.len, 0);

    h = hash64(t->base.ptr, t->base.len, h);
    h = hash64(t->service.ptr, t->service.len, h);
    return labels_hash(&t->labels, h);
}

int scrape_target_of(const struct scrape_job *j, struct str address, const struct labels *found,
                     struct arena *a, struct scrape_target *ret, struct err *e)
{
    struct scrape_target t = { 0 };
    struct labels l = { ARENA_ARRAY(a, struct label, found->len + 1), found->len };

    /* Ours to change: the other addresses of the group have the same ones. */
    if (!l.ptr) {
        err_set(e, ERR_LIMIT, NO_ROOM);
        return -1;
    }
    if (l.len)
        memcpy(l.ptr, found->ptr, l.len * sizeof(*l.ptr));
    if (!set(&l, a, STR("__address__"), address, e) ||
        !set_missing(&l, a, STR("job"), j->name, e) ||
        !set_missing(&l, a, STR("__scheme__"), j->https ? STR("https") : STR("http"), e) ||
        !set_missing(&l, a, STR("__profile_path_prefix__"), j->path_prefix, e))
        return -1;
    int kept = relabel_apply(j->relabel, &l, a, e);
    if (kept <= 0)
        return kept;
    if (make_base(&l, a, &t, e) || !set_missing(&l, a, STR("instance"), t.address, e))
        return -1;
    t.service = arena_strdup(a, service_of(&l, a));
    if (!t.service.ptr || !keep_labels(&l, a, &t)) {
        err_set(e, ERR_LIMIT, NO_ROOM);
        return -1;
    }
    t.hash = hash_of(j, &t);
    *ret = t;
    return 1;
}

static void add_escaped(struct buf *b, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            (c && strchr("-._~", c)))
            buf_add_c(b, (char)c);
        else
            buf_addf(b, "%%%02X", c);
    }
}

struct str scrape_url(const struct scrape_job *j, const struct scrape_target *t,
                      const struct scrape_profile *p, uint64_t seconds, struct arena *a)
{
    char mark = str_contains(p->path, STR("?")) ? '&' : '?';
    struct str ret = STR_NULL;
    struct buf b;

    buf_init(&b, URL_MAX);
    buf_add_str(&b, t->base);
    buf_add_str(&b, p->path);
    for (size_t i = 0; i < j->params.len; i++, mark = '&') {
        buf_add_c(&b, mark);
        add_escaped(&b, j->params.ptr[i].name);
        buf_add_c(&b, '=');
        add_escaped(&b, j->params.ptr[i].value);
    }
    if (p->delta)
        buf_addf(&b, "%cseconds=%" PRIu64, mark, seconds);
    if (buf_ok(&b))
        ret = arena_strdup(a, buf_str(&b));
    buf_deinit(&b);
    return ret;
}

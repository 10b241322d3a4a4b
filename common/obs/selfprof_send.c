/* SPDX-License-Identifier: Apache-2.0
 *
 * selfprof_send: a short queue in front of http_post.
 *
 * Each push has an idempotency key made when it is queued, so a retry after a lost answer counts
 * once. What the server does not want (4xx but 408 and 429) goes at once; anything else is tried
 * again after a second, in order, until it is a minute old.
 */
#include "common/obs/selfprof_send.h"

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/obs/http_post.h"

enum {
    WAITING_MAX = 256,
    RETRY_MS = 1000,
    AGE_MAX_MS = 60000,
    TIMEOUT_MS = 5000,
    PATH_MAX_BYTES = 4096
};

struct push {
    struct list link;
    char *path;      /* owned: "/ingest?name=..." */
    struct str body; /* owned */
    char headers[512];
    uint64_t born_ms;
};
struct selfprof_sender {
    const struct selfprof_opts *o; /* borrowed */
    struct http_target target;
    struct list waiting; /* of struct push, oldest first */
    size_t waiting_len;
    uint64_t not_before_ms;
    struct metric_cell *sent, *failed;
};

/* Names and labels travel in name=svc.cpu{k=v,...}, which has no escapes: so no ",", "{" or "}". */
static bool label_text_ok(const char *s, bool pairs)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c <= ' ' || c >= 0x7f || strchr("{}&#\"", c) || (!pairs && strchr(",=", c)))
            return false;
    }
    return true;
}

static int check(const struct selfprof_opts *o, struct err *e)
{
    const char *tenant = o->tenant ? o->tenant : "";

    if (!o->service || !*o->service || !label_text_ok(o->service, false))
        return err_set(e, ERR_CONFIG, "the service to push to has no usable name");
    if (o->labels && !label_text_ok(o->labels, true))
        return err_set(e, ERR_CONFIG, "labels \"%s\": want name=value,name=value", o->labels);
    if (strlen(tenant) > 150 || !label_text_ok(tenant, true))
        return err_set(e, ERR_CONFIG, "\"%s\" is no usable tenant", tenant);
    return 0;
}

static void add_metrics(struct selfprof_sender *s)
{
    const struct str ok = STR("ok"), failed = STR("failed");
    struct metric *m;

    if (!s->o->metrics)
        return;
    m = metric_new(s->o->metrics, METRIC_COUNTER, "embertree_selfprof_pushes_total",
                   "Profiles of this process that were pushed, or dropped.", "result");
    s->sent = metric_at(m, &ok, 1);
    s->failed = metric_at(m, &failed, 1);
}

int selfprof_sender_new(const struct selfprof_opts *o, struct selfprof_sender **ret, struct err *e)
{
    struct selfprof_sender *s;
    struct http_target target = { .addr_len = 0 };

    /* A process that takes the pushes itself needs no address to send them to. */
    if (!o->on_push && http_target_parse(o->url ? o->url : "", &target, e))
        return e->code;
    if (check(o, e))
        return e->code;
    s = XNEW(struct selfprof_sender);
    s->o = o;
    s->target = target;
    list_init(&s->waiting);
    add_metrics(s);
    *ret = s;
    return 0;
}

static void drop_first(struct selfprof_sender *s)
{
    struct push *p = container_of(s->waiting.next, struct push, link);

    list_del(&p->link);
    s->waiting_len--;
    xfree(p->path);
    xfree((void *)(uintptr_t)p->body.ptr);
    xfree(p);
}

void selfprof_sender_free(struct selfprof_sender *s)
{
    if (!s)
        return;
    while (s->waiting_len)
        drop_first(s);
    xfree(s);
}

size_t selfprof_sender_waiting(const struct selfprof_sender *s)
{
    return s->waiting_len;
}

/* Percent-encoding of what a query value may not hold (RFC 3986, section 3.4). */
static void add_query_value(struct buf *b, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-._~:/,=", c))
            (void)buf_add_c(b, (char)c);
        else
            (void)buf_addf(b, "%%%02X", c);
    }
}

static char *path_of(const struct selfprof_sender *s, const struct selfprof_push *p)
{
    const char *comma = "";
    struct buf name, path;

    buf_init(&name, PATH_MAX_BYTES);
    buf_init(&path, 4 * PATH_MAX_BYTES);
    (void)buf_addf(&name, "%s.cpu{", s->o->service);
    if (*p->role || *p->thread) {
        (void)buf_addf(&name, "role=%s,thread=%s", p->role, p->thread);
        comma = ",";
    }
    if (s->o->labels && *s->o->labels)
        (void)buf_addf(&name, "%s%s", comma, s->o->labels);
    (void)buf_add_str(&name, STR("}"));
    (void)buf_add_c(&name, '\0');
    (void)buf_add_str(&path, STR("/ingest?name="));
    add_query_value(&path, buf_ok(&name) ? name.ptr : s->o->service);
    (void)buf_addf(&path,
                   "&from=%" PRId64 "&until=%" PRId64 "&sampleRate=%" PRIu64
                   "&format=folded&units=samples&aggregationType=sum&spyName=embertree",
                   p->from_ms, p->until_ms, s->o->hz);
    (void)buf_add_c(&path, '\0');
    CHECK(buf_ok(&path));
    buf_deinit(&name);
    return (char *)(uintptr_t)buf_take(&path).ptr;
}

static void set_headers(const struct selfprof_sender *s, struct push *to)
{
    const char *tenant = s->o->tenant ? s->o->tenant : "";
    uint64_t key[2];
    struct buf b;

    s->o->env->random(s->o->env, key, sizeof(key));
    buf_init(&b, sizeof(to->headers));
    (void)buf_addf(&b,
                   "Content-Type: text/plain\r\nUser-Agent: embertree-selfprof\r\n"
                   "Idempotency-Key: %016" PRIx64 "%016" PRIx64 "\r\n",
                   key[0], key[1]);
    if (*tenant)
        (void)buf_addf(&b, "X-Scope-OrgID: %s\r\n", tenant);
    if (s->o->token)
        (void)buf_addf(&b, "Authorization: Bearer %s\r\n", s->o->token);
    (void)buf_add_c(&b, '\0');
    CHECK(buf_ok(&b));
    memcpy(to->headers, b.ptr, b.len);
    buf_deinit(&b);
}

static void count_failed(struct selfprof_sender *s)
{
    if (s->failed)
        metric_add(s->failed, 1);
}

void selfprof_sender_add(struct selfprof_sender *s, const struct selfprof_push *p)
{
    struct push *n = XNEW(struct push);

    if (s->waiting_len == WAITING_MAX) {
        drop_first(s);
        count_failed(s);
    }
    n->path = path_of(s, p);
    n->body = str_n(xmemdup(p->folded.ptr, p->folded.len), p->folded.len);
    n->born_ms = clock_mono_ms(s->o->env->clock);
    set_headers(s, n);
    list_add_tail(&s->waiting, &n->link);
    s->waiting_len++;
}

/* True when the push is done with, one way or the other. */
static bool send_one(struct selfprof_sender *s, const struct push *p, int stop_fd)
{
    struct err e = { 0 };
    int status = 0;
    const struct http_post post = { .path = p->path,
                                    .headers = p->headers,
                                    .body = p->body,
                                    .timeout_ms = TIMEOUT_MS,
                                    .cancel_fd = stop_fd };
    bool too_old = clock_mono_ms(s->o->env->clock) - p->born_ms >= AGE_MAX_MS;

    if (!http_post(&s->target, &post, &status, &e)) {
        if (status / 100 == 2) {
            if (s->sent)
                metric_add(s->sent, 1);
            return true;
        }
        (void)err_set(&e, ERR_INPUT, "%s answered %d", s->target.host, status);
        too_old |= status / 100 == 4 && status != 408 && status != 429;
    }
    if (s->o->on_error && e.code != ERR_CANCELED)
        s->o->on_error(s->o->cookie, &e);
    if (too_old)
        count_failed(s);
    return too_old;
}

void selfprof_sender_run(struct selfprof_sender *s, int stop_fd)
{
    if (clock_mono_ms(s->o->env->clock) < s->not_before_ms)
        return;
    while (s->waiting_len) {
        if (!send_one(s, container_of(s->waiting.next, struct push, link), stop_fd)) {
            s->not_before_ms = clock_mono_ms(s->o->env->clock) + RETRY_MS;
            return;
        }
        drop_first(s);
    }
}

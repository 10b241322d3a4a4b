/* SPDX-License-Identifier: Apache-2.0
 *
 * http_multi: libcurl's multi interface on one thread of its own.
 *
 *   loop    start ─> inbox ──wakeup──> thread: curl_multi_poll, perform ──┐
 *   loop    on_data, done <──loop_post── pieces, the end <────────────────┘
 *
 * A thread, since libcurl may block in places a loop must not: reading certificates, name lookup
 * without threads. What a call owns goes back and forth: the thread's from the inbox until it posts
 * the end, the loop's afterwards. The end is posted exactly once for each call, canceled or not,
 * and frees it; so a call that was canceled only has to be marked. Pieces of a stream that the loop
 * did not look at yet are counted; a loop that does not keep up ends the call.
 */
#include "common/net/client/http_multi.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/sys/thread.h"

#define CLIENT_MAGIC   MAGIC('h', 't', 'c', 'l')
#define CALL_MAGIC     MAGIC('h', 't', 'c', 'a')
#define CONNECT_MS     10000
#define POLL_MS        1000
#define CHARGE_STEP    (64 * KIB)
#define CONNECTIONS    256 /* kept open */
#define HEADER_MAX     (64 * KIB)
#define STALL_LEAST_MS 1000

struct http_call {
    uint32_t magic;
    struct http_multi *client;
    CURL *easy;
    struct curl_slist *headers;
    struct budget *budget;
    size_t body_max, received;
    void (*on_data)(void *cookie, struct str bytes);
    void (*done)(void *cookie, struct http_multi_reply *r);
    void *cookie;
    char *request_body;
    uint64_t began_ms;
    struct http_call *inbox_next;
    struct http_call *prev, *next; /* in the client's list of open ones */
    /* The thread's, then the loop's. */
    struct http_multi_reply reply;
    struct err err;
    char error_text[CURL_ERROR_SIZE];
    bool over_body, over_budget, over_unread; /* why a write was refused */
    _Atomic size_t unread;                    /* bytes posted that on_data did not see yet */
    _Atomic bool canceled;
    bool running; /* thread: it is in the multi handle */
};

struct http_multi {
    uint32_t magic;
    struct loop *loop;
    char *agent;
    CURLM *multi;
    struct thread thread;
    struct mutex lock;
    struct http_call *inbox;       /* below lock: started, newest first */
    bool stopping;                 /* below lock */
    _Atomic bool check;            /* a call was canceled */
    VEC(struct http_call *) calls; /* the thread's */
    struct http_call *open;        /* loop: calls whose end was not seen */
    bool dead;                     /* loop: being freed, no callback is called */
};

static uint64_t now_ms(const struct http_multi *c)
{
    return clock_mono_ms(loop_clock(c->loop));
}

/* ---- the end of a call, on the loop ---------------------------------------------------------- */

static void call_free(struct http_call *k)
{
    if (k->easy)
        curl_easy_cleanup(k->easy);
    curl_slist_free_all(k->headers);
    buf_deinit(&k->reply.body);
    if (k->budget && k->reply.charged)
        budget_release(k->budget, k->reply.charged);
    xfree(k->request_body);
    k->magic = 0;
    xfree(k);
}

static void call_ended(void *cookie)
{
    struct http_call *k = cookie;

    CHECK(k->magic == CALL_MAGIC);
    if (k->next)
        k->next->prev = k->prev;
    *(k->prev ? &k->prev->next : &k->client->open) = k->next;
    if (!k->canceled && !k->client->dead) {
        k->reply.err = k->err.code ? &k->err : NULL;
        k->reply.took_ms = now_ms(k->client) - k->began_ms;
        k->done(k->cookie, &k->reply);
    }
    call_free(k);
}

struct piece {
    struct http_call *call;
    size_t len;
    char bytes[];
};

static void piece_arrived(void *cookie)
{
    struct piece *p = cookie;
    struct http_call *k = p->call; /* lives: its end is posted behind its pieces */

    CHECK(k->magic == CALL_MAGIC);
    if (!k->canceled && !k->client->dead)
        k->on_data(k->cookie, str_n(p->bytes, p->len));
    atomic_fetch_sub(&k->unread, p->len);
    xfree(p);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool keep_piece(struct http_call *k, const char *p, size_t n)
{
    struct piece *piece;

    if (atomic_fetch_add(&k->unread, n) + n > HTTP_MULTI_UNREAD_MAX) {
        k->over_unread = true;
        return false;
    }
    piece = xmalloc(sizeof(*piece) + n);
    piece->call = k;
    piece->len = n;
    memcpy(piece->bytes, p, n);
    loop_post(k->client->loop, piece_arrived, piece);
    return true;
}

static bool charge(struct http_call *k, size_t need)
{
    size_t step = MAX(need - MIN(need, k->reply.charged), CHARGE_STEP);

    if (!k->budget || need <= k->reply.charged)
        return true;
    if (!budget_reserve(k->budget, step))
        return false;
    k->reply.charged += step;
    return true;
}

static size_t on_write(char *p, size_t size, size_t count, void *cookie)
{
    struct http_call *k = cookie;
    size_t n = size * count;
    long status = 0;

    if (k->canceled || n == 0)
        return k->canceled ? 0 : n;
    (void)curl_easy_getinfo(k->easy, CURLINFO_RESPONSE_CODE, &status);
    if (k->on_data && status == 200)
        return keep_piece(k, p, n) ? n : 0;
    k->over_body = k->received + n > k->body_max;
    if (k->over_body)
        return 0;
    /* A buffer doubles: its memory may be twice its contents. */
    k->over_budget = !charge(k, 2 * (k->received + n));
    if (k->over_budget || !buf_add(&k->reply.body, p, n))
        return 0;
    k->received += n;
    return n;
}

static void call_error(struct http_call *k, CURLcode code)
{
    const char *text = k->error_text[0] ? k->error_text : curl_easy_strerror(code);

    if (k->over_body)
        (void)err_set(&k->err, ERR_TOO_LARGE, "the reply has more than %zu bytes", k->body_max);
    else if (k->over_budget)
        (void)err_set(&k->err, ERR_BUSY, "there is no memory for the reply now");
    else if (k->over_unread)
        (void)err_set(&k->err, ERR_BUSY, "the stream came faster than it could be read");
    else if (code == CURLE_OPERATION_TIMEDOUT)
        (void)err_set(&k->err, ERR_TIMEOUT, "%s", text);
    else if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
             code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM)
        (void)err_set(&k->err, ERR_CONFIG, "%s", text);
    else
        (void)err_set(&k->err, ERR_UNAVAILABLE, "%s", text);
}

static void call_finish(struct http_multi *c, struct http_call *k, CURLcode code)
{
    curl_off_t retry = 0;
    long status = 0;

    if (k->running)
        (void)curl_multi_remove_handle(c->multi, k->easy);
    k->running = false;
    vec_for (i, &c->calls) {
        if (c->calls.ptr[i] == k) {
            c->calls.ptr[i] = c->calls.ptr[--c->calls.len];
            break;
        }
    }
    if (code != CURLE_OK)
        call_error(k, code);
    (void)curl_easy_getinfo(k->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(k->easy, CURLINFO_RETRY_AFTER, &retry);
    k->reply.status = (int)status;
    k->reply.retry_after_s = retry > 0 ? (uint64_t)retry : 0;
    loop_post(c->loop, call_ended, k);
}

/* False: it is time to stop. */
static bool take_inbox(struct http_multi *c)
{
    struct http_call *k, *next;
    bool stopping;

    mutex_lock(&c->lock);
    k = c->inbox;
    c->inbox = NULL;
    stopping = c->stopping;
    mutex_unlock(&c->lock);
    for (; k; k = next) {
        next = k->inbox_next;
        vec_push(&c->calls, k);
        k->running = curl_multi_add_handle(c->multi, k->easy) == CURLM_OK;
        if (!k->running)
            call_finish(c, k, CURLE_FAILED_INIT);
    }
    return !stopping;
}

static void drop_canceled(struct http_multi *c, bool all)
{
    if (!atomic_exchange(&c->check, false) && !all)
        return;
    for (size_t i = c->calls.len; i > 0; i--)
        if (all || c->calls.ptr[i - 1]->canceled)
            call_finish(c, c->calls.ptr[i - 1], CURLE_ABORTED_BY_CALLBACK);
}

static void client_thread(void *cookie)
{
    struct http_multi *c = cookie;
    const CURLMsg *m;
    int n;

    CHECK(c->magic == CLIENT_MAGIC);
    while (take_inbox(c)) {
        drop_canceled(c, false);
        (void)curl_multi_perform(c->multi, &n);
        while ((m = curl_multi_info_read(c->multi, &n))) {
            char *private = NULL;
            CURLcode code = m->data.result;
            if (m->msg != CURLMSG_DONE)
                continue;
            (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
            call_finish(c, (struct http_call *)(void *)private, code);
        }
        (void)curl_multi_poll(c->multi, NULL, 0, POLL_MS, NULL);
    }
    drop_canceled(c, true);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void set_tls(CURL *h, const struct http_client_tls *t)
{
    if (t->ca_file && t->ca_file[0]) {
        (void)curl_easy_setopt(h, CURLOPT_CAINFO, t->ca_file);
        (void)curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
    }
    if (t->cert_file && t->cert_file[0])
        (void)curl_easy_setopt(h, CURLOPT_SSLCERT, t->cert_file);
    if (t->key_file && t->key_file[0])
        (void)curl_easy_setopt(h, CURLOPT_SSLKEY, t->key_file);
    if (t->insecure) {
        (void)curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

static void set_deadlines(CURL *h, const struct http_multi_req *r)
{
    (void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS,
                           (long)(r->connect_ms ? r->connect_ms : CONNECT_MS));
    (void)curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)r->timeout_ms);
    if (r->stall_ms) {
        (void)curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
        (void)curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME,
                               (long)(MAX(r->stall_ms, STALL_LEAST_MS) / 1000));
    }
}

static void set_request(struct http_call *k, const struct http_multi_req *r)
{
    CURL *h = k->easy;

    (void)curl_easy_setopt(h, CURLOPT_URL, r->url);
    for (size_t i = 0; i < r->headers_len; i++) {
        struct curl_slist *more = curl_slist_append(k->headers, r->headers[i]);
        CHECK(more); /* fails only without memory */
        k->headers = more;
    }
    if (r->bearer && r->bearer[0]) {
        (void)curl_easy_setopt(h, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        (void)curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, r->bearer);
    } else if (r->user && r->user[0]) {
        (void)curl_easy_setopt(h, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        (void)curl_easy_setopt(h, CURLOPT_USERNAME, r->user);
        (void)curl_easy_setopt(h, CURLOPT_PASSWORD, r->password ? r->password : "");
    }
    if (r->body.ptr) {
        k->request_body = xmemdup(r->body.len ? r->body.ptr : "", MAX(r->body.len, 1));
        (void)curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.len);
        (void)curl_easy_setopt(h, CURLOPT_POSTFIELDS, k->request_body);
        /* Otherwise libcurl waits a second for "100 Continue", which the servers called here do not
         * send. */
        struct curl_slist *more = curl_slist_append(k->headers, "Expect:");
        CHECK(more);
        k->headers = more;
    }
    if (r->method)
        (void)curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, r->method);
    (void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, k->headers);
}

struct http_call *http_multi_start(struct http_multi *c, const struct http_multi_req *r)
{
    struct http_call *k = XNEW(struct http_call);

    CHECK(c->magic == CLIENT_MAGIC && r->done);
    *k = (struct http_call){ .magic = CALL_MAGIC,
                             .client = c,
                             .budget = r->budget,
                             .body_max = r->body_max,
                             .on_data = r->on_data,
                             .done = r->done,
                             .cookie = r->cookie,
                             .began_ms = now_ms(c) };
    buf_init(&k->reply.body, r->body_max);
    k->easy = curl_easy_init();
    CHECK(k->easy);
    (void)curl_easy_setopt(k->easy, CURLOPT_PRIVATE, k);
    (void)curl_easy_setopt(k->easy, CURLOPT_ERRORBUFFER, k->error_text);
    (void)curl_easy_setopt(k->easy, CURLOPT_WRITEFUNCTION, on_write);
    (void)curl_easy_setopt(k->easy, CURLOPT_WRITEDATA, k);
    (void)curl_easy_setopt(k->easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(k->easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(k->easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(k->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(k->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(k->easy, CURLOPT_USERAGENT, c->agent);
    set_tls(k->easy, &r->tls);
    set_deadlines(k->easy, r);
    set_request(k, r);
    k->next = c->open;
    if (k->next)
        k->next->prev = k;
    c->open = k;
    mutex_lock(&c->lock);
    k->inbox_next = c->inbox;
    c->inbox = k;
    mutex_unlock(&c->lock);
    (void)curl_multi_wakeup(c->multi);
    return k;
}

void http_call_cancel(struct http_call *call)
{
    if (!call)
        return;
    CHECK(call->magic == CALL_MAGIC);
    call->canceled = true;
    call->client->check = true;
    (void)curl_multi_wakeup(call->client->multi);
}

struct http_multi *http_multi_new(struct loop *loop, const char *agent)
{
    struct http_multi *c = XNEW(struct http_multi);

    http_client_global();
    c->magic = CLIENT_MAGIC;
    c->loop = loop;
    c->agent = xstrdup(agent);
    c->multi = curl_multi_init();
    CHECK(c->multi);
    (void)curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS);
    mutex_init(&c->lock);
    thread_start(&c->thread, "http-client", client_thread, c);
    return c;
}

/* The posted ends still refer to the client: it goes behind the last of them. */
static void client_gone(void *cookie)
{
    struct http_multi *c = cookie;

    CHECK(c->magic == CLIENT_MAGIC && !c->open);
    mutex_deinit(&c->lock);
    vec_free(&c->calls);
    xfree(c->agent);
    c->magic = 0;
    xfree(c);
}

void http_multi_free(struct http_multi *c)
{
    if (!c)
        return;
    CHECK(c->magic == CLIENT_MAGIC);
    c->dead = true;
    mutex_lock(&c->lock);
    c->stopping = true;
    mutex_unlock(&c->lock);
    (void)curl_multi_wakeup(c->multi);
    thread_join(&c->thread);
    /* The ends run later, when the budgets of the owner may be gone. */
    for (struct http_call *k = c->open; k; k = k->next) {
        if (k->budget && k->reply.charged)
            budget_release(k->budget, k->reply.charged);
        k->budget = NULL;
    }
    (void)curl_multi_cleanup(c->multi);
    loop_post(c->loop, client_gone, c);
}

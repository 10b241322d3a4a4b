/* SPDX-License-Identifier: Apache-2.0
 *
 * object_s3: objects of a bucket, by the S3 API (Amazon S3 API reference: PutObject, GetObject,
 * HeadObject, ListObjectsV2, DeleteObject).
 *
 * Every request is signed with the hash of its body, so a body damaged on the way is refused by the
 * server. A put says `If-None-Match: *`; servers that do not know it (older ones) would overwrite,
 * which is why names of the cold tier hold the hash of what they name: both are the same bytes.
 *
 * What fails for a moment (no connection, 429, 5xx) is tried again after a pause that doubles, or
 * as long as the server says. A request may so be carried out twice, which none here minds.
 *
 * No multipart upload: an object is at most 256 MiB, one request takes 5 GiB, and half-finished
 * uploads that cost money unseen cannot be left behind.
 *
 * Protocol: proto/WIRE.md, "S3".
 */
#include <poll.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/client/http_client.h"
#include "common/object/object_impl.h"
#include "common/object/s3_keys.h"
#include "common/object/s3_xml.h"
#include "common/object/sigv4.h"

#define TIMEOUT_MS     30000
#define TRIES          5
#define PAUSE_MS       100
#define PAUSE_MOST_MS  10000
#define URL_MAX        2048
#define ANSWER_MAX     (4 * MIB) /* of a listing of 1,000 names, or an error */
#define LINE_MAX_BYTES 2048
#define LIST_PAGE      "1000"

struct s3_store {
    struct object_store base;
    struct env *env;
    struct http_client *client;
    char *scheme, *host, *root; /* root: "/bucket" or "" */
    char *prefix, *region, *keys_file, *ca_file;
    struct s3_keys keys;
    uint32_t timeout_ms, tries;
    const atomic_bool *stop;
};

static struct s3_store *s3_of(struct object_store *o)
{
    return container_of(o, struct s3_store, base);
}

/* ---- one request ---------------------------------------------------------------------------- */

struct ask {
    const char *method;
    struct str name;  /* without the prefix; empty: the bucket */
    struct str query; /* canonical */
    struct str body;
    char range[64]; /* "": none */
    bool if_absent;
    size_t want;            /* bytes that shall come */
    struct buf *answer;     /* appended to, on success */
    uint64_t content_bytes; /* HEAD: set */
};

/* Room for the lines of a request; freed with it. */
struct lines {
    char text[SIGV4_HEADERS_MAX + 1][LINE_MAX_BYTES];
    const char *at[SIGV4_HEADERS_MAX + 1];
    size_t len;
};

static bool add_line(struct lines *l, const char *name, struct str value)
{
    int n = snprintf(l->text[l->len], LINE_MAX_BYTES, "%s: %.*s", name, STR_ARG(value));

    l->at[l->len] = l->text[l->len];
    l->len++;
    return n > 0 && n < LINE_MAX_BYTES;
}

/* Signs the request as of now and writes its lines. */
static int sign(struct s3_store *s, const struct ask *a, struct str path, struct lines *ret,
                struct err *e)
{
    const struct sigv4_keys keys = { s->keys.access, s->keys.secret, s->region, "s3" };
    struct sigv4_header h[SIGV4_HEADERS_MAX];
    char date[SIGV4_DATE_LEN + 1], payload[SIGV4_HEX_LEN + 1];
    struct sigv4_request r = { a->method, path, a->query, h, 0, payload };
    struct buf auth;
    bool ok = true;

    sigv4_date(clock_wall_ms(s->env->clock), date);
    sigv4_sha256(a->body, payload);
    h[r.headers_len++] = (struct sigv4_header){ "host", str_c(s->host) };
    h[r.headers_len++] = (struct sigv4_header){ "x-amz-date", str_c(date) };
    h[r.headers_len++] = (struct sigv4_header){ "x-amz-content-sha256", str_c(payload) };
    if (s->keys.token[0])
        h[r.headers_len++] = (struct sigv4_header){ "x-amz-security-token", str_c(s->keys.token) };
    if (a->range[0])
        h[r.headers_len++] = (struct sigv4_header){ "range", str_c(a->range) };
    if (a->if_absent)
        h[r.headers_len++] = (struct sigv4_header){ "if-none-match", STR("*") };
    buf_init(&auth, LINE_MAX_BYTES);
    ok = sigv4_sign(&keys, &r, date, &auth);
    ret->len = 0;
    for (size_t i = 1; i < r.headers_len; i++) /* host is the client's own */
        ok = ok && add_line(ret, h[i].name, h[i].value);
    ok = ok && add_line(ret, "authorization", buf_str(&auth));
    if (strcmp(a->method, "PUT") == 0)
        ok = ok && add_line(ret, "content-type", STR("application/octet-stream"));
    buf_deinit(&auth);
    return ok ? 0 : err_set(e, ERR_CONFIG, "keys, region or token of S3 are too long");
}

/* What to do about it. */
static const char *hint_of(const char *what, int status)
{
    static const struct {
        const char *what, *hint;
    } rows[] = {
        { "NoSuchBucket", "; make the bucket, or name the right one" },
        { "RequestTimeTooSkewed", "; the clock of this machine or of the server is wrong" },
        { "InvalidAccessKeyId", "; put a key that is known there into the file" },
        { "SignatureDoesNotMatch", "; is the secret key the access key's, and nothing between us "
                                   "changes requests?" },
        { "ExpiredToken", "; put new keys into the file of keys, it is read again" },
        { "InvalidToken", "; put new keys into the file of keys, it is read again" },
        { "AccessDenied", "; the key has to be allowed to list the bucket, to get, put and delete "
                          "objects below the prefix" },
        { "AuthorizationHeaderMalformed", "; is the region right?" },
        { "PermanentRedirect", "; region and endpoint have to be the bucket's" },
        { "TemporaryRedirect", "; region and endpoint have to be the bucket's" },
        { "InvalidBucketName", "; does the server want path style?" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(what, rows[i].what) == 0)
            return rows[i].hint;
    if (status == 301 || status == 307)
        return "; region and endpoint have to be the bucket's";
    return status == 401 || status == 403 ? "; are keys, their rights and clocks right?" : "";
}

static int answer_error(const struct s3_store *s, const struct ask *a, int status, struct str body,
                        struct err *e)
{
    int code = ERR_CORRUPT;
    char what[64] = "", text[200] = "";

    s3_xml_error(body, what, sizeof(what), text, sizeof(text));
    switch (status) {
    case 404:
        code = str_eqc(str_c(what), "NoSuchBucket") ? ERR_CONFIG : ERR_NOT_FOUND;
        break;
    case 409:
    case 412:
        code = ERR_CONFLICT;
        break;
    case 301:
    case 307:
    case 400:
    case 401:
    case 403:
        code = ERR_CONFIG;
        break;
    case 408:
    case 429:
        code = ERR_UNAVAILABLE;
        break;
    default:
        if (status >= 500)
            code = ERR_UNAVAILABLE;
    }
    return err_set(e, code, "%s: %s %.*s was answered with %d%s%s%s%s%s", s->base.where, a->method,
                   STR_ARG(str_sub(a->name, 0, 100)), status, what[0] ? " " : "", what,
                   text[0] ? ": " : "", text, hint_of(what, status));
}

/* Of the deadline of the requests at hand. */
static uint32_t left_ms(const struct s3_store *s)
{
    uint64_t now = clock_mono_ms(s->env->clock);

    if (!s->base.deadline_ms)
        return UINT32_MAX;
    return now < s->base.deadline_ms
               ? (uint32_t)MIN(s->base.deadline_ms - now, (uint64_t)UINT32_MAX)
               : 0;
}

static int attempt(struct s3_store *s, struct ask *a, uint64_t *ret_wait_ms, struct err *e)
{
    char path[URL_MAX], url[URL_MAX + 512];
    struct http_client_reply reply = { 0 };
    struct lines *lines = XNEW(struct lines);
    bool reads = strcmp(a->method, "GET") == 0;
    int rc = 0, n;

    n = snprintf(path, sizeof(path), "%s/%s%.*s", s->root, a->name.len ? s->prefix : "",
                 STR_ARG(a->name));
    CHECK(n > 0 && (size_t)n < sizeof(path)); /* names and prefixes are short */
    n = snprintf(url, sizeof(url), "%s://%s%s%s%.*s", s->scheme, s->host, path,
                 a->query.len ? "?" : "", STR_ARG(a->query));
    if (n < 0 || (size_t)n >= sizeof(url))
        rc = err_set(e, ERR_INPUT, "a request to %s would be too long", s->base.where);
    if (!rc)
        rc = sign(s, a, str_c(path), lines, e);
    if (!rc && left_ms(s) == 0)
        rc = err_set(e, ERR_TIMEOUT, "%s: out of time", s->base.where);
    struct http_client_req req = {
        .method = a->method,
        .url = url,
        .headers = lines->at,
        .headers_len = lines->len,
        .tls = { .ca_file = s->ca_file },
        .body = a->body,
        .timeout_ms = s->timeout_ms + (uint32_t)((a->body.len + a->want) / KIB), /* 1 MiB/s */
        .stop = s->stop,
        .keep_header = "Content-Length",
    };
    req.timeout_ms = MIN(req.timeout_ms, left_ms(s));
    buf_init(&reply.body,
             reads && a->answer ? MAX(ANSWER_MAX, a->answer->max - a->answer->len) : ANSWER_MAX);
    if (!rc && http_client_do(s->client, &req, &reply, e))
        rc = err_wrap(e, "%s", s->base.where);
    *ret_wait_ms = reply.retry_after_ms;
    if (!rc && reply.status / 100 != 2)
        rc = answer_error(s, a, reply.status, buf_str(&reply.body), e);
    if (!rc && a->range[0] && reply.status != 206)
        rc = err_set(e, ERR_CORRUPT, "%s ignored the range that was asked for", s->base.where);
    if (!rc && a->answer && !buf_add_str(a->answer, buf_str(&reply.body)))
        rc = err_set(e, ERR_CORRUPT, "%s answered with more than was asked for", s->base.where);
    if (!rc && strcmp(a->method, "HEAD") == 0 && !str_u64(str_c(reply.kept), &a->content_bytes))
        rc = err_set(e, ERR_CORRUPT, "%s did not say how long %.*s is", s->base.where,
                     STR_ARG(a->name));
    buf_deinit(&reply.body);
    xfree(lines);
    return rc;
}

/* False if *stop became true meanwhile. */
static bool pause_ms(const struct s3_store *s, uint64_t ms)
{
    for (; ms && !(s->stop && atomic_load(s->stop)); ms -= MIN(ms, 100u))
        (void)poll(NULL, 0, (int)MIN(ms, 100u));
    return !(s->stop && atomic_load(s->stop));
}

/* Keys that are being renewed may for a moment not be there, or only half. */
static void renew_keys(struct s3_store *s)
{
    struct err e;

    if (s->keys_file && s3_keys_read(s->env->fs, s->keys_file, &s->keys, &e))
        return;
}

static int request(struct s3_store *s, struct ask *a, struct err *e)
{
    size_t had = a->answer ? a->answer->len : 0;
    uint64_t wait = PAUSE_MS, asked;

    for (uint32_t i = 1;; i++) {
        struct err why = { 0 };
        uint8_t jitter;
        int rc;

        renew_keys(s);
        rc = attempt(s, a, &asked, &why);

        if (rc == 0)
            return 0;
        if (a->answer)
            a->answer->len = had;
        if ((rc != ERR_UNAVAILABLE && rc != ERR_TIMEOUT) || i >= s->tries || left_ms(s) <= wait) {
            *e = why;
            return i > 1 ? err_wrap(e, "tried %" PRIu32 " times", i) : rc;
        }
        s->env->random(s->env, &jitter, 1);
        if (!pause_ms(s, MIN(MAX(wait, asked), PAUSE_MOST_MS) + jitter))
            return err_set(e, ERR_CANCELED, "%s: canceled", s->base.where);
        wait *= 2;
    }
}

/* ---- the operations ------------------------------------------------------------------------- */

static int s3_put(struct object_store *o, struct str name, struct str data, struct err *e)
{
    struct ask a = { .method = "PUT", .name = name, .body = data, .if_absent = true };

    return request(s3_of(o), &a, e);
}

static int s3_read(struct object_store *o, struct str name, uint64_t from, size_t len,
                   struct buf *out, struct err *e)
{
    struct ask a = { .method = "GET", .name = name, .want = len, .answer = out };

    (void)snprintf(a.range, sizeof(a.range), "bytes=%" PRIu64 "-%" PRIu64, from, from + len - 1);
    return request(s3_of(o), &a, e);
}

static int s3_size(struct object_store *o, struct str name, uint64_t *ret, struct err *e)
{
    struct ask a = { .method = "HEAD", .name = name };
    int rc = request(s3_of(o), &a, e);

    if (!rc)
        *ret = a.content_bytes;
    return rc;
}

static int s3_del(struct object_store *o, struct str name, struct err *e)
{
    struct ask a = { .method = "DELETE", .name = name };
    struct err why = { 0 };
    int rc = request(s3_of(o), &a, &why);

    if (rc && rc != ERR_NOT_FOUND)
        *e = why;
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

struct page {
    struct s3_store *s;
    object_list_fn fn;
    void *cookie;
    char last[OBJECT_NAME_MAX + 256]; /* with the prefix: where the next page begins */
    size_t last_len, seen;
    bool ended;
};

static bool on_object(void *cookie, struct str key, uint64_t size)
{
    struct page *p = cookie;
    struct str name = str_sub(key, strlen(p->s->prefix), key.len);

    if (key.len >= sizeof(p->last))
        return true; /* too long to be ours; the next page starts after the key in front of it */
    p->seen++;
    memcpy(p->last, key.ptr, key.len);
    p->last_len = key.len;
    if (str_starts(key, str_c(p->s->prefix)) && object_name_ok(name))
        p->ended = !p->fn(p->cookie, name, size);
    return !p->ended;
}

static int list_page(struct s3_store *s, struct str prefix, struct page *p, bool *ret_more,
                     struct err *e)
{
    struct buf query, answer;
    struct ask a = { .method = "GET", .answer = &answer };
    int rc;

    buf_init(&query, URL_MAX);
    buf_init(&answer, ANSWER_MAX);
    (void)buf_addf(&query, "list-type=2&max-keys=%s&prefix=", LIST_PAGE);
    (void)sigv4_escape(&query, str_c(s->prefix));
    (void)sigv4_escape(&query, prefix);
    if (p->last_len) {
        (void)buf_add_str(&query, STR("&start-after="));
        (void)sigv4_escape(&query, str_n(p->last, p->last_len));
    }
    CHECK(buf_ok(&query));
    a.query = buf_str(&query);
    p->seen = 0;
    rc = request(s, &a, e);
    if (!rc)
        rc = s3_xml_list(buf_str(&answer), on_object, p, ret_more, e);
    if (!rc && *ret_more && !p->seen)
        rc =
            err_set(e, ERR_CORRUPT, "%s says that there is more, and lists nothing", s->base.where);
    buf_deinit(&answer);
    buf_deinit(&query);
    return rc;
}

static int s3_list(struct object_store *o, struct str prefix, struct str after, object_list_fn fn,
                   void *cookie, struct err *e)
{
    struct s3_store *s = s3_of(o);
    struct page p = { .s = s, .fn = fn, .cookie = cookie };
    bool more = true;
    int rc = 0;

    if (after.len) {
        int n = snprintf(p.last, sizeof(p.last), "%s%.*s", s->prefix, STR_ARG(after));

        CHECK(n > 0 && (size_t)n < sizeof(p.last));
        p.last_len = (size_t)n;
    }
    while (!rc && more && !p.ended)
        rc = list_page(s, prefix, &p, &more, e);
    return rc;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void s3_close(struct object_store *o)
{
    struct s3_store *s = s3_of(o);

    http_client_free(s->client);
    xfree(s->scheme);
    xfree(s->host);
    xfree(s->root);
    xfree(s->prefix);
    xfree(s->region);
    xfree(s->keys_file);
    s3_keys_clear(&s->keys);
    xfree(s->ca_file);
    xfree(s);
}

static int check_opts(const struct object_s3_opts *o, struct err *e)
{
    struct str prefix = str_c(o->prefix);

    if (http_client_url_check(o->endpoint, e))
        return err_wrap(e, "endpoint of S3");
    if (!object_name_ok(str_c(o->bucket)) || str_find(str_c(o->bucket), '/') >= 0 ||
        strlen(o->bucket) > 63)
        return err_set(e, ERR_CONFIG, "\"%.80s\" is no name of a bucket", o->bucket);
    if (prefix.len && (!str_ends(prefix, STR("/")) ||
                       !object_name_ok(str_sub(prefix, 0, prefix.len - 1)) || prefix.len > 200))
        return err_set(e, ERR_CONFIG,
                       "prefix \"%.80s\": want \"name/\" or \"a/b/\" of [A-Za-z0-9._-], at most "
                       "200 bytes, or nothing",
                       o->prefix);
    if (strlen(o->region) > 64)
        return err_set(e, ERR_CONFIG, "the region of S3 is too long");
    return 0;
}

static int first_keys(const struct object_s3_opts *o, struct s3_keys *k, struct err *e)
{
    const char *token = o->session_token ? o->session_token : "";

    if (o->keys_file)
        return s3_keys_read(o->env->fs, o->keys_file, k, e);
    if (!o->access_key[0] || !o->secret_key[0])
        return err_set(e, ERR_CONFIG, "S3 wants an access key and a secret key");
    if (strlen(o->access_key) >= sizeof(k->access) || strlen(o->secret_key) >= sizeof(k->secret) ||
        strlen(token) >= sizeof(k->token))
        return err_set(e, ERR_CONFIG, "a key of S3 is too long");
    (void)snprintf(k->access, sizeof(k->access), "%s", o->access_key);
    (void)snprintf(k->secret, sizeof(k->secret), "%s", o->secret_key);
    (void)snprintf(k->token, sizeof(k->token), "%s", token);
    return 0;
}

static char *host_of(const struct object_s3_opts *o)
{
    struct str rest = str_sub(str_c(o->endpoint), (size_t)str_find(str_c(o->endpoint), ':') + 3,
                              strlen(o->endpoint));
    ptrdiff_t slash = str_find(rest, '/');
    struct buf b;

    if (slash >= 0)
        rest = str_sub(rest, 0, (size_t)slash);
    buf_init(&b, KIB);
    if (!o->path_style)
        (void)buf_addf(&b, "%s.", o->bucket);
    (void)buf_addf(&b, "%.*s", STR_ARG(rest));
    (void)buf_add_c(&b, '\0');
    char *host = buf_ok(&b) ? xstrdup(b.ptr) : NULL;
    buf_deinit(&b);
    return host;
}

int object_s3_open(const struct object_s3_opts *o, struct object_store **ret, struct err *e)
{
    static const struct object_ops ops = { s3_put, s3_read, s3_size, s3_list, s3_del, s3_close };
    struct s3_store *s;
    struct s3_keys keys = { "", "", "" };
    char root[128] = "", *host;

    if (check_opts(o, e) || first_keys(o, &keys, e))
        return e->code;
    host = host_of(o);
    if (!host) {
        s3_keys_clear(&keys);
        return err_set(e, ERR_CONFIG, "the endpoint of S3 is too long");
    }
    if (o->path_style)
        (void)snprintf(root, sizeof(root), "/%s", o->bucket);
    s = XNEW(struct s3_store);
    s->base.ops = &ops;
    s->env = o->env;
    s->client = http_client_new();
    s->scheme = xstrdup(str_starts(str_c(o->endpoint), STR("https")) ? "https" : "http");
    s->host = host;
    s->root = xstrdup(root);
    s->prefix = xstrdup(o->prefix);
    s->region = xstrdup(o->region[0] ? o->region : "us-east-1");
    s->keys_file = o->keys_file ? xstrdup(o->keys_file) : NULL;
    s->keys = keys;
    s3_keys_clear(&keys);
    s->ca_file = xstrdup(o->ca_file ? o->ca_file : "");
    s->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    s->tries = o->tries ? o->tries : TRIES;
    s->stop = o->stop;
    (void)snprintf(s->base.where, sizeof(s->base.where), "bucket %.63s at %.150s", o->bucket,
                   o->endpoint);
    *ret = &s->base;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: blocking requests through common/net/client/http_client.h, which verifies certificates,
 * follows no redirect and takes no proxy. Answers are cut off at a maximum, and then are errors.
 */
#include "deploy/ctl/ask/ask.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/client/http_client.h"
#include "common/sys/fs.h"
#include "deploy/ctl/ask/ask_socket.h"
#include "deploy/ctl/ask/progress.h"

#define TOKEN_MAX    (16 * KIB)
#define MESSAGE      300 /* bytes of what a server says that are shown */
#define HEADERS      4
#define NOTICE_BYTES 900
#define CONNECT_MS   10000
#define TIMEOUT_MS   60000
#define SERVICE      "/querier.v1.QuerierService/"

/* ---- parameters ---- */

void ask_param(struct buf *target, const char *name, struct str value)
{
    bool first = str_find(buf_str(target), '?') < 0;

    (void)buf_addf(target, "%c%s=", first ? '?' : '&', name);
    for (size_t i = 0; i < value.len; i++) {
        const uint8_t c = (uint8_t)value.ptr[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '.' || c == '_' || c == '-' || c == '~')
            (void)buf_add_c(target, (char)c);
        else
            (void)buf_addf(target, "%%%02X", c);
    }
}

void ask_param_u64(struct buf *target, const char *name, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    ask_param(target, name, str_c(text));
}

/* ---- the sender: tenant and token ---- */

static bool is_loopback(struct str url)
{
    static const char *const names[] = { "http://127.", "http://localhost", "http://[::1]" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_starts(url, str_c(names[i])))
            return true;
    return false;
}

/* The first line that is no remark: a server's file of tokens will do (http.admin_token_file). */
static struct str first_token(struct str text)
{
    struct str line;
    bool more = true;

    while (str_next(&text, '\n', &more, &line)) {
        line = str_trim(line);
        if (line.len && line.ptr[0] != '#')
            return line;
    }
    return STR("");
}

/* The token, read once. What was said as an option goes before what the environment says. */
static int read_token(struct cli *c, struct err *e)
{
    const char *file = c->o.token_file;
    struct buf b;
    int rc;

    if (!file && !c->o.token)
        file = getenv("EMBERTREE_TOKEN_FILE");
    if (!file || !file[0] || c->secret)
        return 0;
    buf_init(&b, TOKEN_MAX);
    rc = fs_real()->read_file(fs_real(), file, &b, e);
    struct str s = first_token(buf_str(&b));
    if (rc)
        rc = err_set(e, ERR_CONFIG, "--token-file %.200s cannot be read", file);
    else if (!s.len || memchr(s.ptr, '\0', s.len))
        rc = err_set(e, ERR_CONFIG, "--token-file %.200s: want a line with a token", file);
    else {
        c->secret = xcalloc(1, s.len + 1);
        memcpy(c->secret, s.ptr, s.len);
        c->o.token = c->secret;
    }
    buf_deinit(&b);
    return rc;
}

static void warn_token(const struct cli *c)
{
    if (c->o.token && str_starts(str_c(c->o.server), STR("http://")) &&
        !is_loopback(str_c(c->o.server)))
        cli_note(c, "the token goes to %s without encryption: use https:// if you can",
                 c->o.server);
}

static int get_ready(struct cli *c, struct err *e)
{
    if (c->http)
        return 0;
    if (!ask_socket_named(c) && http_client_url_check(c->o.server, e))
        return err_wrap(e, "--server");
    if (read_token(c, e))
        return e->code;
    if (c->o.token && strpbrk(c->o.token, "\r\n"))
        return err_set(e, ERR_CONFIG, "--token has a line break in it");
    if (c->o.tenant && strpbrk(c->o.tenant, "\r\n"))
        return err_set(e, ERR_CONFIG, "--tenant has a line break in it");
    warn_token(c);
    http_client_global();
    c->http = http_client_new();
    return 0;
}

int ask_server(struct cli *c, const char *url, struct err *e)
{
    bool same = strcmp(c->o.server, url) == 0;

    if (http_client_url_check(url, e))
        return err_wrap(e, "%.200s", url);
    c->o.server = url;
    if (!same)
        ask_socket_drop(c);
    if (c->http && !same)
        warn_token(c);
    return 0;
}

/* ---- what went wrong ---- */

static int cannot_ask(const struct cli *c, struct err *e)
{
    int code = e->code;
    const char *hint = "is the server up? --server or EMBERTREE_URL says where it is";

    if (code == ERR_TIMEOUT)
        hint = "ask for less (--from, --query), or wait longer with --timeout";
    else if (strstr(e->text, "ertificate") || strstr(e->text, "SSL"))
        hint = "--tls-ca FILE names who signed the certificate; --insecure takes any";
    else if (code == ERR_CONFIG)
        hint = "see --server, --tls-ca, --tls-cert, --tls-key";
    char why[200];
    (void)snprintf(why, sizeof(why), "%.190s", e->text);
    return err_set(e, code, "cannot ask %.200s: %s; %s", c->o.server, why, hint);
}

/* What the server says: the message of its JSON, else its text. */
static void message_of(struct str body, struct buf *out)
{
    struct json_doc *doc = NULL;
    struct str text = STR_NULL;
    struct err e;

    if (!json_parse(body, &doc, &e) &&
        (json_take_str(json_get(json_root(doc), "message", NULL), "message", &text, &e) ||
         !text.len))
        text = STR_NULL;
    text = str_trim(text.len ? text : body);
    (void)buf_add_str(out, str_sub(text, 0, MESSAGE));
    json_doc_free(doc);
}

static const char *hint_of(const struct cli *c, int status, struct str target)
{
    switch (status) {
    case 401:
        return c->o.token ? "; is the token right?" : "; --token, --token-file or --tenant";
    case 403:
        return c->o.token || c->o.tenant ? "; this token or tenant may not do that" : "";
    case 404:
        if (str_starts(target, STR("/api/v1/cluster/nodes/")))
            return "; cluster status has the nodes";
        return "; is it an older version, or another program?";
    case 405:
        return "; is it an older version, or another program?";
    case 413:
        return "; send or ask for less";
    case 504:
        return str_starts(target, STR("/api/v1/cluster")) ? "; cluster status says what came of it"
                                                          : "; ask for less (--from, --query)";
    default:
        return "";
    }
}

static int refused(const struct cli *c, struct ask *a, struct str body, uint64_t retry_ms,
                   struct err *e)
{
    static const struct {
        int status, code;
    } codes[] = { { 401, ERR_UNAUTHENTICATED }, { 403, ERR_FORBIDDEN },
                  { 404, ERR_UNIMPLEMENTED },   { 429, ERR_RATE },
                  { 501, ERR_UNIMPLEMENTED },   { 503, ERR_BUSY } };
    char again[48] = "";
    int code = ERR_INPUT;
    struct buf b;

    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].status == a->status)
            code = codes[i].code;
    if (retry_ms)
        (void)snprintf(again, sizeof(again), "; try again in %" PRIu64 " s", retry_ms / 1000);
    buf_init(&b, MIB);
    message_of(body, &b);
    (void)err_set(e, code, "the server says %d: %.*s%s%s", a->status, STR_ARG(buf_str(&b)), again,
                  hint_of(c, a->status, a->target));
    buf_deinit(&b);
    return e->code;
}

int ask_strange(const struct cli *c, const char *what, struct err *e)
{
    return err_set(e, ERR_IO,
                   "%.200s answers with something else: %s; is it another program, or "
                   "another version?",
                   c->o.server, what);
}

/* ---- asking ---- */

static size_t put_headers(const struct cli *c, const struct ask *a, struct buf *lines,
                          const char **ret)
{
    size_t n = 0, at[HEADERS];

    if (a->type) {
        at[n++] = lines->len;
        (void)buf_addf(lines, "Content-Type: %s%c", a->type, '\0');
    }
    if (a->encoding) {
        at[n++] = lines->len;
        (void)buf_addf(lines, "Content-Encoding: %s%c", a->encoding, '\0');
    }
    if (c->o.tenant) {
        at[n++] = lines->len;
        (void)buf_addf(lines, "X-Scope-OrgID: %.200s%c", c->o.tenant, '\0');
    }
    if (c->o.partial) {
        at[n++] = lines->len;
        (void)buf_addf(lines, "X-Embertree-Allow-Partial: 1%c", '\0');
    }
    for (size_t i = 0; i < n; i++)
        ret[i] = lines->ptr + at[i];
    return n;
}

static int request(struct cli *c, struct ask *a, const char *url, struct http_client_reply *reply,
                   struct err *e)
{
    const char *headers[HEADERS];
    uint64_t wait_ms = c->o.timeout_ms ? c->o.timeout_ms : a->wait_ms ? a->wait_ms : TIMEOUT_MS;
    struct buf lines;
    int rc;

    buf_init(&lines, 4 * KIB);
    struct http_client_req r = { .method = a->method ? a->method : "GET",
                                 .url = url,
                                 .headers = headers,
                                 .headers_len = put_headers(c, a, &lines, headers),
                                 .bearer = c->o.token,
                                 .tls = { .ca_file = c->o.tls_ca,
                                          .cert_file = c->o.tls_cert,
                                          .key_file = c->o.tls_key,
                                          .insecure = c->o.insecure },
                                 .body = a->body,
                                 .timeout_ms = (uint32_t)wait_ms,
                                 .connect_ms = (uint32_t)MIN(wait_ms, CONNECT_MS),
                                 .unix_socket = c->socket,
                                 .keep_header = "X-Embertree-Partial" };
    struct progress *p = progress_start(c, c->o.server);
    rc = http_client_do(c->http, &r, reply, e);
    progress_stop(p);
    buf_deinit(&lines);
    a->status = rc ? 0 : reply->status;
    a->is_json = !rc && str_starts(str_c(reply->content_type), STR("application/json"));
    a->retry_after_ms = reply->retry_after_ms;
    c->was_partial |= !rc && reply->kept[0];
    return rc ? cannot_ask(c, e) : 0;
}

int ask_do(struct cli *c, struct ask *a, struct buf *ret, struct err *e)
{
    struct http_client_reply reply = { 0 };
    struct str server;
    struct buf url;
    int rc = get_ready(c, e);

    if (rc)
        return rc;
    server =
        str_starts(str_c(c->o.server), STR("unix:")) ? STR("http://localhost") : str_c(c->o.server);
    while (str_ends(server, STR("/")))
        server.len--;
    buf_init(&url, ASK_TARGET_MAX);
    (void)buf_add_str(&url, server);
    (void)buf_add_str(&url, a->target);
    (void)buf_add_c(&url, '\0');
    buf_init(&reply.body, ret->max - ret->len);
    if (!buf_ok(&url))
        rc = err_set(e, ERR_LIMIT, "the question is over %zu bytes: ask for less", url.max);
    else
        rc = request(c, a, url.ptr, &reply, e);
    if (!rc && (a->status == 401 || a->status == 403) &&
        ask_socket_offered(c, reply.admin_socket)) {
        buf_reset(&reply.body);
        rc = request(c, a, url.ptr, &reply, e);
    }
    if (!rc && !a->any_status && a->status != 200 && a->status != 202)
        rc = refused(c, a, buf_str(&reply.body), reply.retry_after_ms, e);
    if (!rc && reply.body_cut)
        rc = err_set(e, ERR_LIMIT, "the answer is over %zu MiB: ask for less", ret->max / MIB);
    if (!rc)
        (void)buf_add_str(ret, buf_str(&reply.body));
    buf_deinit(&reply.body);
    buf_deinit(&url);
    return rc;
}

static int ask_doc(struct cli *c, struct ask *a, struct json_doc **ret, struct err *e)
{
    struct buf body;
    int rc;

    buf_init(&body, ASK_JSON_MAX);
    rc = ask_do(c, a, &body, e);
    if (!rc && json_parse(buf_str(&body), ret, e))
        rc = ask_strange(c, "no JSON", e);
    buf_deinit(&body);
    return rc;
}

int ask_json(struct cli *c, struct str target, struct json_doc **ret, struct err *e)
{
    struct ask a = { .target = target };

    return ask_doc(c, &a, ret, e);
}

int ask_json_if(struct cli *c, struct str target, struct json_doc **ret, struct err *e)
{
    struct ask a = { .target = target, .any_status = true };
    struct buf body;
    int rc;

    *ret = NULL;
    buf_init(&body, ASK_JSON_MAX);
    rc = ask_do(c, &a, &body, e);
    if (!rc && a.status == 200 && a.is_json)
        rc = json_parse(buf_str(&body), ret, e);
    buf_deinit(&body);
    return rc;
}

int ask_call(struct cli *c, const char *method, struct str message, struct json_doc **ret,
             struct err *e)
{
    char target[128];

    (void)snprintf(target, sizeof(target), "%s%s", SERVICE, method);
    struct ask a = {
        .method = "POST", .target = str_c(target), .type = "application/json", .body = message
    };
    return ask_doc(c, &a, ret, e);
}

struct str ask_text(const struct json_val *v, const char *key)
{
    struct err e;
    struct str s = STR("");

    return json_take_str(json_get(v, key, NULL), key, &s, &e) ? STR("") : s;
}

void ask_notice(struct cli *c, const struct json_val *root)
{
    struct str notice = ask_text(root, "notice");
    struct buf text;

    if (!notice.len || c->noticed)
        return;
    c->noticed = true;
    buf_init(&text, NOTICE_BYTES * 4);
    (void)term_name(&c->term, notice, NOTICE_BYTES, &text);
    cli_note(c, "%.*s", STR_ARG(buf_str(&text)));
    buf_deinit(&text);
}

bool ask_truth(const struct json_val *v, const char *key)
{
    struct err e;
    bool b = false;

    return !json_take_bool(json_get(v, key, NULL), key, &b, &e) && b;
}

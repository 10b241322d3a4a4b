/* SPDX-License-Identifier: Apache-2.0
 *
 * http_client: libcurl behind the few things we need of it.
 *
 * One easy handle per client, reset before each request: that drops options and keeps connections,
 * the DNS cache and TLS sessions. A blocking call per thread is all the parallelism its users want,
 * and needs no second event loop. What a server sends is not believed: the body is bounded, headers
 * are copied into fixed room, and a server that sends nothing for long is left at the deadline.
 */
#include "common/net/client/http_client.h"

#include <curl/curl.h>
#include <openssl/x509_vfy.h>
#include <threads.h>

#include "common/base/mem.h"

#define RETRY_AFTER_MOST_MS (3600 * UINT64_C(1000))
#define HEADERS_MAX         64

struct http_client {
    CURL *curl; /* owned */
    char text[CURL_ERROR_SIZE];
    const struct http_client_req *req; /* of the request that runs */
    struct http_client_reply *reply;
};

static void global_once(void)
{
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

void http_client_global(void)
{
    static once_flag once = ONCE_FLAG_INIT;

    call_once(&once, global_once);
}

struct http_client *http_client_new(void)
{
    struct http_client *c = XNEW(struct http_client);

    http_client_global();
    c->curl = curl_easy_init();
    CHECK(c->curl);
    return c;
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    curl_easy_cleanup(c->curl);
    xfree(c);
}

static bool clean(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 0x7f)
            return false;
    return true;
}

int http_client_url_check(const char *url, struct err *e)
{
    struct str s = str_c(url);
    size_t scheme = str_starts(s, STR("http://")) ? 7 : str_starts(s, STR("https://")) ? 8 : 0;

    if (!scheme)
        return err_set(e, ERR_CONFIG, "\"%s\" is no URL: want http://host:port or https://", url);
    s = str_sub(s, scheme, s.len);
    ptrdiff_t slash = str_find(s, '/');
    struct str host = slash < 0 ? s : str_sub(s, 0, (size_t)slash);
    if (str_find(host, '@') >= 0)
        return err_set(e, ERR_CONFIG, "a name or password belongs in an option, not in the URL");
    if (!host.len || host.ptr[0] == ':')
        return err_set(e, ERR_CONFIG, "\"%s\" has no host", url);
    if (!clean(s) || str_find(s, ' ') >= 0)
        return err_set(e, ERR_CONFIG, "\"%s\" has a blank or control byte in it", url);
    if (str_find(s, '?') >= 0 || str_find(s, '#') >= 0)
        return err_set(e, ERR_CONFIG, "\"%s\": no '?' or '#' belongs here", url);
    return 0;
}

/* ---- the reply ------------------------------------------------------------------------------ */

static size_t on_body(char *bytes, size_t one, size_t n, void *cookie)
{
    struct http_client *c = cookie;
    struct buf *to = &c->reply->body;
    size_t room = to->max - to->len;

    n *= one;
    if (n > room)
        c->reply->body_cut = true;
    if (!buf_add(to, bytes, MIN(n, room)))
        return 0;
    return c->reply->body_cut ? 0 : n; /* fewer than came: the transfer ends */
}

static void keep(char *to, size_t size, struct str s)
{
    size_t n = MIN(s.len, size - 1);

    if (n)
        memcpy(to, s.ptr, n);
    to[n] = '\0';
}

static size_t on_header(char *bytes, size_t one, size_t n, void *cookie)
{
    struct http_client *c = cookie;
    struct http_client_reply *r = c->reply;
    struct str line = str_trim(str_n(bytes, one * n)), value;
    ptrdiff_t colon = str_find(line, ':');
    uint64_t seconds;

    if (colon < 0)
        return one * n;
    value = str_trim(str_sub(line, (size_t)colon + 1, line.len));
    line = str_sub(line, 0, (size_t)colon);
    if (str_eq_nocase(line, STR("Retry-After")) && str_u64(value, &seconds))
        r->retry_after_ms = MIN(seconds, RETRY_AFTER_MOST_MS / 1000) * 1000;
    else if (str_eq_nocase(line, STR("Content-Type")))
        keep(r->content_type, sizeof(r->content_type), value);
    else if (str_eq_nocase(line, STR("ETag")))
        keep(r->etag, sizeof(r->etag), value);
    else if (str_eq_nocase(line, STR("Content-Encoding")))
        keep(r->encoding, sizeof(r->encoding), value);
    else if (str_eq_nocase(line, STR("X-Embertree-Admin-Socket")))
        keep(r->admin_socket, sizeof(r->admin_socket), value);
    else if (c->req->keep_header && str_eq_nocase(line, str_c(c->req->keep_header)))
        keep(r->kept, sizeof(r->kept), value);
    return one * n;
}

static int on_progress(void *cookie, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    const struct http_client *c = cookie;

    (void)down_all;
    (void)down;
    (void)up_all;
    (void)up;
    return c->req->stop && atomic_load(c->req->stop);
}

/* ---- the request ---------------------------------------------------------------------------- */

static bool given(const char *s)
{
    return s && s[0];
}

/* An option that curl does not take leaves the request unsafe or wrong: it is not made then. */
#define SET(option, value) ok = ok && curl_easy_setopt(c->curl, option, value) == CURLE_OK

static bool set_tls(struct http_client *c, const struct http_client_tls *t)
{
    bool ok = true;

    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (t->insecure) {
        SET(CURLOPT_SSL_VERIFYPEER, 0L);
        SET(CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (given(t->ca_file))
        SET(CURLOPT_CAINFO, t->ca_file);
    if (given(t->cert_file))
        SET(CURLOPT_SSLCERT, t->cert_file);
    if (given(t->key_file))
        SET(CURLOPT_SSLKEY, t->key_file);
    return ok;
}

static bool set_all(struct http_client *c, const struct http_client_req *r,
                    const struct curl_slist *headers)
{
    bool ok = true;

    SET(CURLOPT_ERRORBUFFER, c->text);
    SET(CURLOPT_URL, r->url);
    if (r->unix_socket)
        SET(CURLOPT_UNIX_SOCKET_PATH, r->unix_socket);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (strcmp(r->method, "HEAD") == 0) /* no body comes, whatever the length says */
        SET(CURLOPT_NOBODY, 1L);
    else
        SET(CURLOPT_CUSTOMREQUEST, r->method);
    if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.len);
        SET(CURLOPT_POSTFIELDS, r->body.len ? r->body.ptr : "");
    }
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_TIMEOUT_MS, (long)r->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(r->connect_ms ? r->connect_ms : r->timeout_ms));
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, c);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, c);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, c);
    if (given(r->bearer)) {
        SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        SET(CURLOPT_XOAUTH2_BEARER, r->bearer);
    } else if (given(r->user)) {
        SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        SET(CURLOPT_USERNAME, r->user);
        SET(CURLOPT_PASSWORD, r->password ? r->password : "");
    }
    return ok && set_tls(c, &r->tls);
}

static int make_headers(const struct http_client_req *r, struct curl_slist **ret, struct err *e)
{
    struct curl_slist *all = NULL;

    if (r->headers_len > HEADERS_MAX)
        return err_set(e, ERR_CONFIG, "%zu headers, at most %d", r->headers_len, HEADERS_MAX);
    for (size_t i = 0; i <= r->headers_len; i++) {
        /* Without it curl waits a second for a "100 Continue" before each larger body. */
        const char *line = i ? r->headers[i - 1] : "Expect:";
        struct curl_slist *more = clean(str_c(line)) ? curl_slist_append(all, line) : NULL;
        if (!more) {
            curl_slist_free_all(all);
            return err_set(e, ERR_CONFIG, "header %zu has a control byte in it", i);
        }
        all = more;
    }
    *ret = all;
    return 0;
}

/* What to do where we do not believe the server. */
static const char *hint_of(const struct http_client *c, const struct http_client_tls *t,
                           CURLcode code)
{
    long verify = X509_V_OK;

    if (code != CURLE_PEER_FAILED_VERIFICATION)
        return "";
    (void)curl_easy_getinfo(c->curl, CURLINFO_SSL_VERIFYRESULT, &verify);
    switch (verify) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "; the server needs a new certificate, or this machine the right clock";
    case X509_V_OK:
    case X509_V_ERR_UNSPECIFIED: /* the name is compared by curl, before it says how the rest was */
        return "; the address has to name the server as its certificate does";
    default:
        return given(t->ca_file) ? "; the file of CAs must contain the CA that signed it"
                                 : "; a private CA must be named in a file of CAs";
    }
}

static int fail(const struct http_client *c, const struct http_client_tls *t, CURLcode code,
                struct err *e)
{
    const char *why = c->text[0] ? c->text : curl_easy_strerror(code);

    if (code == CURLE_ABORTED_BY_CALLBACK)
        return err_set(e, ERR_CANCELED, "canceled");
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ERR_TIMEOUT, "%s", why);
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
        code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE)
        return err_set(e, ERR_CONFIG, "%s", why);
    return err_set(e, ERR_UNAVAILABLE, "%s%s", why, hint_of(c, t, code));
}

int http_client_do(struct http_client *c, const struct http_client_req *r,
                   struct http_client_reply *ret, struct err *e)
{
    struct curl_slist *headers = NULL;
    long status = 0;

    if (make_headers(r, &headers, e))
        return e->code;
    c->req = r;
    c->reply = ret;
    c->text[0] = '\0';
    ret->status = 0;
    ret->retry_after_ms = 0;
    ret->content_type[0] = ret->etag[0] = ret->encoding[0] = ret->kept[0] = '\0';
    ret->admin_socket[0] = '\0';
    ret->body_cut = false;
    curl_easy_reset(c->curl);
    if (!set_all(c, r, headers)) {
        curl_slist_free_all(headers);
        return err_set(e, ERR_CONFIG, "the request to %s cannot be made: %s", r->url, c->text);
    }
    CURLcode code = curl_easy_perform(c->curl);
    (void)curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    c->req = NULL;
    c->reply = NULL;
    if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && ret->body_cut))
        return fail(c, &r->tls, code, e);
    ret->status = (int)status;
    return 0;
}

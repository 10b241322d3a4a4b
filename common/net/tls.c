/* SPDX-License-Identifier: Apache-2.0
 *
 * tls: between a protocol and its socket.
 *
 *   down ──on_bytes──> in (BIO) ──SSL_read──> up->on_bytes
 *   down <──write── cipher (at most CIPHER_ENOUGH) <── out (BIO) <──SSL_write── up's slices
 *
 * Bounds: of a write, one portion at a time is encrypted and handed down, so a reply of any size
 * costs one portion more; the slices stay borrowed until the last portion left (STREAM_LATER). Of
 * input, at most what one read of `down` brought waits in `in`: with reading off nothing more
 * comes, except during the handshake, which reads whatever the protocol says and has its deadline
 * from whoever wrapped the stream. Renegotiation, compression, early data and the session cache
 * are off. Answers to KeyUpdate that a client lets pile up beyond OUT_MAX break the connection.
 *
 * The files are looked at every TLS_CHECK_EVERY, not watched: a certificate and its key are two
 * files, and a moment between the two writes must do no harm. A pair that does not load leaves the
 * old pair in use, and is tried again.
 */
#include "common/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/sys/secret_file.h"

#define TLS_MAGIC     MAGIC('T', 'L', 'S', '3')
#define PIECE         (16 * KIB) /* one record */
#define CIPHER_ENOUGH (64 * KIB)
#define OUT_MAX       (256 * KIB)

/* ---- certificates */

struct stamp {
    int64_t mtime_s, mtime_ns, size;
    uint64_t inode;
};
struct tls_ctx {
    struct tls_opts o;
    char *paths[3]; /* owned: cert, key, client_ca */
    struct stamp stamps[3];
    SSL_CTX *ssl; /* owned */
    uint64_t checked_ms;
};

/* The first error of the queue is the cause; later ones name the callers it passed. */
static const char *ssl_reason(void)
{
    static const struct {
        int lib, reason;
        const char *text;
    } rows[] = {
        { ERR_LIB_PEM, PEM_R_NO_START_LINE, "there is no such block in PEM in it" },
        { ERR_LIB_X509, X509_R_KEY_VALUES_MISMATCH, "it is not the key of http.tls_cert" },
    };
    unsigned long code = ERR_peek_error();
    const char *reason = NULL;

    if (ERR_SYSTEM_ERROR(code))
        return strerror(ERR_GET_REASON(code));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (ERR_GET_LIB(code) == rows[i].lib && ERR_GET_REASON(code) == rows[i].reason)
            return rows[i].text;
    reason = ERR_reason_error_string(code);
    return reason ? reason : "unknown reason";
}

static int set_ssl_err(struct err *e, const char *what, const char *path)
{
    (void)err_set(e, ERR_CONFIG, "%s %s: %s", what, path, ssl_reason());
    ERR_clear_error();
    return ERR_CONFIG;
}

static int select_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                       const unsigned char *in, unsigned len, void *cookie)
{
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *found = NULL;

    (void)ssl, (void)cookie;
    if (SSL_select_next_proto(&found, ret_len, ours, sizeof(ours) - 1, in, len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = found;
    return SSL_TLSEXT_ERR_OK;
}

/* OpenSSL would ask on the terminal. */
static int no_password(char *to, int size, int writing, void *cookie)
{
    bool *asked = cookie;

    (void)to, (void)size, (void)writing;
    if (asked)
        *asked = true;
    return -1;
}

static int load_client_ca(SSL_CTX *ssl, const char *path, struct err *e)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);

    if (!names || !SSL_CTX_load_verify_locations(ssl, path, NULL)) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return set_ssl_err(e, "http.tls_client_ca", path);
    }
    SSL_CTX_set_client_CA_list(ssl, names);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return 0;
}

static int load_key(const struct tls_ctx *c, SSL_CTX *ssl, struct err *e)
{
    bool asked = false;

    if (secret_file_check(c->paths[1], e))
        return err_wrap(e, "http.tls_key");
    SSL_CTX_set_default_passwd_cb_userdata(ssl, &asked);
    bool ok = SSL_CTX_use_PrivateKey_file(ssl, c->paths[1], SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_check_private_key(ssl) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    if (ok)
        return 0;
    (void)set_ssl_err(e, "http.tls_key", c->paths[1]);
    return asked ? err_set(e, ERR_CONFIG,
                           "http.tls_key %s: it is encrypted with a password; give a key "
                           "without one",
                           c->paths[1])
                 : e->code;
}

static int load_files(const struct tls_ctx *c, SSL_CTX *ssl, struct err *e)
{
    if (SSL_CTX_use_certificate_chain_file(ssl, c->paths[0]) != 1)
        return set_ssl_err(e, "http.tls_cert", c->paths[0]);
    if (load_key(c, ssl, e))
        return e->code;
    return c->paths[2] ? load_client_ca(ssl, c->paths[2], e) : 0;
}

static int make_ssl_ctx(const struct tls_ctx *c, SSL_CTX **ret, struct err *e)
{
    static const unsigned char session_context[] = "embertree";
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    int code;

    CHECK(ssl);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(ssl, no_password);
    SSL_CTX_set_alpn_select_cb(ssl, select_alpn, NULL);
    CHECK(SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) == 1);
    CHECK(SSL_CTX_set_session_id_context(ssl, session_context, sizeof(session_context) - 1) == 1);
    code = load_files(c, ssl, e);
    if (code) {
        SSL_CTX_free(ssl);
        return code;
    }
    *ret = ssl;
    return 0;
}

static void take_stamps(const struct tls_ctx *c, struct stamp ret[3])
{
    for (size_t i = 0; i < 3; i++) {
        struct stat st;
        ret[i] = (struct stamp){ 0 };
        if (c->paths[i] && stat(c->paths[i], &st) == 0)
            ret[i] = (struct stamp){ (int64_t)st.st_mtim.tv_sec, (int64_t)st.st_mtim.tv_nsec,
                                     (int64_t)st.st_size, (uint64_t)st.st_ino };
    }
}

int tls_ctx_new(const struct tls_opts *o, struct tls_ctx **ret, struct err *e)
{
    struct tls_ctx *c = XNEW(struct tls_ctx);
    int code;

    c->paths[0] = xstrdup(o->cert);
    c->paths[1] = xstrdup(o->key);
    c->paths[2] = o->client_ca && o->client_ca[0] ? xstrdup(o->client_ca) : NULL;
    take_stamps(c, c->stamps);
    code = make_ssl_ctx(c, &c->ssl, e);
    if (code)
        tls_ctx_free(c);
    else
        *ret = c;
    return code;
}

void tls_ctx_free(struct tls_ctx *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->ssl);
    for (size_t i = 0; i < 3; i++)
        xfree(c->paths[i]);
    xfree(c);
}

int tls_ctx_check(struct tls_ctx *c, uint64_t now_ms, bool *ret_changed, struct err *e)
{
    struct stamp now[3];
    SSL_CTX *ssl;
    int code;

    *ret_changed = false;
    if (now_ms < c->checked_ms + TLS_CHECK_EVERY)
        return 0;
    c->checked_ms = now_ms;
    take_stamps(c, now);
    if (memcmp(now, c->stamps, sizeof(now)) == 0)
        return 0;
    code = make_ssl_ctx(c, &ssl, e);
    if (code)
        return code;
    SSL_CTX_free(c->ssl);
    c->ssl = ssl;
    memcpy(c->stamps, now, sizeof(now));
    *ret_changed = true;
    return 0;
}

int64_t tls_ctx_not_after(const struct tls_ctx *c)
{
    X509 *x = SSL_CTX_get0_certificate(c->ssl);
    struct tm tm = { 0 };

    if (!x || ASN1_TIME_to_tm(X509_get0_notAfter(x), &tm) != 1)
        return 0;
    return (int64_t)timegm(&tm);
}

/* ---- a connection */

struct tls {
    struct stream stream; /* first: what the protocol sees */
    uint32_t magic;
    struct stream *down; /* owned until its on_closed */
    struct loop *loop;
    void (*done)(void *cookie);
    void *done_cookie;
    SSL *ssl; /* owned, and through it both BIOs */
    BIO *in, *out;
    bool shaken;  /* the handshake is over */
    bool reading; /* what the protocol asked for */
    bool ended;   /* it heard on_end */
    bool closing, broken, kicked;
    bool shut;    /* wanted, once everything is written */
    bool writing; /* its write is under way */
    struct str left[STREAM_SLICES_MAX];
    size_t left_at, left_len, left_bytes;
    struct buf cipher; /* handed down */
    bool busy;         /* down has it still */
};

static struct tls *tls_of(const struct stream *s)
{
    struct tls *t = container_of((uintptr_t)s, struct tls, stream);

    CHECK(t->magic == TLS_MAGIC);
    return t;
}

/* Hands down what OpenSSL has to say. */
static void flush(struct tls *t)
{
    while (!t->busy && !t->broken) {
        size_t n = BIO_ctrl_pending(t->out);
        char *to;
        int got;

        if (n == 0) {
            buf_deinit(&t->cipher);
            return;
        }
        buf_reset(&t->cipher);
        to = buf_room(&t->cipher, n);
        got = BIO_read(t->out, to, (int)n);
        CHECK(got > 0 && (size_t)got == n);
        t->cipher.len = n;
        struct str v = buf_str(&t->cipher);
        switch (t->down->ops->write(t->down, &v, 1)) {
        case STREAM_ALL:
            break;
        case STREAM_LATER:
            t->busy = true;
            break;
        case STREAM_BROKEN:
            t->broken = true;
            break;
        }
    }
}

/* Encrypts the slices, a portion at a time, until down is stuck or nothing is left. */
static void pump_write(struct tls *t)
{
    flush(t);
    while (t->left_at < t->left_len && !t->busy && !t->broken) {
        while (t->left_at < t->left_len && BIO_ctrl_pending(t->out) < CIPHER_ENOUGH) {
            struct str *s = &t->left[t->left_at];
            size_t n = 0;
            if (s->len && SSL_write_ex(t->ssl, s->ptr, MIN(s->len, (size_t)PIECE), &n) != 1) {
                ERR_clear_error();
                t->broken = true;
                return;
            }
            *s = str_sub(*s, n, s->len);
            t->left_bytes -= n;
            t->left_at += s->len == 0;
        }
        flush(t);
    }
    if (t->shut && !t->busy && !t->broken && t->left_at == t->left_len) {
        t->shut = false;
        t->down->ops->shut(t->down);
    }
}

static void end(struct tls *t, bool broken)
{
    if (t->ended || t->closing)
        return;
    t->ended = true;
    t->stream.up->on_end(t->stream.cookie, broken);
}

static void name_protocol(struct tls *t)
{
    const unsigned char *p = NULL;
    unsigned n = 0;

    t->shaken = true;
    SSL_get0_alpn_selected(t->ssl, &p, &n);
    if (n == 2 && memcmp(p, "h2", 2) == 0)
        t->stream.h2 = true;
}

/* False: more bytes are needed, or it failed. */
static bool shake(struct tls *t)
{
    int r, why;

    if (t->shaken)
        return true;
    r = SSL_do_handshake(t->ssl);
    why = SSL_get_error(t->ssl, r);
    flush(t); /* an alert, too */
    ERR_clear_error();
    if (r == 1) {
        name_protocol(t);
        if (!t->reading)
            t->down->ops->read(t->down, false);
        return true;
    }
    if (why != SSL_ERROR_WANT_READ)
        end(t, true);
    return false;
}

static void pump_read(struct tls *t)
{
    char plain[PIECE];

    if (t->closing || t->ended || !shake(t))
        return;
    while (t->reading && !t->closing && !t->ended) {
        size_t n = 0;
        if (SSL_read_ex(t->ssl, plain, sizeof(plain), &n) == 1) {
            t->stream.up->on_bytes(t->stream.cookie, (struct str){ plain, n });
            continue;
        }
        int why = SSL_get_error(t->ssl, 0);
        ERR_clear_error();
        if (why == SSL_ERROR_WANT_READ)
            break;
        end(t, why != SSL_ERROR_ZERO_RETURN);
    }
    if (t->closing)
        return;
    flush(t);
    if (t->broken || BIO_ctrl_pending(t->out) > OUT_MAX)
        end(t, true);
}

/* ---- what the socket says */

static void on_bytes(void *cookie, struct str bytes)
{
    struct tls *t = cookie;

    CHECK(t->magic == TLS_MAGIC);
    if (t->closing || t->ended)
        return;
    CHECK(bytes.len <= INT32_MAX && BIO_write(t->in, bytes.ptr, (int)bytes.len) == (int)bytes.len);
    pump_read(t);
}

static void on_end(void *cookie, bool broken)
{
    struct tls *t = cookie;

    CHECK(t->magic == TLS_MAGIC);
    end(t, broken || !t->shaken);
}

static void on_written(void *cookie, bool ok)
{
    struct tls *t = cookie;

    CHECK(t->magic == TLS_MAGIC);
    t->busy = false;
    if (!ok)
        t->broken = true;
    if (t->closing)
        return;
    pump_write(t);
    if (t->writing && (t->broken || (t->left_at == t->left_len && !t->busy))) {
        t->writing = false;
        t->stream.up->on_written(t->stream.cookie, !t->broken);
    } else if (t->broken) {
        end(t, true);
    }
}

static void free_tls(struct tls *t)
{
    t->magic = 0;
    xfree(t);
}

static void on_closed(void *cookie)
{
    struct tls *t = cookie;

    CHECK(t->magic == TLS_MAGIC && t->closing);
    t->stream.up->on_closed(t->stream.cookie);
    SSL_free(t->ssl);
    t->ssl = NULL;
    buf_deinit(&t->cipher);
    t->done(t->done_cookie);
    if (!t->kicked)
        free_tls(t);
}

/* ---- what the protocol asks for */

static enum stream_wrote tls_write(struct stream *s, const struct str *v, size_t n)
{
    struct tls *t = tls_of(s);

    CHECK(t->shaken && !t->writing && !t->closing && n <= STREAM_SLICES_MAX);
    memcpy(t->left, v, n * sizeof(v[0]));
    t->left_at = t->left_bytes = 0;
    t->left_len = n;
    for (size_t i = 0; i < n; i++)
        t->left_bytes += v[i].len;
    pump_write(t);
    if (t->broken)
        return STREAM_BROKEN;
    t->writing = t->busy || t->left_at < t->left_len;
    return t->writing ? STREAM_LATER : STREAM_ALL;
}

static size_t tls_unsent(const struct stream *s)
{
    const struct tls *t = tls_of(s);

    return t->left_bytes + (t->busy ? t->down->ops->unsent(t->down) : 0);
}

static void on_kick(void *cookie)
{
    struct tls *t = cookie;

    t->kicked = false;
    if (!t->ssl)
        free_tls(t);
    else
        pump_read(t);
}

static void tls_read(struct stream *s, bool on)
{
    struct tls *t = tls_of(s);

    t->reading = on;
    if (t->shaken || on)
        t->down->ops->read(t->down, on);
    if (on && !t->kicked && (BIO_ctrl_pending(t->in) || SSL_pending(t->ssl))) {
        t->kicked = true;
        loop_post(t->loop, on_kick, t);
    }
}

static void say_goodbye(struct tls *t)
{
    if (!t->shaken || t->broken || SSL_in_init(t->ssl))
        return;
    (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
    flush(t);
}

static void tls_shut(struct stream *s)
{
    struct tls *t = tls_of(s);

    say_goodbye(t);
    t->shut = true;
    pump_write(t);
}

static void tls_close(struct stream *s)
{
    struct tls *t = tls_of(s);

    if (!t->writing && !(SSL_get_shutdown(t->ssl) & SSL_SENT_SHUTDOWN))
        say_goodbye(t);
    t->closing = true;
    t->down->ops->close(t->down);
}

static const struct stream_ops tls_ops = {
    .write = tls_write,
    .unsent = tls_unsent,
    .read = tls_read,
    .shut = tls_shut,
    .close = tls_close,
};

struct stream *tls_server_stream(struct tls_ctx *c, struct stream *down, struct loop *loop,
                                 void (*done)(void *cookie), void *done_cookie)
{
    static const struct stream_events events = {
        .on_bytes = on_bytes,
        .on_end = on_end,
        .on_written = on_written,
        .on_closed = on_closed,
    };
    struct tls *t = XNEW(struct tls);

    t->magic = TLS_MAGIC;
    t->stream.ops = &tls_ops;
    t->stream.tls = true;
    memcpy(t->stream.peer, down->peer, sizeof(down->peer));
    t->stream.own = down->own;
    t->down = down;
    t->loop = loop;
    t->done = done;
    t->done_cookie = done_cookie;
    buf_init(&t->cipher, SIZE_MAX);
    t->ssl = SSL_new(c->ssl);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    CHECK(t->ssl && t->in && t->out);
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_accept_state(t->ssl);
    down->up = &events;
    down->cookie = t;
    return &t->stream;
}

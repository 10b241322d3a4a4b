/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/net_h2.h"

#include "common/base/mem.h"

static struct net_h2_stream *find(struct net_h2 *c, int32_t id)
{
    for (size_t i = 0; i < c->len; i++) {
        if (c->streams[i].id == id)
            return &c->streams[i];
    }
    return NULL;
}

static void append(char **to, size_t *len, const void *p, size_t n)
{
    *to = xreallocarray(*to, *len + n + 1, 1);
    memcpy(*to + *len, p, n);
    *len += n;
    (*to)[*len] = '\0';
}

/* ---- what comes */

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct net_h2_stream *s = find(user, f->hd.stream_id);
    bool trailers = f->headers.cat == NGHTTP2_HCAT_HEADERS && s && s->status >= 200;
    struct str n = { (const char *)(const void *)name, name_len };
    uint64_t status;

    (void)session, (void)flags;
    if (!s)
        return 0;
    if (str_eqc(n, ":status") &&
        str_u64((struct str){ (const char *)(const void *)value, value_len }, &status))
        s->status = (int)status;
    char **to = trailers ? &s->trailers : &s->headers;
    size_t *len = trailers ? &s->trailers_len : &s->headers_len;
    append(to, len, name, name_len);
    append(to, len, ": ", 2);
    append(to, len, value, value_len);
    append(to, len, "\n", 1);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *user)
{
    struct net_h2_stream *s = find(user, id);

    (void)session, (void)flags;
    if (s)
        append(&s->body, &s->body_len, data, len);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *user)
{
    struct net_h2 *c = user;
    struct net_h2_stream *s = find(c, f->hd.stream_id);

    (void)session;
    if (f->hd.type == NGHTTP2_GOAWAY) {
        c->goaway = true;
        c->goaway_error = f->goaway.error_code;
        c->goaway_last = f->goaway.last_stream_id;
    } else if ((f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) && s &&
               (f->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        s->ended = true;
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *user)
{
    struct net_h2_stream *s = find(user, id);

    (void)session;
    if (s) {
        s->closed = true;
        s->error = error_code;
    }
    return 0;
}

/* ---- what goes */

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *to, size_t most,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct net_h2_stream *s = source->ptr;
    size_t n = MIN(most, s->send.len - s->sent);

    (void)session, (void)id, (void)user;
    if (n == 0 && s->hold)
        return NGHTTP2_ERR_DEFERRED;
    if (n)
        memcpy(to, s->send.ptr + s->sent, n);
    s->sent += n;
    if (s->sent == s->send.len && !s->hold)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

void net_h2_talk(struct net_h2 *c)
{
    for (;;) {
        const uint8_t *p;
        bool moved = false;
        ssize_t n;

        while (!c->m->closed && !c->m->ended &&
               (n = nghttp2_session_mem_send(c->session, &p)) > 0) {
            net_send(c->m, (struct str){ (const char *)(const void *)p, (size_t)n });
            moved = true;
        }
        net_settle(c->m->world);
        if (c->m->out.len) {
            n = nghttp2_session_mem_recv(c->session, (const uint8_t *)(void *)c->m->out.ptr,
                                         c->m->out.len);
            CHECK(n < 0 || (size_t)n == c->m->out.len);
            buf_reset(&c->m->out);
            moved = n >= 0;
        }
        if (!moved)
            return;
    }
}

struct net_h2 *net_h2_on(struct net_mem *m, bool manual, uint32_t window)
{
    struct net_h2 *c = XNEW(struct net_h2);
    nghttp2_settings_entry settings[] = { { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
                                          { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window } };
    nghttp2_session_callbacks *cb;
    nghttp2_option *o;

    c->m = m;
    c->manual = manual;
    CHECK(nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&o) == 0);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_option_set_no_auto_window_update(o, manual);
    CHECK(nghttp2_session_client_new2(&c->session, cb, c, o) == 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(o);
    CHECK(nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, window ? 2 : 1) == 0);
    return c;
}

struct net_h2 *net_h2_connect(struct net_world *w, bool manual, uint32_t window)
{
    struct net_h2 *c = net_h2_on(net_connect(w), manual, window);

    net_h2_talk(c);
    return c;
}

void net_h2_free(struct net_h2 *c)
{
    for (size_t i = 0; i < c->len; i++) {
        xfree(c->streams[i].headers);
        xfree(c->streams[i].trailers);
        xfree(c->streams[i].body);
    }
    nghttp2_session_del(c->session);
    xfree(c);
}

void net_h2_finish(struct net_h2 *c)
{
    struct net_mem *m = c->m;

    net_h2_talk(c);
    net_h2_free(c);
    if (!m->ended)
        net_end(m, false);
    net_pass(m->world, 200);
    CHECK(m->closed);
    net_mem_free(m);
}

static struct net_h2_stream *submit(struct net_h2 *c, const char *method, const char *path,
                                    const char *const *extra, struct str body, bool hold)
{
    struct net_h2_stream *s = &c->streams[c->len];
    nghttp2_data_provider data = { .source.ptr = s, .read_callback = read_body };
    const char *pairs[64] = {
        ":method", method, ":scheme", "http", ":path", path, ":authority", "h"
    };
    nghttp2_nv nv[32];
    size_t n = 4;

    CHECK(c->len < NET_H2_STREAMS);
    for (size_t i = 0; extra && extra[i]; i += 2, n++) {
        CHECK(n < ARRAY_LEN(nv));
        pairs[2 * n] = extra[i];
        pairs[2 * n + 1] = extra[i + 1];
    }
    for (size_t i = 0; i < n; i++)
        nv[i] = (nghttp2_nv){ (uint8_t *)(uintptr_t)pairs[2 * i],
                              (uint8_t *)(uintptr_t)pairs[2 * i + 1], strlen(pairs[2 * i]),
                              strlen(pairs[2 * i + 1]), NGHTTP2_NV_FLAG_NONE };
    *s = (struct net_h2_stream){ .send = body, .hold = hold };
    s->id = nghttp2_submit_request(c->session, NULL, nv, n, body.len || hold ? &data : NULL, NULL);
    CHECK(s->id > 0);
    c->len++;
    net_h2_talk(c);
    return s;
}

struct net_h2_stream *net_h2_request(struct net_h2 *c, const char *method, const char *path,
                                     const char *const *extra, struct str body)
{
    return submit(c, method, path, extra, body, false);
}

struct net_h2_stream *net_h2_begin(struct net_h2 *c, const char *method, const char *path,
                                   struct str body)
{
    return submit(c, method, path, NULL, body, true);
}

struct net_h2_stream *net_h2_begin_with(struct net_h2 *c, const char *method, const char *path,
                                        const char *const *extra, struct str body)
{
    return submit(c, method, path, extra, body, true);
}

void net_h2_more(struct net_h2 *c, struct net_h2_stream *s, struct str body, bool last)
{
    CHECK(s->sent == s->send.len);
    s->send = body;
    s->sent = 0;
    s->hold = !last;
    (void)nghttp2_session_resume_data(c->session, s->id);
    net_h2_talk(c);
}

void net_h2_reset(struct net_h2 *c, struct net_h2_stream *s)
{
    CHECK(nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL) == 0);
    net_h2_talk(c);
}

void net_h2_open(struct net_h2 *c, struct net_h2_stream *s, size_t bytes)
{
    CHECK(nghttp2_session_consume(c->session, s->id, bytes) == 0);
    net_h2_talk(c);
}

/* ---- by hand */

void net_h2_frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, struct str payload)
{
    buf_add_c(b, (char)(payload.len >> 16));
    buf_add_c(b, (char)(payload.len >> 8));
    buf_add_c(b, (char)payload.len);
    buf_add_c(b, (char)type);
    buf_add_c(b, (char)flags);
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_add_c(b, (char)(stream >> shift));
    buf_add_str(b, payload);
}

void net_h2_field(struct buf *b, const char *name, const char *value)
{
    const char *both[] = { name, value };

    buf_add_c(b, 0);
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(both[i]);
        CHECK(n < 127);
        buf_add_c(b, (char)n);
        buf_add(b, both[i], n);
    }
}

void net_h2_fields(struct buf *b, const char *method, const char *path)
{
    net_h2_field(b, ":method", method);
    net_h2_field(b, ":scheme", "http");
    net_h2_field(b, ":path", path);
    net_h2_field(b, ":authority", "h");
}

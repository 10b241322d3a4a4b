/* SPDX-License-Identifier: Apache-2.0
 *
 * debug: profiles on demand.
 *
 *   GET profile?seconds=30 ─> selfprof_capture ──profiler's thread: pprof──> loop: reply
 *   GET heap               ─> pool: jemalloc dumps to a file, which becomes pprof ──> reply
 *
 * The sampler is that of the process's own profiling; where this is off, another one runs as long
 * as a caller takes a profile. At most SELFPROF_CAPTURES_MAX profiles and one heap at once: more is
 * 503. A caller's address has a share of them, else 429, and the last place is for the server's
 * Unix socket: with no admin token these routes are for all callers, and none may keep the others
 * or the operator from a profile. A caller that disconnects leaves its place. Replies are gzip'd
 * pprof files, as Go's are.
 */
#include "common/role/admin/debug.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/role/core/options.h"
#include "common/role/core/readiness.h"

#define SECONDS_DEFAULT 30
#define PEER_PLACES     2                           /* of one address */
#define TCP_PLACES      (SELFPROF_CAPTURES_MAX - 1) /* of all addresses */
#define PPROF_BYTES     (64 * MIB)
#define DUMP_BYTES      (256 * MIB)
#define POLICY          "default-src 'none'; frame-ancestors 'none'"
#define CALL_MAGIC      MAGIC('d', 'b', 'g', 'p')

extern int mallctl(const char *name, void *old, size_t *old_len, void *new_value,
                   size_t new_len) WEAK;

struct call {
    uint32_t magic;
    struct debug *d; /* of the process */
    struct http_req *r;
    char *place; /* in d->peers; CPU only */
    uint64_t hz;
    struct buf body;
    struct err err; /* code 0: fine */
};

static struct call *call_new(struct debug *d, struct http_req *r)
{
    struct call *c = XNEW(struct call);

    c->magic = CALL_MAGIC;
    c->d = d;
    c->r = r;
    buf_init(&c->body, PPROF_BYTES);
    return c;
}

static void call_end(struct call *c, const char *file)
{
    char text[64];

    if (c->err.code) {
        http_reply_err(c->r, &c->err);
    } else {
        (void)snprintf(text, sizeof(text), "attachment; filename=\"%s\"", file);
        http_reply_header(c->r, "Content-Disposition", str_c(text));
        http_reply_header(c->r, "X-Content-Type-Options", STR("nosniff"));
        http_reply(c->r, 200, "application/octet-stream", &c->body);
    }
    buf_deinit(&c->body);
    c->magic = 0;
    xfree(c);
}

/* ---- CPU ------------------------------------------------------------------------------------ */

static void on_nothing(void *cookie, const struct selfprof_push *push)
{
    (void)cookie, (void)push; /* windows of the sampler are not used */
}

static int sampler_of(struct debug *d, struct selfprof **ret, struct err *e)
{
    const struct process_core *p = d->core;
    const struct selfprof_conf *conf = conf_get(p->ctx.conf, &selfprof_options);
    const struct selfprof_opts o = { .env = p->ctx.env,
                                     .hz = conf->hz,
                                     .service = "embertree",
                                     .role = p->parts_len > 1 ? NULL : p->parts[0].role->name,
                                     .per_thread = true,
                                     .on_push = on_nothing };

    if (p->state != PROCESS_RUNNING)
        return err_set(e, ERR_UNAVAILABLE, "this process is going down");
    if (!d->core->selfprof && !d->own && selfprof_start(&o, &d->own, e))
        return e->code;
    *ret = d->core->selfprof ? d->core->selfprof : d->own;
    return 0;
}

/* The address without its port. */
static void peer_name(const struct http_req *r, char ret[DEBUG_PEER_MAX])
{
    struct str peer = str_c(r->local ? "socket" : r->peer);
    ptrdiff_t port = r->local ? -1 : str_rfind(peer, ':');

    if (port >= 0)
        peer.len = (size_t)port;
    (void)snprintf(ret, DEBUG_PEER_MAX, "%.*s", STR_ARG(peer));
}

/* A free place, held from here on. */
static int take_place(struct debug *d, const struct http_req *r, char **ret, struct err *e)
{
    char name[DEBUG_PEER_MAX], *place = NULL;
    size_t mine = 0, tcp = 0;

    peer_name(r, name);
    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX; i++) {
        char *at = d->peers[i];
        if (!at[0])
            place = at;
        mine += strcmp(at, name) == 0;
        tcp += at[0] && strcmp(at, "socket") != 0;
    }
    if (!r->local && mine >= PEER_PLACES)
        return err_set(e, ERR_RATE,
                       "%d profiles are being taken for %s already: try again when one of them has "
                       "ended, or ask for fewer seconds",
                       PEER_PLACES, name);
    if (!place || (!r->local && tcp >= TCP_PLACES))
        return err_set(e, ERR_BUSY,
                       "%zu profiles are being taken already: try again later, or through the "
                       "server's Unix socket (http.admin_socket), which has a place of its own",
                       d->running);
    memcpy(place, name, sizeof(name));
    *ret = place;
    return 0;
}

static void sampler_left(struct debug *d)
{
    if (--d->running == 0) {
        selfprof_stop(d->own);
        d->own = NULL;
    }
}

static void cpu_reply(void *cookie)
{
    struct call *c = cookie;

    CHECK(c->magic == CALL_MAGIC);
    c->place[0] = '\0';
    sampler_left(c->d);
    call_end(c, "profile");
}

static void on_captured(void *cookie, const struct selfprof_push *parts, size_t n)
{
    struct call *c = cookie;

    CHECK(c->magic == CALL_MAGIC);
    if (debug_cpu_pprof(parts, n, c->hz, &c->body, &c->err) == 0)
        err_clear(&c->err);
    loop_post(c->d->core->ctx.loop, cpu_reply, c);
}

static int seconds_of(const struct http_req *r, uint64_t *ret, struct err *e)
{
    struct str text;

    *ret = SECONDS_DEFAULT;
    if (!http_param(r, "seconds", &text))
        return 0;
    if (!str_u64(text, ret) || *ret == 0 || *ret > DEBUG_SECONDS_MAX)
        return err_set(e, ERR_INPUT, "seconds=%.*s: want 1 to %d", (int)MIN(text.len, 40), text.ptr,
                       DEBUG_SECONDS_MAX);
    return 0;
}

/* The place is for others now. */
static void on_caller_gone(struct http_req *r)
{
    const struct call *c = r->cookie;
    struct selfprof *sampler = c->d->core->selfprof ? c->d->core->selfprof : c->d->own;

    CHECK(c->magic == CALL_MAGIC);
    if (sampler) /* else it was stopped, and the reply is on its way */
        selfprof_capture_end(sampler, c);
}

static void on_profile(struct http_req *r)
{
    struct debug *d = r->route_cookie;
    struct selfprof *sampler = NULL;
    char *place = NULL;
    uint64_t seconds;
    struct err e;

    if (seconds_of(r, &seconds, &e) || take_place(d, r, &place, &e)) {
        http_reply_err(r, &e);
        return;
    }
    if (sampler_of(d, &sampler, &e)) {
        place[0] = '\0';
        http_reply_err(r, &e);
        return;
    }
    struct call *c = call_new(d, r);
    c->place = place;
    c->hz = selfprof_hz(sampler);
    d->running++;
    if (selfprof_capture(sampler, seconds * 1000, on_captured, c, &c->err)) {
        cpu_reply(c);
        return;
    }
    r->cookie = c;
    r->on_gone = on_caller_gone;
}

/* ---- heap ----------------------------------------------------------------------------------- */

static int heap_can(struct err *e)
{
    bool built = false, on = false;
    size_t len = sizeof(bool);

    if (!mallctl || mallctl("config.prof", &built, &len, NULL, 0) || !built)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "heap profiles need a build with a jemalloc that can profile");
    if (mallctl("opt.prof", &on, &len, NULL, 0) || !on)
        return err_set(
            e, ERR_UNIMPLEMENTED,
            "heap profiling is off: start with MALLOC_CONF=prof:true in the environment");
    return 0;
}

static int dump_heap(const struct process_core *p, struct buf *text, struct err *e)
{
    const struct fs *fs = p->ctx.env->fs;
    char path[4096];
    const char *name = path;
    int n = snprintf(path, sizeof(path), "%s/heap-%d.tmp", p->ctx.data_dir, (int)getpid());

    CHECK(n > 0 && (size_t)n < sizeof(path));
    int rc = mallctl("prof.dump", NULL, NULL, (void *)&name, sizeof(name));
    if (rc)
        rc = err_set(e, ERR_IO, "jemalloc cannot write %s: error %d", path, rc);
    else
        rc = fs->read_file(fs, path, text, e);
    (void)unlink(path);
    return rc;
}

static void heap_work(void *cookie)
{
    struct call *c = cookie;
    struct buf text;

    CHECK(c->magic == CALL_MAGIC);
    buf_init(&text, DUMP_BYTES);
    if (dump_heap(c->d->core, &text, &c->err) == 0 &&
        debug_heap_pprof(buf_str(&text), clock_wall_ms(c->d->core->ctx.env->clock), &c->body,
                         &c->err) == 0)
        err_clear(&c->err);
    buf_deinit(&text);
}

static void heap_done(void *cookie)
{
    struct call *c = cookie;

    CHECK(c->magic == CALL_MAGIC);
    c->d->heap = false;
    call_end(c, "heap");
}

static void on_heap(struct http_req *r)
{
    struct debug *d = r->route_cookie;
    struct err e;

    if (heap_can(&e)) {
        http_reply_err(r, &e);
        return;
    }
    struct call *c = d->heap ? NULL : call_new(d, r);
    if (c && pool_submit(d->core->ctx.pool, d->core->ctx.loop, heap_work, heap_done, c)) {
        d->heap = true;
        return;
    }
    (void)err_set(&e, ERR_BUSY, "a heap profile is being taken already; try again");
    if (c) {
        c->err = e;
        call_end(c, "heap");
    } else {
        http_reply_err(r, &e);
    }
}

/* ---- what there is -------------------------------------------------------------------------- */

static void on_index(struct http_req *r)
{
    struct err e;
    struct buf b;

    if (!str_eqc(r->path, "/debug/pprof/") && !str_eqc(r->path, "/debug/pprof")) {
        (void)err_set(&e, ERR_NOT_FOUND, "no such profile; there are profile and heap");
        http_reply_err(r, &e);
        return;
    }
    buf_init(&b, 8 * KIB);
    buf_add_str(&b,
                STR("<!doctype html><title>/debug/pprof/</title>\n<h1>/debug/pprof/</h1>\n<ul>\n"
                    "<li><a href=\"/debug/pprof/profile?seconds=30\">profile</a>: CPU of all "
                    "threads for <code>seconds</code> (1 to 300), as pprof\n"
                    "<li><a href=\"/debug/pprof/heap\">heap</a>: memory in use, as pprof"));
    if (heap_can(&e))
        buf_addf(&b, " (%s)", e.text);
    buf_add_str(&b, STR("\n</ul>\n"));
    http_reply_header(r, "Content-Security-Policy", STR(POLICY));
    http_reply_header(r, "X-Content-Type-Options", STR("nosniff"));
    http_reply(r, 200, "text/html; charset=utf-8", &b);
}

void debug_routes(struct debug *d, const struct process_core *core)
{
    struct http_server *http = core->ctx.http;

    d->core = core;
    http_route(http, HTTP_GET, "/debug/pprof", 0, on_index, d);
    http_route(http, HTTP_GET, "/debug/pprof/*", 0, on_index, d);
    http_route(http, HTTP_GET, "/debug/pprof/profile", 0, on_profile, d);
    http_route(http, HTTP_GET, "/debug/pprof/heap", 0, on_heap, d);
}

void debug_stop(struct debug *d)
{
    selfprof_stop(d->own);
    d->own = NULL;
}

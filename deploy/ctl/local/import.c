/* SPDX-License-Identifier: Apache-2.0
 *
 * import: files of profiles to POST /api/v1/import, with the times they are of.
 *
 *   files, sorted ─> decode as the server would ─> WriteRequests ─> bodies of some MiB, zstd ─> 200
 *                                                                        └─ 503, 429: wait, again
 *
 * Decoding happens here, so that a body holds hundreds of profiles and the server only checks it.
 * The write id of a file is made of its name, time and content: importing it twice is one import,
 * as long as the server remembers ids; beyond that the state file knows what was sent.
 *
 * Exit: 0 all imported; 1 some files were refused; 2 the server took no more, or wrong usage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/compress/compress.h"
#include "common/base/wr.h"
#include "common/model/attime.h"
#include "common/sys/clock.h"
#include "common/sys/fs.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/local/import_files.h"
#include "distributor/formats/formats.h"
#include "distributor/formats/upload/upload.h"
#include "distributor/send/pack.h"

#define BODY_BYTES    (8 * MIB) /* before compression; a larger file goes alone */
#define FILE_BYTES    (256 * MIB)
#define WAIT_MS       120000
#define BODY_FILES    4096
#define WAIT_MOST_S   60
#define PAGE_SHOWS_MS 900000 /* the last 15 minutes, when it is opened */
#define YEARS_100     (UINT64_C(100) * 365 * 86400000)

struct import {
    struct cli *cli;
    struct cli_opts o;
    int64_t now_ms;
    bool has_from, has_until;
    int64_t from_ms, until_ms;
    uint64_t step_ms;
    struct limits limits;
    struct import_files files;
    struct import_state state;
    struct buf body, coded;
    size_t first; /* file of the body */
    size_t in_body;
    uint64_t sent, skipped, refused, bytes, began_ms;
    int64_t first_ms, last_ms; /* of the profiles that were sent; last_ms 0: none */
};

static uint64_t mono_ms(void)
{
    return clock_mono_ms(clock_real());
}

static void progress(const struct import *x, bool last)
{
    double s = (double)(mono_ms() - x->began_ms + 1) / 1000;

    (void)fprintf(stderr,
                  "%simported %" PRIu64 " of %zu files, %" PRIu64 " known, %" PRIu64
                  " refused; %.1f MiB sent, %.0f files/s%s",
                  isatty(2) ? "\r" : "", x->sent, x->files.at.len, x->skipped, x->refused,
                  (double)x->bytes / MIB, (double)x->sent / s, last || !isatty(2) ? "\n" : "   ");
}

/* ---- sending ---- */

static void wait_s(uint32_t s)
{
    struct timespec t = { .tv_sec = s };

    while (nanosleep(&t, &t))
        ;
}

/* One body until it is taken. What says "later" is obeyed, anything else is final. */
static int post(struct import *x, struct err *e)
{
    struct buf target, answer;
    int rc;

    buf_init(&target, KIB);
    buf_init(&answer, 64 * KIB);
    (void)buf_add_str(&target, STR("/api/v1/import"));
    ask_param(&target, "level", str_c(x->o.level));
    for (uint64_t i = 0;; i++) {
        struct ask a = { .method = "POST",
                         .wait_ms = WAIT_MS,
                         .target = buf_str(&target),
                         .type = "application/x-protobuf",
                         .encoding = "zstd",
                         .body = buf_str(&x->coded) };
        buf_reset(&answer);
        rc = ask_do(x->cli, &a, &answer, e);
        bool later = rc == ERR_UNAVAILABLE || rc == ERR_TIMEOUT || rc == ERR_BUSY || rc == ERR_RATE;
        if (!later || i >= x->o.retries)
            break;
        uint32_t wait = a.retry_after_ms ? (uint32_t)(a.retry_after_ms / 1000) : 1u << MIN(i, 5u);
        wait = MAX(MIN(wait, WAIT_MOST_S), 1u);
        (void)fprintf(stderr, "%s%s; again in %" PRIu32 " s\n", isatty(2) ? "\n" : "", e->text,
                      wait);
        wait_s(wait);
    }
    buf_deinit(&answer);
    buf_deinit(&target);
    return rc;
}

/* Files [first, end) are in the body, or were left out before. */
static int flush(struct import *x, size_t end, struct err *e)
{
    if (x->in_body) {
        buf_reset(&x->coded);
        if (zstd_compress(buf_str(&x->body), 3, &x->coded, e) || post(x, e))
            return e->code;
        x->sent += x->in_body;
        x->bytes += x->coded.len;
        if (import_state_add(&x->state, &x->files, x->first, end, e))
            return e->code;
        progress(x, false);
    }
    buf_reset(&x->body);
    x->in_body = 0;
    x->first = end;
    return 0;
}

/* ---- one file ---- */

/* NULL: neither --format nor the name says it, so the file is looked at. */
static const char *format_of(const struct import *x, const char *path)
{
    struct str s = str_c(path);

    if (x->o.format)
        return x->o.format;
    return str_ends(s, STR(".txt")) || str_ends(s, STR(".folded")) || str_ends(s, STR(".collapsed"))
               ? "groups"
               : NULL;
}

static int decode(const struct import *x, const char *path, const struct ingest *in,
                  struct str content, struct push *p, struct err *e)
{
    const struct decode_job job = { in, &x->limits, x->now_ms, p };
    const char *found;

    if (format_of(x, path))
        return formats_decode(&job, content, e);
    return upload_push(&job, content, &found, e);
}

/* --from; else the name; else the body says; else mtime. */
static void time_of(const struct import *x, size_t i, struct ingest *in)
{
    const struct import_file *f = &x->files.at.ptr[i];
    int64_t span = x->until_ms - x->from_ms, n = (int64_t)x->files.at.len, at;

    if (x->has_from && x->has_until)
        at = x->from_ms + span / n * (int64_t)i + span % n * (int64_t)i / n;
    else if (x->has_from)
        at = x->from_ms + (int64_t)(x->step_ms * i);
    else if (!import_name_time(f->path, &at)) {
        if (in->format == FORMAT_PPROF)
            return;
        at = f->mtime_ms;
    }
    in->has_from = in->has_until = true;
    in->from_ms = at;
    in->until_ms = at + (int64_t)x->step_ms;
}

static struct write_base base_of(const struct write_secret *secret, const char *path,
                                 struct str content, const struct window *w)
{
    const char *slash = strrchr(path, '/');
    struct str name = str_c(slash ? slash + 1 : path);
    struct hash128 parts[2] = { hash128(content.ptr, content.len, 1),
                                hash128(name.ptr, name.len, 2) };
    struct {
        struct hash128 parts[2];
        int64_t start_ms, end_ms;
    } all = { { parts[0], parts[1] }, w->start_ms, w->end_ms };

    return write_base_import(secret, str_n(&all, sizeof(all)));
}

/* A file that was read and decoded. */
struct import_decoded {
    const struct import_file *file;
    const struct ingest *in;
    struct push *push;
    struct str content; /* bytes of the file */
};

/* Appends the decoded file to *out, as one message behind its length. */
static int pack_file(struct import *x, const struct import_decoded *d, struct buf *out,
                     struct err *e)
{
    struct push *p = d->push;
    const struct write_secret none = { 0 }; /* the server puts its own ids over ours */
    struct window_accept any = { x->now_ms, YEARS_100, YEARS_100 };
    struct window w;
    struct leaves leaves;
    struct buf msg;

    if (window_of(d->in, p, &any, &w, e))
        return e->code;
    if (!d->in->has_from && !p->has_time)
        w.start_ms = w.end_ms = d->file->mtime_ms;
    if (!leaves_of(&w, (size_t)x->limits.leaves, p->arena, &leaves))
        return push_full(p, e);
    x->first_ms = x->last_ms ? MIN(x->first_ms, w.start_ms) : w.start_ms;
    x->last_ms = MAX(x->last_ms, w.end_ms);
    struct write_base base = base_of(&none, d->file->path, d->content, &w);
    struct packing packing = {
        .tenant = STR(""), .push = p, .leaves = &leaves, .secret = &none, .write_base = &base
    };
    buf_init(&msg, FILE_BYTES);
    int rc = pack_write(&packing, &msg, e);
    if (!rc) {
        (void)wr_varint(out, msg.len);
        if (!buf_add_str(out, buf_str(&msg)))
            rc = err_set(e, ERR_LIMIT, "over %zu bytes", out->max);
    }
    buf_deinit(&msg);
    return rc;
}

/* Appends file i to *out; nothing if it holds nothing. */
static int take_file(struct import *x, size_t i, struct buf *out, struct err *e)
{
    const char *path = x->files.at.ptr[i].path;
    struct ingest_raw raw = { .name = str_c(x->o.name),
                              .format = str_c(format_of(x, path) ? format_of(x, path) : "pprof"),
                              .spy_name = STR("import") };
    struct arena *a = arena_new((size_t)x->limits.decode_bytes);
    struct buf content;
    struct ingest in;
    struct push p;

    buf_init(&content, FILE_BYTES);
    push_init(&p, a, &x->limits, 1);
    int rc = fs_real()->read_file(fs_real(), path, &content, e);
    if (!rc)
        rc = ingest_parse(&raw, &x->limits, x->now_ms, a, &in, e);
    if (!rc) {
        time_of(x, i, &in);
        rc = decode(x, path, &in, buf_str(&content), &p, e);
    }
    const struct import_decoded d = { &x->files.at.ptr[i], &in, &p, buf_str(&content) };
    if (!rc && p.series_len)
        rc = pack_file(x, &d, out, e);
    push_deinit(&p);
    arena_free(a);
    buf_deinit(&content);
    return rc;
}

static int import_all(struct import *x, struct err *e)
{
    struct buf one;
    int rc = 0;

    buf_init(&one, FILE_BYTES);
    for (size_t i = 0; !rc && i < x->files.at.len; i++) {
        if (import_state_has(&x->state, &x->files.at.ptr[i])) {
            x->skipped++;
            continue;
        }
        buf_reset(&one);
        if (take_file(x, i, &one, e)) {
            (void)fprintf(stderr, "%s%s: %s\n", isatty(2) ? "\n" : "", x->files.at.ptr[i].path,
                          e->text);
            x->refused++;
            /* A refused file is not done: what was read so far is, up to it. */
            rc = flush(x, i, e);
            x->first = i + 1;
            continue;
        }
        if (x->in_body && (x->body.len + one.len > BODY_BYTES || x->in_body >= BODY_FILES))
            rc = flush(x, i, e);
        (void)buf_add_str(&x->body, buf_str(&one));
        x->in_body++;
    }
    if (!rc)
        rc = flush(x, x->files.at.len, e);
    buf_deinit(&one);
    return rc;
}

/* The page shows the last minutes, and commands the last hour: old profiles seem to be missing. */
static void say_where(const struct import *x)
{
    struct buf text, query;

    if (!x->sent || x->now_ms - x->last_ms < PAGE_SHOWS_MS)
        return;
    buf_init(&text, KIB);
    buf_init(&query, KIB);
    ask_param_u64(&query, "from", (uint64_t)x->first_ms);
    ask_param_u64(&query, "until", (uint64_t)MAX(x->last_ms, x->first_ms + 10000));
    (void)buf_add_str(&text, STR("these profiles are of "));
    term_time(x->first_ms, &text);
    (void)buf_add_str(&text, STR(" to "));
    term_time(x->last_ms, &text);
    (void)buf_addf(&text,
                   " UTC, older than what the page and the commands show at first: look with "
                   "--from=%" PRId64 " --until=%" PRId64 ", or at %s/#%.*s",
                   x->first_ms, MAX(x->last_ms, x->first_ms + 10000), x->cli->o.server,
                   (int)(query.len - 1), query.ptr + 1);
    if (buf_ok(&text) && buf_ok(&query))
        cli_note(x->cli, "%.*s", STR_ARG(buf_str(&text)));
    buf_deinit(&text);
    buf_deinit(&query);
}

/* ---- options ---- */

static int parse_time(const char *text, const char *what, int64_t now_ms, bool *has, int64_t *ret,
                      struct err *e)
{
    if (!text)
        return 0;
    *has = true;
    return attime_parse(str_c(text), now_ms, ret, e) ? err_wrap(e, "%s", what) : 0;
}

static int parse(struct import *x, struct err *e)
{
    const struct cli *c = x->cli;

    x->o = c->o;
    x->o.step = x->o.step ? x->o.step : "10s";
    x->o.level = x->o.level ? x->o.level : "";
    if (!x->o.name)
        return err_set(e, ERR_CONFIG, "--name is needed: which service is this?");
    for (size_t i = 0; i < c->args_len; i++)
        if (import_files_add(&x->files, c->args[i], e))
            return e->code;
    if (!x->files.at.len)
        return err_set(e, ERR_CONFIG, "no files");
    if (parse_time(x->o.from, "--from", x->now_ms, &x->has_from, &x->from_ms, e) ||
        parse_time(x->o.until, "--until", x->now_ms, &x->has_until, &x->until_ms, e))
        return e->code;
    if (x->has_until && (!x->has_from || x->until_ms < x->from_ms))
        return err_set(e, ERR_CONFIG, "--until needs an earlier --from");
    if (!str_duration_ms(str_c(x->o.step), &x->step_ms) || !x->step_ms)
        return err_set(e, ERR_CONFIG, "--step %s: want 10s, 1m, ...", x->o.step);
    if (strlen(x->o.level) > 8)
        return err_set(e, ERR_CONFIG, "--level %s: want 1m, 10m, ...", x->o.level);
    return 0;
}

int ctl_import(struct cli *c)
{
    struct import x = { .cli = c, .now_ms = c->now_ms, .limits = limits_default() };
    struct err e = { 0 };
    int code = CLI_DONE;

    buf_init(&x.body, FILE_BYTES + BODY_BYTES);
    buf_init(&x.coded, FILE_BYTES);
    x.began_ms = mono_ms();
    if (parse(&x, &e)) {
        code = cli_fail(c, &e);
    } else {
        import_files_sort(&x.files);
        if (import_state_open(&x.state, x.o.state, &e) || import_all(&x, &e)) {
            (void)fprintf(stderr, "%s", isatty(2) ? "\n" : "");
            code = cli_fail(c, &e);
        }
        progress(&x, true);
        say_where(&x);
        import_state_close(&x.state);
        code = code ? code : x.refused > 0;
    }
    import_files_deinit(&x.files);
    buf_deinit(&x.body);
    buf_deinit(&x.coded);
    return code;
}

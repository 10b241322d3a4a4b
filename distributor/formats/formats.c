/* SPDX-License-Identifier: Apache-2.0
 *
 * formats.c: takes one layer of gzip off a body and calls the reader of its format.
 *
 * A form (multipart) is taken apart first; an error in one of its parts names the part and what it
 * should hold. Forms of pprof that are older than its message are turned into the message, so that
 * there is one reader. formats_identity says which bytes a retry repeats: a form is not repeated
 * byte by byte, since its boundary differs. Pure: any thread, no state.
 */
#include "distributor/formats/formats.h"

#include "common/net/jpull.h"
#include "distributor/formats/folded.h"
#include "distributor/formats/jfr/jfr.h"
#include "distributor/formats/kinds.h"
#include "distributor/formats/legacy/legacy.h"
#include "distributor/formats/multipart.h"
#include "distributor/formats/pprof/pprof_stacks.h"
#include "distributor/formats/pyrotree.h"
#include "distributor/formats/speedscope.h"

/* pprof is a form only without format=; a recording is one by its Content-Type. */
static bool is_multipart(const struct ingest *in)
{
    return in->format == FORMAT_MULTIPART ||
           (in->format == FORMAT_JFR &&
            str_contains(in->raw.content_type, STR("multipart/form-data")));
}

/* Refuses a form where the data itself is wanted; no other body begins with these bytes. */
static int check_no_form(const struct ingest *in, struct str body, struct err *e)
{
    if (is_multipart(in) || !str_starts(body, STR("--")) ||
        !str_contains(in->raw.content_type, STR("multipart/form-data")))
        return 0;
    return err_set(e, ERR_INPUT,
                   "multipart: with format=%s the body is the data itself, not a form: send it so, "
                   "or leave out format= and name the part \"profile\"",
                   format_name(in->format));
}

/* Says of which part of a form an error speaks, and what should be in it. */
static int part_wrong(const char *name, const char *want, struct err *e)
{
    return err_wrap(e, "multipart: part \"%s\" (want %s)", name, want);
}
#define WANT_PPROF "a pprof message, plain or gzip"

/* One layer of gzip off, if there is one. *tmp owns the result then. */
static int unzip(struct str body, const struct limits *l, struct buf *tmp, struct str *ret,
                 struct err *e)
{
    const struct inflate_limits inflate = limits_inflate(l);

    *ret = body;
    buf_init(tmp, (size_t)l->inflated_bytes);
    if (!gzip_sniff(body))
        return 0;
    if (gunzip(body, &inflate, tmp, e))
        return e->code;
    *ret = buf_str(tmp);
    return 0;
}

/* As unzip; what is older than pprof's message becomes one. */
static int unzip_pprof(struct str body, const struct limits *l, struct push *push, struct buf *tmp,
                       struct str *ret, struct err *e)
{
    uint64_t left_out = 0;
    struct buf message;

    int rc = unzip(body, l, tmp, ret, e);
    if (rc || !legacy_sniff(*ret))
        return rc;
    buf_init(&message, (size_t)l->inflated_bytes);
    rc = legacy_to_pprof(*ret, l, &message, &left_out, e);
    push->drops[DROP_LINE] += left_out;
    buf_move(tmp, &message);
    *ret = buf_str(tmp);
    return rc;
}

static int decode_text(const struct decode_job *job, struct str body, struct err *e)
{
    const struct ingest *in = job->in;
    const struct limits *l = job->l;
    struct push *push = job->push;
    struct kind kind = kind_of(in->name.app, in->sample_rate);
    struct str plain;
    struct buf tmp;

    int rc = unzip(body, l, &tmp, &plain, e);
    if (!rc)
        rc = push_base(push, in, kind.app, l, e);
    push->drops[CHANGE_RATE] += !rc && in->rate_unread && kind.period > 1;
    if (!rc && in->format == FORMAT_TRIE)
        rc = trie_push(plain, &kind, l, push, e);
    else if (!rc && in->format == FORMAT_TREE)
        rc = tree_push(plain, &kind, l, push, e);
    else if (!rc)
        rc = folded_push(plain, in->format == FORMAT_GROUPS, &kind, l, push, e);
    buf_deinit(&tmp);
    return rc;
}

static int decode_speedscope(const struct decode_job *job, struct str body, struct err *e)
{
    struct str plain;
    struct buf tmp;

    int rc = unzip(body, job->l, &tmp, &plain, e);
    if (!rc && jpull_check(plain, SPEEDSCOPE_DEPTH_MAX, e))
        rc = err_wrap(e, "speedscope");
    if (!rc)
        rc = speedscope_push(plain, job->in, job->l, job->push, e);
    buf_deinit(&tmp);
    return rc;
}

static void mark_cumulative(const struct pprof *p, const struct sample_config *config, bool *ret)
{
    for (size_t i = 0; i < p->types_len; i++) {
        struct str type = pprof_str(p, p->types[i].type);
        const struct sample_config_row *row = sample_config_find(config, type);
        ret[i] = row ? row->cumulative : kind_cumulative(type);
    }
}

/* What a pprof push is made of. */
struct pprof_parts {
    struct str profile, prev; /* prev.len 0: none */
    bool form;                /* they are parts of one */
};

/* The values of p minus those of the part `prev`. */
static int subtract_prev(const struct decode_job *job, const struct pprof *p,
                         const struct pprof_parts *parts, const struct sample_config *config,
                         const int64_t **ret_values, struct err *e)
{
    bool cumulative[PPROF_TYPES_MAX];
    struct pprof prev = { 0 };
    struct str plain;
    struct buf tmp;

    int rc = unzip_pprof(parts->prev, job->l, job->push, &tmp, &plain, e);
    if (!rc)
        rc = pprof_parse(&prev, plain, job->l, e);
    if (rc && parts->form)
        rc = part_wrong("prev_profile", WANT_PPROF, e);
    else if (rc)
        rc = err_wrap(e, "prev_profile");
    if (!rc) {
        const struct pprof_earlier earlier = { &prev, cumulative };
        mark_cumulative(p, config, cumulative);
        rc = pprof_subtract(p, &earlier, job->l, job->push, ret_values, e);
        if (rc)
            rc = err_wrap(e, "prev_profile");
    }
    pprof_deinit(&prev);
    buf_deinit(&tmp);
    return rc;
}

static int decode_pprof(const struct decode_job *job, const struct pprof_parts *parts,
                        const struct sample_config *config, struct err *e)
{
    const int64_t *values = NULL;
    struct pprof p = { 0 };
    struct str plain;
    struct buf tmp;

    int rc = unzip_pprof(parts->profile, job->l, job->push, &tmp, &plain, e);
    if (!rc)
        rc = pprof_parse(&p, plain, job->l, e);
    if (rc && parts->form)
        rc = part_wrong("profile", WANT_PPROF, e);
    for (size_t i = 0; !rc && config->file_addresses && i < p.mappings.len; i++)
        p.mappings.ptr[i].start = p.mappings.ptr[i].limit = 0; /* nothing is within that */
    if (!rc)
        rc = push_time(job->push, p.time_ns, p.duration_ns, job->now_ms, e);
    if (!rc && parts->prev.len)
        rc = subtract_prev(job, &p, parts, config, &values, e);
    if (!rc)
        rc = push_base(job->push, job->in, job->in->name.app, job->l, e);
    if (!rc)
        rc = pprof_push(job, &p, config, values, e);
    pprof_deinit(&p);
    buf_deinit(&tmp);
    return rc;
}

int formats_pprof(const struct decode_job *job, struct str body, const struct sample_config *config,
                  struct err *e)
{
    const struct pprof_parts parts = { .profile = body };

    return decode_pprof(job, &parts, config, e);
}

int formats_pprof_since(const struct decode_job *job, struct str body, struct str prev,
                        const struct sample_config *config, struct err *e)
{
    const struct pprof_parts parts = { .profile = body, .prev = prev };

    return decode_pprof(job, &parts, config, e);
}

static int check_encoding(const struct multipart_part *part, struct err *e)
{
    static const char *const plain[] = { "", "binary", "8bit", "7bit" };

    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (str_eq_nocase(part->encoding, str_c(plain[i])))
            return 0;
    return err_set(e, ERR_INPUT,
                   "multipart: part \"%.*s\" has Content-Transfer-Encoding %.*s: send parts as "
                   "binary",
                   STR_ARG(part->name), STR_ARG(part->encoding));
}

static int decode_multipart(const struct decode_job *job, struct str body, struct err *e)
{
    const struct ingest *in = job->in;
    struct push *push = job->push;
    struct multipart *m = ARENA_NEW(push->arena, struct multipart);
    const struct multipart_part *profile, *prev, *conf;
    struct sample_config config = { 0 };

    if (!m)
        return push_full(push, e);
    if (multipart_parse(in->raw.content_type, body, push->arena, m, e))
        return e->code;
    if (multipart_need(m, "profile", &profile, e) || multipart_file(m, "prev_profile", &prev, e) ||
        multipart_file(m, "sample_type_config", &conf, e))
        return e->code;
    const struct multipart_part *parts[] = { profile, prev, conf };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i] && check_encoding(parts[i], e))
            return e->code;
    if (conf && sample_config_parse(conf->content, push->arena, &config, e))
        return part_wrong("sample_type_config", "a JSON object by sample type", e);
    if (profile->content.len == 0)
        return push_base(push, in, in->name.app, job->l, e); /* agents send that when nothing ran */
    const struct pprof_parts form = { profile->content, prev ? prev->content : STR_NULL, true };
    return decode_pprof(job, &form, &config, e);
}

static int decode_jfr_parts(const struct decode_job *job, struct str recording, struct str labels,
                            struct err *e)
{
    struct str plain, plain_labels;
    struct buf tmp, tmp_labels;

    int rc = unzip(recording, job->l, &tmp, &plain, e);
    if (rc) {
        buf_deinit(&tmp);
        return err_wrap(e, "jfr");
    }
    rc = unzip(labels, job->l, &tmp_labels, &plain_labels, e);
    if (rc)
        rc = err_wrap(e, "labels");
    else
        rc = jfr_push(job, plain, plain_labels, e);
    buf_deinit(&tmp);
    buf_deinit(&tmp_labels);
    return rc;
}

/* The recording itself, or a form of it and the labels of its contexts. */
static int decode_jfr(const struct decode_job *job, struct str body, struct err *e)
{
    const struct ingest *in = job->in;
    struct push *push = job->push;
    const struct multipart_part *jfr, *labels;
    struct multipart *m;

    if (!is_multipart(in))
        return decode_jfr_parts(job, body, STR_NULL, e);
    m = ARENA_NEW(push->arena, struct multipart);
    if (!m)
        return push_full(push, e);
    if (multipart_parse(in->raw.content_type, body, push->arena, m, e))
        return e->code;
    if (multipart_need(m, "jfr", &jfr, e) || multipart_file(m, "labels", &labels, e))
        return e->code;
    if (check_encoding(jfr, e) || (labels && check_encoding(labels, e)))
        return e->code;
    return decode_jfr_parts(job, jfr->content, labels ? labels->content : STR_NULL, e);
}

int formats_decode(const struct decode_job *job, struct str body, struct err *e)
{
    const struct sample_config none = { 0 };

    if (check_no_form(job->in, body, e))
        return e->code;
    switch (job->in->format) {
    case FORMAT_GROUPS:
    case FORMAT_LINES:
    case FORMAT_TRIE:
    case FORMAT_TREE:
        return decode_text(job, body, e);
    case FORMAT_PPROF:
        return formats_pprof(job, body, &none, e);
    case FORMAT_MULTIPART:
        return decode_multipart(job, body, e);
    case FORMAT_SPEEDSCOPE:
        return decode_speedscope(job, body, e);
    case FORMAT_JFR:
        return decode_jfr(job, body, e);
    case FORMATS_LEN:
        break;
    }
    return err_set(e, ERR_INTERNAL, "format %d does not exist", (int)job->in->format);
}

void formats_identity(const struct ingest *in, struct str body, struct arena *a,
                      void (*add)(void *cookie, struct str bytes), void *cookie)
{
    struct multipart *m = is_multipart(in) ? ARENA_NEW(a, struct multipart) : NULL;
    struct err ignored;

    if (!m || multipart_parse(in->raw.content_type, body, a, m, &ignored)) {
        add(cookie, body);
        return;
    }
    for (size_t i = 0; i < m->len; i++) {
        add(cookie, m->parts[i].name);
        add(cookie, m->parts[i].content);
    }
}

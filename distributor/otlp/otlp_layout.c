/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_layout: telling revisions apart.
 *
 * Between 1.4 and 1.10 fields of the profiles schema changed their numbers, and no number says so.
 * Read with the wrong ones a body still decodes, to nonsense: values become attribute numbers, and
 * all that was measured is gone. So the whole body is looked at first.
 *
 *   no dictionary (request field 2)                          1.5: tables in each profile
 *   profile 3 a list, 5 a number, 6 a message; sample 6      1.7
 *   profile 3 eight bytes, 5 a message, 6 a number           1.8 and later
 *     profile 8 or 12 a list                                 1.8 (samples are those of 1.9)
 *
 *              stack  attributes  link  values  timestamps
 *     1.8, 1.9   1        3         4      2        5
 *     1.10       1        2         3      4        5
 *
 * 1.9 or 1.10 is found by trying both: a list cannot be a link; an attribute or link must be in its
 * table; a sample has one value, or as many as timestamps, or timestamps only. Where all samples
 * make sense both ways (each has as many attributes or values as timestamps, and nothing else) it
 * is asked who else refers to these entries of the attribute table: numbers of entries that only
 * samples can have referred to are attributes, numbers of entries that belong to mappings are
 * values by chance. A body that is still undecided, or has fields of two revisions, is refused.
 *
 * Layouts: opentelemetry-proto, tags v1.4.0 to v1.11.0 (proto/FORMATS.md, "OTLP layouts").
 */
#include "distributor/otlp/otlp_layout.h"

#include "distributor/otlp/otlp_wire.h"

#define SAMPLE_FIELDS 7
#define ID_BYTES      16
#define ORPHANS_MAX   (1u << 20) /* entries of the attribute table that are distinguished */
#define CLEARLY       4          /* times as many samples that make no sense */

/* One field of a sample: how often it stands there and in which form. */
struct shape {
    bool list, single; /* length-delimited; not */
    uint32_t count;    /* elements */
    uint64_t most;     /* largest element; negative ones are larger than any */
};
struct scan {
    struct otlp_wire w;
    bool dictionary, tables_16, container;
    uint64_t profiles, profiles_with_strings;
    bool is_17, is_18_or_later, is_18; /* something that only they have */
    uint32_t attrs, links;
    uint64_t samples;
    uint64_t bad_19, bad_110; /* samples that make no sense as that */
    bool never_19, never_110; /* fields that cannot be that */
    uint8_t *used;            /* by attribute: 1 = by others, 2 = by field 2 of samples */
};

static void count_into(struct scan *s, const struct rd *r, const struct pb_field *f, unsigned wire,
                       struct shape *shape)
{
    struct otlp_ints it;
    uint64_t v;

    shape->list |= f->wire == 2;
    shape->single |= f->wire != 2;
    if (!otlp_ints_of(&s->w, r, "sample", f, f->wire == 2 ? wire : f->wire, &it))
        return;
    while (otlp_ints_next(&s->w, &it, "sample", &v)) {
        shape->count++;
        shape->most = MAX(shape->most, v);
    }
}

static bool count_fits(uint32_t values, uint32_t timestamps)
{
    return values == timestamps ? values > 0 : values == 0 || (values == 1 && timestamps == 0);
}

static bool refs_fit(const struct shape *refs, uint32_t table)
{
    return refs->count == 0 || refs->most < MAX(table, 1);
}

static void judge_sample(struct scan *s, const struct shape *f)
{
    bool link_19 = !f[4].list && f[4].count <= 1 && refs_fit(&f[4], s->links);
    bool link_110 = !f[3].list && f[3].count <= 1 && refs_fit(&f[3], s->links);

    s->samples++;
    s->never_110 |= f[3].list;
    s->never_19 |= f[4].list;
    s->bad_19 += !(link_19 && refs_fit(&f[3], s->attrs) && count_fits(f[2].count, f[5].count));
    s->bad_110 += !(link_110 && refs_fit(&f[2], s->attrs) && count_fits(f[4].count, f[5].count));
}

/* Fields 1 .. 6 of a sample, as those of layouts with a dictionary. */
static void scan_sample(struct scan *s, struct str bytes)
{
    struct shape shapes[SAMPLE_FIELDS] = { 0 };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "sample", &f)) {
        if (f.number == 6)
            s->is_17 = true;
        else if (f.number == 5 && f.wire == 1)
            s->is_18_or_later = true;
        if (f.number < SAMPLE_FIELDS && f.number != 5)
            count_into(s, &r, &f, 0, &shapes[f.number]);
        else if (f.number == 5 && f.wire == 2) /* eight bytes each, if it is a new one */
            shapes[5].count += (uint32_t)(f.bytes.len / 8);
        else if (f.number == 5)
            shapes[5].count++;
    }
    if (!s->w.bad)
        judge_sample(s, shapes);
}

/* What the fields of a profile beside its samples say. */
static void scan_field(struct scan *s, const struct pb_field *f)
{
    switch (f->number) {
    case 3:
        *(f->wire == 1 ? &s->is_18_or_later : &s->is_17) = true;
        break;
    case 5:
        *(f->wire == 2 ? &s->is_18_or_later : &s->is_17) = true;
        break;
    case 6:
        *(f->wire == 0 ? &s->is_18_or_later : &s->is_17) = true;
        break;
    case 8:
        s->is_18 |= f->wire == 2 && f->bytes.len == ID_BYTES;
        break;
    default:
        break;
    }
}

static void scan_profile(struct scan *s, struct str bytes)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    bool strings = false;

    while (otlp_next(&s->w, &r, "profile", &f)) {
        s->container |= f.number == 2 && f.wire == 1;
        strings |= f.number == 10 && f.wire == 2;
        if (!s->dictionary)
            continue;
        if (f.number == 2 && otlp_is(&s->w, &r, "profile", &f, 2))
            scan_sample(s, f.bytes);
        else
            scan_field(s, &f);
    }
    s->profiles++;
    s->profiles_with_strings += strings;
}

/* Calls fn for each profile. */
static void each_profile(struct scan *s, struct str body,
                         void (*fn)(struct scan *s, struct str profile))
{
    struct rd r = rd_of(body), rr, sr;
    struct pb_field f, rf, sf;

    while (otlp_next(&s->w, &r, "request", &f)) {
        if (f.number != 1 || f.wire != 2)
            continue;
        rr = rd_of(f.bytes);
        while (otlp_next(&s->w, &rr, "resource profiles", &rf)) {
            if (rf.number != 2 || rf.wire != 2)
                continue;
            sr = rd_of(rf.bytes);
            while (otlp_next(&s->w, &sr, "scope profiles", &sf))
                if (sf.number == 2 && sf.wire == 2)
                    fn(s, sf.bytes);
        }
    }
}

/* The first field of an attribute is a key in 1.7, the number of one later; a stack (7) has a list
 * only, a unit of 1.7 two numbers. */
static void scan_entry(struct scan *s, uint32_t table, struct str bytes)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "dictionary", &f)) {
        if (table == 6 && f.number == 1)
            *(f.wire == 2 ? &s->is_17 : &s->is_18_or_later) = true;
        else if (table == 7 && f.number == 1 && f.wire == 2)
            s->is_18_or_later = true;
        else if (table == 7 && f.number == 2)
            s->is_17 = true;
    }
}

static void scan_request(struct scan *s, struct str body)
{
    struct rd r = rd_of(body), dr;
    struct pb_field f, df;

    while (otlp_next(&s->w, &r, "request", &f)) {
        s->tables_16 |= f.number > 2 && f.number <= 8;
        if (f.number != 2)
            continue;
        if (!otlp_is(&s->w, &r, "request", &f, 2))
            return;
        s->dictionary = true;
        dr = rd_of(f.bytes);
        while (otlp_next(&s->w, &dr, "dictionary", &df)) {
            s->links += df.number == 4;
            s->attrs += df.number == 6;
            if ((df.number == 6 || df.number == 7) && df.wire == 2)
                scan_entry(s, df.number, df.bytes);
        }
    }
}

/* ---- 1.9 or 1.10, where each sample may be both --------------------------------------------- */

static void mark(struct scan *s, const struct rd *r, const struct pb_field *f, uint8_t bit)
{
    struct otlp_ints it;
    uint64_t v;

    if (!otlp_ints_of(&s->w, r, "attribute indices", f, 0, &it))
        return;
    while (otlp_ints_next(&s->w, &it, "attribute indices", &v))
        if (v > 0 && v < s->attrs && v < ORPHANS_MAX)
            s->used[v] |= bit;
}

static void mark_profile(struct scan *s, struct str bytes)
{
    struct rd r = rd_of(bytes), sr;
    struct pb_field f, sf;

    while (otlp_next(&s->w, &r, "profile", &f)) {
        if (f.number == 11 && f.wire != 1 && f.wire != 5)
            mark(s, &r, &f, 1);
        if (f.number != 2 || f.wire != 2)
            continue;
        sr = rd_of(f.bytes);
        while (otlp_next(&s->w, &sr, "sample", &sf))
            if (sf.number == 2)
                mark(s, &sr, &sf, 2);
    }
}

static void mark_dictionary(struct scan *s, struct str body)
{
    struct rd r = rd_of(body), dr, er;
    struct pb_field f, df, ef;

    while (otlp_next(&s->w, &r, "request", &f)) {
        if (f.number != 2)
            continue;
        dr = rd_of(f.bytes);
        while (otlp_next(&s->w, &dr, "dictionary", &df)) {
            uint32_t list = df.number == 1 ? 5 : df.number == 2 ? 4 : 0;
            if (!list || df.wire != 2)
                continue;
            er = rd_of(df.bytes);
            while (otlp_next(&s->w, &er, "dictionary", &ef))
                if (ef.number == list)
                    mark(s, &er, &ef, 1);
        }
    }
}

/* 1.10 if only samples can have meant these attributes, 1.9 if others do; OTLP_AUTO if both. */
static enum otlp_layout by_use(struct scan *s, struct str body)
{
    bool samples_only = false, shared = false;

    s->used = xcalloc(MIN(s->attrs, ORPHANS_MAX) + 1, 1);
    mark_dictionary(s, body);
    each_profile(s, body, mark_profile);
    for (uint32_t i = 0; i < s->attrs && i < ORPHANS_MAX; i++) {
        samples_only |= s->used[i] == 2;
        shared |= s->used[i] == 3;
    }
    xfree(s->used);
    s->used = NULL;
    if (samples_only == shared)
        return OTLP_AUTO;
    return samples_only ? OTLP_110 : OTLP_19;
}

static int undecided(const struct scan *s, const char *why)
{
    return err_set(s->w.e, ERR_INPUT,
                   "otlp: cannot tell which revision of the profiles schema this body is of (%s); "
                   "send 1.10 or later, or name the sender's in distributor.otlp_layout",
                   why);
}

static int by_samples(struct scan *s, struct str body, enum otlp_layout *ret)
{
    bool fits_both = s->bad_19 == 0 && s->bad_110 == 0;

    if (s->never_19 && s->never_110)
        return undecided(s, "samples of both 1.9 and 1.10");
    *ret = OTLP_110;
    if (s->samples == 0)
        return 0;
    if (s->never_19 || s->never_110)
        *ret = s->never_110 ? OTLP_19 : OTLP_110;
    else if (fits_both)
        *ret = by_use(s, body);
    else if (s->bad_19 > CLEARLY * s->bad_110 || s->bad_110 > CLEARLY * s->bad_19)
        *ret = s->bad_110 > s->bad_19 ? OTLP_19 : OTLP_110;
    else
        return undecided(s, "samples make no sense as 1.9 nor as 1.10");
    if (!s->w.bad && *ret == OTLP_AUTO)
        return undecided(s, "field 2 of its samples may be values of 1.9 or attributes of 1.10");
    return s->w.bad ? s->w.e->code : 0;
}

static int without_dictionary(const struct scan *s, enum otlp_layout *ret)
{
    *ret = OTLP_15;
    if (s->profiles == 0)
        return 0;
    if (s->container)
        return err_set(s->w.e, ERR_INPUT,
                       "otlp: the profiles schema of this body is 1.3 or older: too old; send 1.10 "
                       "or later");
    if (s->tables_16)
        return err_set(s->w.e, ERR_INPUT,
                       "otlp: the profiles schema of this body is 1.6, whose requests have no room "
                       "for tables; send 1.10 or later");
    if (s->profiles_with_strings == 0)
        return err_set(s->w.e, ERR_INPUT,
                       "otlp: the request has profiles but no dictionary, and they have no tables "
                       "of their own");
    return 0;
}

int otlp_layout_find(struct str body, enum otlp_layout *ret, struct err *e)
{
    struct scan s = { .w = { .body = rd_of(body).p, .e = e } };

    scan_request(&s, body);
    each_profile(&s, body, scan_profile);
    if (s.w.bad)
        return e->code;
    if (!s.dictionary)
        return without_dictionary(&s, ret);
    if (s.is_17 && s.is_18_or_later)
        return undecided(&s, "fields of both 1.7 and later ones");
    if (s.is_17) {
        *ret = OTLP_17;
        return 0;
    }
    if (by_samples(&s, body, ret))
        return e->code;
    if (s.is_18 && *ret == OTLP_110 && s.samples && s.never_19)
        return undecided(&s, "profiles of 1.8 with samples of 1.10");
    if (s.is_18)
        *ret = OTLP_18;
    return 0;
}

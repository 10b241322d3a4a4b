/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/formats/ingest.h"

#include "common/model/attime.h"

#define SAMPLE_RATE_DEFAULT 100
#define SAMPLE_RATE_MAX     1000000000 /* one sample per nanosecond: a period of 1 */

const char *format_name(enum format f)
{
    static const char *const names[] = {
        [FORMAT_GROUPS] = "groups", [FORMAT_LINES] = "lines",
        [FORMAT_PPROF] = "pprof",   [FORMAT_MULTIPART] = "multipart",
        [FORMAT_TRIE] = "trie",     [FORMAT_TREE] = "tree",
        [FORMAT_JFR] = "jfr",       [FORMAT_SPEEDSCOPE] = "speedscope",
    };
    static_assert(ARRAY_LEN(names) == FORMATS_LEN, "each format has a name");

    return names[f];
}

enum format format_detect(struct str format, struct str content_type)
{
    static const struct {
        const char *format, *content_type;
        enum format is;
    } rows[] = {
        { "trie", "binary/octet-stream+trie", FORMAT_TRIE },
        { "tree", "binary/octet-stream+tree", FORMAT_TREE },
        { "lines", NULL, FORMAT_LINES },
        { "jfr", NULL, FORMAT_JFR },
        { "pprof", NULL, FORMAT_PPROF },
        { "speedscope", NULL, FORMAT_SPEEDSCOPE },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_eqc(format, rows[i].format) ||
            (rows[i].content_type && str_eqc(content_type, rows[i].content_type)))
            return rows[i].is;
    return str_contains(content_type, STR("multipart/form-data")) ? FORMAT_MULTIPART
                                                                  : FORMAT_GROUPS;
}

static int parse_time(struct str text, const char *what, int64_t now_ms, bool *ret_has,
                      int64_t *ret_ms, struct err *e)
{
    if (str_trim(text).len == 0)
        return 0;
    if (attime_parse(text, now_ms, ret_ms, e))
        return err_wrap(e, "%s", what);
    *ret_has = true;
    return 0;
}

/* Missing, not a number, or negative: the default, as all peers do; but not without a word. */
static int parse_rate(struct str text, uint64_t *ret, bool *ret_unread, struct err *e)
{
    uint64_t rate = SAMPLE_RATE_DEFAULT;

    *ret_unread = false;
    if (!str_u64(text, &rate)) {
        *ret_unread = text.len > 0;
        rate = SAMPLE_RATE_DEFAULT;
    }
    if (rate > SAMPLE_RATE_MAX)
        return err_set(e, ERR_INPUT, "sampleRate: %" PRIu64 " Hz is more than %d", rate,
                       SAMPLE_RATE_MAX);
    *ret = rate;
    return 0;
}

int ingest_parse(const struct ingest_raw *raw, const struct limits *l, int64_t now_ms,
                 struct arena *a, struct ingest *ret, struct err *e)
{
    const struct appname_limits names = limits_appname(l);
    struct ingest in = { .raw = *raw, .spy = str_trim(raw->spy_name) };

    if (appname_parse(raw->name, &names, a, &in.name, e) ||
        parse_time(raw->from, "from", now_ms, &in.has_from, &in.from_ms, e) ||
        parse_time(raw->until, "until", now_ms, &in.has_until, &in.until_ms, e) ||
        parse_rate(raw->sample_rate, &in.sample_rate, &in.rate_unread, e))
        return e->code;
    if (in.spy.len == 0)
        in.spy = STR("unknown");
    if (in.spy.len > l->label_value_bytes || !str_utf8_valid(in.spy))
        return err_set(e, ERR_INPUT, "spyName: %zu bytes that are no short UTF-8 text", in.spy.len);
    in.format = format_detect(raw->format, raw->content_type);
    *ret = in;
    return 0;
}

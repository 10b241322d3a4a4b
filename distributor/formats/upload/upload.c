/* SPDX-License-Identifier: Apache-2.0
 *
 * upload: what a file is, by its first bytes; JSON by the keys of its top level.
 *
 * Formats that /ingest has too go through formats_decode, so that both ways give the same. The
 * order matters: magic numbers first, then JSON, then protobuf, whose first byte is a newline for
 * text, and the older forms of pprof, then text that can only be perf's, then folded text, which
 * nearly everything is.
 */
#include "distributor/formats/upload/upload.h"

#include "common/base/rd.h"
#include "common/net/jpull.h"
#include "distributor/formats/formats.h"
#include "distributor/formats/legacy/legacy.h"
#include "distributor/formats/speedscope.h"
#include "distributor/formats/upload/austin.h"
#include "distributor/formats/upload/firefox.h"
#include "distributor/formats/upload/perf_script.h"
#include "distributor/formats/upload/v8.h"

#define SNIFF_BYTES 1024
#define OTLP        "this is an OTLP request: send it to /v1development/profiles"
#define TRACE                                                                                   \
    "this is a trace of Chrome (trace events), which has more than a profile in it and is not " \
    "read: open it in speedscope and upload what that exports, or record a .cpuprofile with "   \
    "`node --cpu-prof`, or with Profiler.start of the DevTools protocol"
#define STACKPROF                                                                        \
    "this is stackprof's own JSON: upload what `stackprof --stackcollapse FILE` prints " \
    "(for that it must be recorded with raw: true)"
#define CALLGRIND "counts of Valgrind's callgrind: record time with `perf record -g` instead"
#define CACHEGRIND                                                               \
    "a cachegrind file, which has costs of functions and not of stacks: record " \
    "stacks instead, of PHP for example with Excimer"

enum kind {
    KIND_INGEST, /* as /ingest reads it */
    KIND_JSON,
    KIND_PERF_SCRIPT,
    KIND_AUSTIN,
};
struct found {
    enum kind kind;
    enum format format; /* KIND_INGEST */
    const char *name;
    bool guess; /* nothing else is left that it could be */
};

/* "v 10400 3", in hex, and a line "X " with the program. */
static bool is_heaptrack(struct str s)
{
    ptrdiff_t end = str_find(str_sub(s, 0, 64), '\n');

    return str_starts(s, STR("v ")) && end > 0 &&
           str_starts(str_sub(s, (size_t)end + 1, s.len), STR("X "));
}

/* Moves into the first field, if that has number 1 and is whole. */
static bool enter_first(struct str *s)
{
    uint64_t len;
    struct rd r;

    if (!s->len || s->ptr[0] != 0x0a)
        return false;
    r = rd_of(str_sub(*s, 1, s->len));
    if (!rd_varint(&r, &len) || len < 2 || len > rd_left(&r))
        return false;
    *s = str_n((const char *)r.p, (size_t)len);
    return true;
}

/* ExportProfilesServiceRequest{ResourceProfiles{Resource or ScopeProfiles}}: the first field of the
 * first field is a message, where pprof has the number of a string. */
static bool is_otlp(struct str s)
{
    return enter_first(&s) && (s.ptr[0] == 0x0a || s.ptr[0] == 0x12) && s.len > 2 &&
           (uint8_t)s.ptr[1] <= s.len - 2;
}

static int known_but_not_read(struct str s, struct err *e)
{
    static const struct {
        const char *magic;
        size_t len;
        const char *what;
    } rows[] = {
        { "PERFILE2", 8, "perf.data: run `perf script` and upload what it prints" },
        { "2ELIFREP", 8, "perf.data: run `perf script` and upload what it prints" },
        { "\177ELF", 4, "a program, not a profile of it" },
        { "Nettrace", 8,
          "a .nettrace file: convert it with `dotnet-trace convert --format "
          "Speedscope`" },
        { "\x14\0\0\0!FastSer", 12,
          "a .nettrace file: convert it with `dotnet-trace convert "
          "--format Speedscope`" },
        { "MOJ", 3, "Austin's binary format: convert it with `mojo2austin`" },
        { "--- symbol", 10,
          "what `pprof --raw` prints, without unit and period: upload the profile itself, or what "
          "`pprof --collapsed` prints" },
        { "# callgrind format", 18, CALLGRIND },
        { "version: 1\ncreator: callgrind", 29, CALLGRIND },
        { "version: 1\ncreator: ", 20, CACHEGRIND },
        { "--- Execution profile ---", 25,
          "async-profiler's text report: record with -o collapsed or -o jfr" },
        { "\x89PNG", 4, "a picture" },
        { "<svg", 4, "a drawn flame graph: upload what it was drawn from" },
        { "<?xml", 5, "XML: if it is a drawn flame graph, upload what it was drawn from" },
        { "PK\3\4", 4, "a zip archive: upload the files in it" },
        { "\x28\xb5\x2f\xfd", 4, "zstd: unpack it, or send it with Content-Encoding: zstd" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_starts(s, str_n(rows[i].magic, rows[i].len)))
            return err_set(e, ERR_INPUT, "this is %s", rows[i].what);
    if (is_otlp(s))
        return err_set(e, ERR_INPUT, OTLP);
    if (is_heaptrack(s))
        return err_set(e, ERR_INPUT,
                       "this is heaptrack's file: upload what `heaptrack_print -F` writes");
    return 0;
}

/* A message whose first field is a sample type, with a plausible length. */
static bool looks_like_pprof(struct str s)
{
    if (s.len < 4 || s.ptr[0] != 0x0a)
        return false;
    const uint8_t len = (uint8_t)s.ptr[1];
    return len >= 2 && len <= 64 && (size_t)len + 2 <= s.len &&
           ((uint8_t)s.ptr[2] == 0x08 || (uint8_t)s.ptr[2] == 0x10);
}

/* A byte that no text has. */
static bool binary(struct str head)
{
    for (size_t i = 0; i < head.len; i++) {
        const uint8_t c = (uint8_t)head.ptr[i];
        if (c < 0x20 && c != '\t' && c != '\n' && c != '\v' && c != '\f' && c != '\r' && c != 0x1b)
            return true;
    }
    return false;
}

/* The end of a scalar of JSON that begins the text; NULL: the text does not begin with one. */
static const char *scalar_end(struct str s)
{
    static const char *const words[] = { "true", "false", "null" };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_starts(s, str_c(words[i])))
            return s.ptr + strlen(words[i]);
    while (n < s.len && ((s.ptr[n] >= '0' && s.ptr[n] <= '9') || memchr("+-.eE", s.ptr[n], 5)))
        n++;
    return n ? s.ptr + n : NULL;
}

/* Does JSON begin here? Folded text may begin with the same bracket: "[unknown];main 3",
 * "{lambda};main 3", "[1];main 3". Looks as far as that can be told, at most at `s`. */
static bool is_json(struct str s)
{
    const char *end;

    if (!s.len || (s.ptr[0] != '{' && s.ptr[0] != '['))
        return false;
    for (size_t depth = 0; s.len;) {
        const char c = s.ptr[0];
        s = str_trim(str_sub(s, 1, s.len));
        if (c == '{')
            return !s.len || s.ptr[0] == '"' ||
                   (s.ptr[0] == '}' && (depth || !str_trim(str_sub(s, 1, s.len)).len));
        depth += c == '[';
        depth -= c == ']';
        if (!depth || !s.len)
            return !s.len; /* a whole document, or all that is looked at */
        if (s.ptr[0] == '"')
            return true;
        if (s.ptr[0] == '{' || s.ptr[0] == '[' || (s.ptr[0] == ']' && c != ','))
            continue;
        if (c == ']') {
            if (s.ptr[0] != ',')
                return false;
            continue;
        }
        end = scalar_end(s);
        if (!end)
            return false;
        s = str_trim(str_sub(s, (size_t)(end - s.ptr), s.len));
        if (s.len && s.ptr[0] != ',' && s.ptr[0] != ']')
            return false;
    }
    return true;
}

static int sniff(struct str body, struct found *ret, struct err *e)
{
    static const struct found jfr = { KIND_INGEST, FORMAT_JFR, "jfr", false };
    static const struct found pprof = { KIND_INGEST, FORMAT_PPROF, "pprof", false };
    static const struct found json = { KIND_JSON, FORMAT_GROUPS, "json", false };
    static const struct found perf = { KIND_PERF_SCRIPT, FORMAT_GROUPS, "perf script", false };
    static const struct found austin = { KIND_AUSTIN, FORMAT_GROUPS, "austin", false };
    static const struct found folded = { KIND_INGEST, FORMAT_GROUPS, "folded", true };
    static const struct found binaries = { KIND_INGEST, FORMAT_PPROF, "pprof", true };
    struct str head = str_sub(body, 0, SNIFF_BYTES), text = str_trim(head);

    if (!body.len)
        return err_set(e, ERR_INPUT, "the file is empty");
    if (known_but_not_read(body, e))
        return e->code;
    if (str_starts(text, STR("\xef\xbb\xbf")))
        text = str_trim(str_sub(text, 3, text.len));
    if (str_starts(body, STR("FLR\0")))
        *ret = jfr;
    else if (is_json(text))
        *ret = json;
    else if (looks_like_pprof(body) || legacy_sniff(body))
        *ret = pprof;
    else if (perf_script_sniff(body))
        *ret = perf;
    else if (austin_sniff(body))
        *ret = austin;
    else if (binary(head) && !str_starts(body, STR("\xff\xfe")) &&
             !str_starts(body, STR("\xfe\xff")))
        *ret = binaries; /* not text; pprof's fields may come in any order */
    else
        *ret = folded;
    return 0;
}

int upload_sniff(struct str body, const char **ret_format, struct err *e)
{
    struct found f;

    if (sniff(body, &f, e))
        return e->code;
    *ret_format = f.name;
    return 0;
}

static bool in_json(struct str head, const char *key)
{
    return str_contains(head, str_c(key));
}

static bool is_page(struct str text)
{
    static const char *const begins[] = { "<html", "<head", "<!doctype" };

    for (size_t i = 0; i < ARRAY_LEN(begins); i++)
        if (str_eq_nocase(str_sub(text, 0, strlen(begins[i])), str_c(begins[i])))
            return true;
    return false;
}

static const char *json_hint(struct str head)
{
    if (in_json(head, "\"resourceProfiles\""))
        return OTLP;
    if (in_json(head, "speedscope") || in_json(head, "\"shared\""))
        return "this looks like speedscope: send it with format=speedscope";
    return "this is JSON: speedscope is sent with format=speedscope; .cpuprofile, .heapprofile and "
           "Firefox's are uploaded to /api/v1/adhoc";
}

static const char *hint(enum format taken, struct str body, struct err *ret_known)
{
    struct found f;

    if (!body.len || (str_starts(body, STR("--")) && !str_starts(body, STR("--- "))))
        return NULL; /* a form names its parts */
    if (sniff(body, &f, ret_known))
        return ret_known->text;
    if (is_page(str_trim(str_sub(body, 0, SNIFF_BYTES))))
        return "this is a page of HTML: perhaps an error message was fetched in place of a profile";
    if (f.kind == KIND_JSON)
        return taken == FORMAT_SPEEDSCOPE ? NULL : json_hint(str_sub(body, 0, SNIFF_BYTES));
    if (f.kind == KIND_PERF_SCRIPT)
        return "this looks like the output of perf script: upload it to /api/v1/adhoc, or fold it "
               "first";
    if (f.kind == KIND_AUSTIN)
        return "this looks like Austin's text: upload it to /api/v1/adhoc, or send it as folded "
               "stacks with sampleRate=1000000";
    if (f.format == taken || (f.guess && f.format == FORMAT_PPROF) ||
        (f.guess && (taken == FORMAT_LINES || taken == FORMAT_TRIE || taken == FORMAT_TREE)))
        return NULL;
    if (f.format == FORMAT_JFR)
        return "this is a JFR recording: send it with format=jfr";
    if (f.format == FORMAT_PPROF)
        return "this looks like pprof: send it with format=pprof";
    return "this looks like text: folded stacks are sent without format=";
}

void upload_hint(enum format taken, struct str body, const struct limits *l, struct err *e)
{
    const struct inflate_limits inflate = limits_inflate(l);
    struct err known, was = *e;
    const char *more;
    struct buf tmp;

    if (e->code != ERR_INPUT || taken == FORMAT_MULTIPART)
        return;
    buf_init(&tmp, (size_t)l->inflated_bytes);
    if (gzip_sniff(body) && !gunzip(body, &inflate, &tmp, &known))
        body = buf_str(&tmp);
    more = gzip_sniff(body) ? NULL : hint(taken, body, &known);
    if (more)
        (void)err_set(e, was.code, "%s; %s", was.text, more);
    buf_deinit(&tmp);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *const root_names[] = {
    "traceEvents", "resourceProfiles", "shared",  "profiles", "meta",    "nodes",
    "head",        "timestamps",       "profile", "mode",     "version", "frames"
};
enum {
    ROOT_TRACE,
    ROOT_OTLP,
    ROOT_SHARED,
    ROOT_PROFILES,
    ROOT_META,
    ROOT_NODES,
    ROOT_HEAD,
    ROOT_TIMESTAMPS,
    ROOT_PROFILE,
    ROOT_MODE,
    ROOT_VERSION,
    ROOT_FRAMES,
    ROOTS,
};

/* The members of an object, where they are: none where it is not one. */
static int members(struct str text, const char *const *names, size_t n, struct str *ret,
                   struct err *e)
{
    struct jpull_obj obj;
    struct jpull j;
    size_t which;

    jpull_init_checked(&j, text, NULL, e);
    if (text.len && jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, n, &which))
            (void)(which < n ? jpull_value(&j, &ret[which]) : jpull_skip(&j));
    return j.bad ? e->code : 0;
}

static int push_cpuprofile(struct str text, const struct limits *l, struct push *push,
                           const char **ret_format, struct err *e)
{
    *ret_format = "cpuprofile";
    return v8_cpuprofile_push(text, l, push, e);
}

static int push_json_root(const struct ingest *in, struct str text, const struct limits *l,
                          struct push *push, const char **ret_format, struct err *e)
{
    static const char *const size_name[] = { "selfSize" }, *const meta_name[] = { "meta" };
    struct str root[ROOTS] = { STR_NULL }, size = STR_NULL, inner = STR_NULL;

    if (members(text, root_names, ROOTS, root, e) ||
        members(root[ROOT_HEAD], size_name, 1, &size, e) ||
        members(root[ROOT_PROFILE], meta_name, 1, &inner, e))
        return e->code;
    if (text.ptr[0] == '[' || root[ROOT_TRACE].len)
        return err_set(e, ERR_INPUT, TRACE);
    if (root[ROOT_OTLP].len)
        return err_set(e, ERR_INPUT, OTLP);
    if (root[ROOT_SHARED].len && root[ROOT_PROFILES].len && !root[ROOT_META].len) {
        *ret_format = "speedscope";
        return speedscope_push(text, in, l, push, e);
    }
    if (push_base(push, in, in->name.app, l, e))
        return e->code;
    if (root[ROOT_NODES].len || (root[ROOT_HEAD].len && root[ROOT_TIMESTAMPS].len))
        return push_cpuprofile(text, l, push, ret_format, e);
    if (size.len) {
        *ret_format = "heapprofile";
        return v8_heapprofile_push(text, l, push, e);
    }
    if (root[ROOT_HEAD].len)
        return push_cpuprofile(text, l, push, ret_format, e);
    if (root[ROOT_META].len || inner.len) {
        *ret_format = "firefox";
        return firefox_push(text, l, push, e);
    }
    if (root[ROOT_MODE].len && root[ROOT_VERSION].len && root[ROOT_FRAMES].len)
        return err_set(e, ERR_INPUT, STACKPROF);
    return err_set(e, ERR_INPUT,
                   "this JSON is not a profile of a known kind (speedscope, .cpuprofile, "
                   ".heapprofile, Firefox)");
}

static int push_json(const struct ingest *in, struct str text, const struct limits *l,
                     struct push *push, const char **ret_format, struct err *e)
{
    if (str_starts(text, STR("\xef\xbb\xbf")))
        text = str_sub(text, 3, text.len);
    text = str_trim(text);
    /* Deep: the old .cpuprofile nests its call tree. */
    if (jpull_check(text, JPULL_DEEPEST, e))
        return e->code;
    return push_json_root(in, text, l, push, ret_format, e);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int push_plain(const struct decode_job *job, struct str body, const char **ret_format,
                      struct err *e)
{
    const struct limits *l = job->l;
    struct push *push = job->push;
    struct ingest as = *job->in;
    struct decode_job found_job = *job;
    struct found f;
    int rc;

    if (sniff(body, &f, e))
        return e->code;
    *ret_format = f.name;
    as.format = f.format;
    found_job.in = &as;
    switch (f.kind) {
    case KIND_INGEST:
        rc = formats_decode(&found_job, body, e);
        if (rc == ERR_INPUT && f.guess)
            return err_wrap(e,
                            "a file of no known kind (pprof, JFR, speedscope, .cpuprofile, "
                            ".heapprofile, Firefox, perf script, Austin, folded text); read as %s",
                            f.name);
        return rc;
    case KIND_JSON:
        return push_json(job->in, body, l, push, ret_format, e);
    case KIND_PERF_SCRIPT:
    case KIND_AUSTIN:
        break;
    }
    if (push_base(push, job->in, job->in->name.app, l, e))
        return e->code;
    return f.kind == KIND_AUSTIN ? austin_push(body, l, push, e)
                                 : perf_script_push(body, l, push, e);
}

int upload_push(const struct decode_job *job, struct str body, const char **ret_format,
                struct err *e)
{
    const struct inflate_limits inflate = limits_inflate(job->l);
    struct buf tmp;
    int rc = 0;

    buf_init(&tmp, (size_t)job->l->inflated_bytes);
    if (gzip_sniff(body)) {
        rc = gunzip(body, &inflate, &tmp, e);
        body = buf_str(&tmp);
        if (!rc && gzip_sniff(body)) /* the decoders would unpack it once more */
            rc = err_set(e, ERR_INPUT, "gzip inside gzip: unpack the file once");
    }
    if (!rc)
        rc = push_plain(job, body, ret_format, e);
    buf_deinit(&tmp);
    return rc;
}

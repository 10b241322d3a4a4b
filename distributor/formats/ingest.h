/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest.h: the query parameters of POST /ingest, checked (proto/WIRE.md, "Ingest
 * parameters", "Format detection").
 */
#ifndef DISTRIBUTOR_FORMATS_INGEST_H
#define DISTRIBUTOR_FORMATS_INGEST_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "distributor/formats/appname.h"
#include "distributor/formats/limits.h"

enum format {
    FORMAT_GROUPS, /* folded text: stack, blank, count */
    FORMAT_LINES,  /* one stack per line, each counts 1 */
    FORMAT_PPROF,
    FORMAT_MULTIPART, /* pprof and its configuration as multipart/form-data */
    FORMAT_TRIE,
    FORMAT_TREE,
    FORMAT_JFR,
    FORMAT_SPEEDSCOPE,
    FORMATS_LEN,
};
const char *format_name(enum format f);

/* The parameters as they came, percent-decoded; {NULL, 0} where absent. */
struct ingest_raw {
    struct str name, from, until, sample_rate, spy_name, format, content_type;
};
struct ingest {
    struct ingest_raw raw; /* the write id is made of these */
    struct appname name;
    bool has_from, has_until;
    int64_t from_ms, until_ms;
    uint64_t sample_rate; /* 0 = values are not counts of samples */
    bool rate_unread;     /* sampleRate= is not a number: sample_rate is the default */
    struct str spy;       /* "unknown" if absent */
    enum format format;
};

/* Slices point into *raw's or come from the arena. ERR_INPUT, ERR_LIMIT. */
NODISCARD int ingest_parse(const struct ingest_raw *raw, const struct limits *l, int64_t now_ms,
                           struct arena *a, struct ingest *ret, struct err *e);
/* First match wins: format=, then Content-Type, then folded text. */
enum format format_detect(struct str format, struct str content_type);

#endif

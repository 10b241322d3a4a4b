/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h: what one push may cost, checked before or while it is decoded. Over a limit is
 * ERR_LIMIT, unless the comment says that the excess is cut and counted. Options: options.c.
 */
#ifndef DISTRIBUTOR_FORMATS_LIMITS_H
#define DISTRIBUTOR_FORMATS_LIMITS_H

#include "common/base/base.h"
#include "common/base/compress/compress.h"
#include "distributor/formats/appname.h"

struct limits {
    uint64_t inflated_bytes; /* of one gzip layer */
    uint64_t inflated_ratio; /* output : input beyond 1 MiB */
    uint64_t decode_bytes;   /* memory of one push, from unzipped body to packed request */
    uint64_t samples;
    uint64_t stacks;      /* that differ, of one push: further ones end in [overflow], counted */
    uint64_t frames_keep; /* more: the middle is collapsed to one mark, counted */
    uint64_t frames;      /* of one stack, inlined ones included */
    uint64_t text_frames; /* the same in text formats, where a frame costs two bytes */
    uint64_t lines_per_location;
    uint64_t labels_per_sample;
    uint64_t symbol_keep_bytes; /* longer: the last so many bytes are kept, counted */
    uint64_t symbol_bytes;
    uint64_t series;      /* of one push; label sets beyond go to [overflow], counted */
    uint64_t label_names; /* of one series */
    uint64_t label_name_bytes;
    uint64_t label_value_bytes;
    uint64_t
        exemplars;   /* ids of spans and traces times types of one push; more: left out, counted */
    uint64_t leaves; /* a long push is cut into so many parts at most */
};

/* The defaults as a struct, for tests, fuzz targets and benchmarks. */
struct limits limits_default(void);

static inline struct inflate_limits limits_inflate(const struct limits *l)
{
    return (struct inflate_limits){ .bytes_max = (size_t)l->inflated_bytes,
                                    .ratio_max = (uint32_t)MIN(l->inflated_ratio, UINT32_MAX) };
}

static inline struct appname_limits limits_appname(const struct limits *l)
{
    return (struct appname_limits){ .labels_max = (size_t)l->label_names,
                                    .name_bytes_max = (size_t)l->label_name_bytes,
                                    .value_bytes_max = (size_t)l->label_value_bytes };
}

#endif

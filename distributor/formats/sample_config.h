/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_config.h: the sample_type_config part of a multipart push: what a sender says of its
 * sample types. Of the five keys two change what is stored (display-name, cumulative); units,
 * aggregation and sampled follow from the type itself, but are checked for their JSON type.
 *
 * Format: grafana/pyroscope at 3fe6a457a320 and its tag v0.37.2 (proto/FORMATS.md,
 * "sample_type_config").
 */
#ifndef DISTRIBUTOR_FORMATS_SAMPLE_CONFIG_H
#define DISTRIBUTOR_FORMATS_SAMPLE_CONFIG_H

#include "common/base/arena.h"
#include "common/base/err.h"

struct sample_config_row {
    struct str type;
    struct str display_name; /* {NULL, 0} if not given */
    bool cumulative;
};
struct sample_config {
    struct str series_name; /* of all types, where the sender says it (Push); else empty */
    const struct sample_config_row *rows;
    size_t len;
    bool file_addresses; /* addresses are those of the file: mappings only name it (Parca) */
};
#define SAMPLE_CONFIG_ROWS_MAX 256

/* An empty text is an empty configuration. ERR_INPUT, ERR_LIMIT. */
NODISCARD int sample_config_parse(struct str json, struct arena *a, struct sample_config *ret,
                                  struct err *e);
/* The row of a sample type, '-' and '_' being the same (.NET), or NULL. */
const struct sample_config_row *sample_config_find(const struct sample_config *c, struct str type);

#endif

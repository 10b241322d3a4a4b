/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.h: the section "cold": where the cold tier is, what is moved there, and when.
 */
#ifndef COMMON_COLD_CONF_H
#define COMMON_COLD_CONF_H

#include "common/conf/conf.h"
#include "common/object/object.h"

struct cold_conf {
    const char *url; /* "": off */
    const char *s3_endpoint, *s3_region, *s3_credentials_file, *s3_ca_file;
    bool s3_path_style;
    bool take_over;
    uint64_t after_ms;
    uint64_t interval_ms;
    uint64_t cache_bytes;
    uint64_t backup_interval_ms;
    uint64_t backups;
};
extern const struct conf_table cold_options;

/* A handle of the object store that cold.url names. `stop` as in object_s3_opts. ERR_CONFIG. Any
 * thread. */
NODISCARD int cold_conf_open(const struct cold_conf *c, struct env *env, const atomic_bool *stop,
                             struct object_store **ret, struct err *e);

/* Would it open? Makes nothing and sends nothing. ERR_CONFIG. */
NODISCARD int cold_conf_check(const struct cold_conf *c, struct env *env, struct err *e);

#endif

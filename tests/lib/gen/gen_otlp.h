/* SPDX-License-Identifier: Apache-2.0
 *
 * gen_otlp.h: requests to export profiles as a model, written in every layout and both encodings by
 * code that shares nothing with the decoder, and the rows that must come out of it.
 */
#ifndef TESTS_LIB_GEN_GEN_OTLP_H
#define TESTS_LIB_GEN_GEN_OTLP_H

#include "common/base/prng.h"
#include "common/base/vec.h"
#include "distributor/otlp/otlp.h"

#define GEN_OTLP_STACK  8
#define GEN_OTLP_VALUES 4
#define GEN_OTLP_ATTRS  3
#define GEN_OTLP_CANARY 3 /* total of gen_otlp_canary */

/* How it is written. */
#define GEN_OTLP_UNPACKED   1u /* each number of a list by itself */
#define GEN_OTLP_DICT_FIRST 2u
#define GEN_OTLP_SNAKE      4u /* JSON: original names */
#define GEN_OTLP_NUMBERS    8u /* JSON: 64-bit numbers as numbers, ids in base64 */

struct gen_otlp_attr {
    char key[24], text[24];
    int64_t number;
    bool is_number;
};
struct gen_otlp_mapping { /* number i has the name lib<i>.so */
    uint64_t start, limit, offset;
    bool build_id; /* "id<i>" */
};
struct gen_otlp_location { /* function i has the name fn<i> */
    uint32_t functions[3], lines;
    uint32_t mapping; /* 0: none, else its number */
    uint64_t address;
};
struct gen_otlp_link {
    uint8_t trace[16], span[8];
};
struct gen_otlp_sample {
    uint32_t stack[GEN_OTLP_STACK], depth; /* locations, leaf first */
    uint32_t attrs[GEN_OTLP_ATTRS], attrs_len;
    uint32_t link; /* 0: none, else its number */
    int64_t values[GEN_OTLP_VALUES];
    uint32_t values_len;
    uint64_t times[GEN_OTLP_VALUES];
    uint32_t times_len;
};
struct gen_otlp_profile {
    const char *type, *unit, *period_type, *period_unit; /* period_type NULL: none */
    int64_t period;
    int64_t time_ns, duration_ns;
    uint8_t id[16];
    bool has_id;
    uint32_t resource[GEN_OTLP_ATTRS], resource_len, scope[GEN_OTLP_ATTRS], scope_len;
    const char *service; /* in the resource; NULL: none */
    VEC(struct gen_otlp_sample) samples;
};
struct gen_otlp {
    uint32_t functions;
    bool literal; /* location 0 is a real one, as canaries have it */
    VEC(struct gen_otlp_attr) attrs;
    VEC(struct gen_otlp_mapping) mappings;
    VEC(struct gen_otlp_location) locations;
    VEC(struct gen_otlp_link) links;
    VEC(struct gen_otlp_profile) profiles;
};

void gen_otlp_random(struct gen_otlp *g, struct prng *p);
void gen_otlp_canary(struct gen_otlp *g, uint64_t time_ns);
/* Appends a copy of profile `at`. */
struct gen_otlp_profile *gen_otlp_copy(struct gen_otlp *g, size_t at);
void gen_otlp_free(struct gen_otlp *g);
void gen_otlp_proto(const struct gen_otlp *g, enum otlp_layout layout, unsigned how,
                    struct buf *out);
void gen_otlp_json(const struct gen_otlp *g, enum otlp_layout layout, unsigned how,
                   struct buf *out);
/* What batch_keep_rows says of it. */
void gen_otlp_rows(const struct gen_otlp *g, struct buf *out);

#endif

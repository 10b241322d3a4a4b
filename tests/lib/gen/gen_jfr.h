/* SPDX-License-Identifier: Apache-2.0
 *
 * gen_jfr.h: a writer of JFR files that shares no code with the reader; and random recordings with
 * what a correct reader must make of them, worked out event by event.
 *
 *   struct gen_jfr g;
 *   gen_jfr_init(&g, &prng);
 *   gen_jfr_chunk(&g);
 *   struct gen_jfr_frame leaf = { gen_jfr_method(&g, "a/B", "run"), 7 };
 *   gen_jfr_event(&g, &(struct gen_jfr_event){ .is = GEN_JFR_CPU,
 *                                              .trace = gen_jfr_trace(&g, &leaf, 1) });
 *   gen_jfr_finish(&g);                      g.file is the recording so far
 *
 * What a reader must not care for is drawn at random: numbers of classes, order of fields, unknown
 * fields and classes, encodings of strings, keys, which checkpoint holds what, padding.
 */
#ifndef TESTS_LIB_GEN_GEN_JFR_H
#define TESTS_LIB_GEN_GEN_JFR_H

#include "common/base/buf.h"
#include "common/base/prng.h"
#include "common/base/vec.h"

#define GEN_JFR_CHECKPOINTS 4
#define GEN_JFR_POOLS       8
#define GEN_JFR_CLASSES     48

enum gen_jfr_is {
    GEN_JFR_CPU,
    GEN_JFR_NATIVE,
    GEN_JFR_CPU_TIME,
    GEN_JFR_WALL,
    GEN_JFR_IN_TLAB,
    GEN_JFR_OUTSIDE_TLAB,
    GEN_JFR_ALLOC_SAMPLE,
    GEN_JFR_MONITOR,
    GEN_JFR_PARK,
    GEN_JFR_NATIVE_LOCK,
    GEN_JFR_LIVE,
    GEN_JFR_MALLOC,
    GEN_JFR_EVENTS,
};
struct gen_jfr_frame {
    uint64_t method; /* key */
    int32_t line;
};
struct gen_jfr_event {
    enum gen_jfr_is is;
    uint64_t trace; /* key */
    uint64_t state; /* key */
    int64_t value;  /* bytes, ticks, samples */
    uint64_t context, span, span_name, trace_hi, trace_lo;
    uint64_t time; /* ticks; 0: any */
};

struct gen_jfr {
    struct prng *p;
    struct buf file;
    /* Of the next chunk; the values of gen_jfr_init are those of an ordinary one. */
    int64_t start_ns, duration_ns;
    uint64_t ticks_per_s;
    int encoding; /* of all strings: 2 to 5, or 0 for any */
    size_t checkpoints;
    /* The chunk being made. */
    uint64_t class_ids[GEN_JFR_CLASSES];
    uint8_t order[GEN_JFR_CLASSES][16]; /* of the fields */
    uint64_t keys[GEN_JFR_POOLS];       /* the last one given out */
    struct buf pools[GEN_JFR_CHECKPOINTS][GEN_JFR_POOLS];
    uint64_t counts[GEN_JFR_CHECKPOINTS][GEN_JFR_POOLS];
    struct buf events;
    size_t half; /* of events, which stand before the metadata */
};

void gen_jfr_init(struct gen_jfr *g, struct prng *p);
void gen_jfr_deinit(struct gen_jfr *g);
void gen_jfr_chunk(struct gen_jfr *g);
/* Keys, which may be anything but 0. */
uint64_t gen_jfr_method(struct gen_jfr *g, const char *class, const char *method);
/* n methods that share the constants of their names. */
void gen_jfr_methods(struct gen_jfr *g, const char *class, const char *method, uint64_t *keys,
                     size_t n);
uint64_t gen_jfr_trace(struct gen_jfr *g, const struct gen_jfr_frame *leaf_first, size_t n);
uint64_t gen_jfr_state(struct gen_jfr *g, const char *name);
void gen_jfr_setting(struct gen_jfr *g, const char *name, const char *value);
/* The period of jdk.ExecutionSample from that time on. */
void gen_jfr_period(struct gen_jfr *g, uint64_t time, const char *value);
void gen_jfr_event(struct gen_jfr *g, const struct gen_jfr_event *e);
void gen_jfr_noise(struct gen_jfr *g); /* an unknown event */
void gen_jfr_finish(struct gen_jfr *g);

void gen_jfr_varint(struct buf *b, uint64_t v);

/* A random recording of several chunks with its labels (a LabelsSnapshot). rows: as dist_rows
 * writes them, for sampleRate=0. */
struct gen_jfr_random {
    struct buf file, labels, rows;
    uint64_t samples, no_stack;
};
void gen_jfr_random(struct prng *p, size_t events, struct gen_jfr_random *ret);
void gen_jfr_random_deinit(struct gen_jfr_random *r);

#endif

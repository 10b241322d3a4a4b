/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr: a recording, chunk by chunk.
 *
 *   chunk = header of 68 bytes | events, among them the metadata and the checkpoints
 *
 *    0 "FLR\0"   4 u16 major, 6 u16 minor   8 size   16 last checkpoint   24 metadata
 *   32 start ns  40 duration ns  48 start ticks  56 ticks per second  64 state  66 u16 flags
 *
 * A chunk is complete in itself: its classes, constants and numbers mean nothing in the next one.
 * Only the stacks and the rows are kept from chunk to chunk (jfr_events.c).
 *
 *   metadata ─> classes ─> programs ─┬─> pools (one pass along the checkpoints, offsets only)
 *                                    └─> events (one pass) ─> rows ─> series, at the end of all
 *                                           trace ─> node, at its first use
 *
 * A chunk that is cut or malformed refuses the whole body: half a recording with a 200 would be
 * a silent loss, and its sender has the rest. A recording that its writer never finished is another
 * matter, since no more of it exists: its complete chunks are taken, the rest is counted, and the
 * reply says so (X-Embertree-Left-Out). How writers leave it, when they or their JVM die:
 *
 *   async-profiler   size 1 GiB, both offsets 0, until the end of the chunk
 *   JDK              size 0, or state 255: its header is just being written
 *   JDK, flushed     state 1..254: size and offsets are those of the last flush, what follows was
 *                    not flushed
 *
 * Its constants stand at its end, so an unfinished chunk itself cannot be read.
 *
 * Time and memory are bounded by the bytes of the body: everything that a number of the body makes
 * us keep is charged before (jfr_charge), and nothing is read more than twice but constants, which
 * are read again when they are asked for; what that comes to is bounded (read_left).
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR chunk").
 */
#include "distributor/formats/jfr/jfr_impl.h"

#define NS_PER_S          INT64_C(1000000000)
#define YEAR_1971_S       INT64_C(31536000)
#define YEAR_1990_S       INT64_C(631152000)
#define AHEAD_S           INT64_C(86400)
#define EVENT_BYTES_MAX   4096 /* of the setting "event" */
#define FLAG_COMPRESSED   1
#define MAJOR             2
#define STATE_WRITING     255 /* of the header */
#define UNIX_1970_REACHES (INT64_MAX / 2)

bool jfr_charge(struct jfr *j, size_t n, struct err *e)
{
    if (n > j->l->decode_bytes - j->bytes) {
        err_set(e, ERR_LIMIT,
                "decoding takes more than %" PRIu64 " bytes of memory: push shorter recordings or "
                "raise distributor.decode_bytes",
                j->l->decode_bytes);
        return false;
    }
    j->bytes += n;
    return true;
}

static uint64_t be(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static int bad_header(struct err *e, const char *what, uint64_t value)
{
    return err_set(e, ERR_INPUT, "%s is %" PRId64, what, (int64_t)value);
}

static int read_header(struct jfr_chunk *c, struct str left, struct err *e)
{
    const uint8_t *p = (const uint8_t *)left.ptr;

    if (left.len < JFR_HEADER_BYTES)
        return err_set(e, ERR_INPUT, "%zu bytes, less than a header", left.len);
    if (memcmp(p, "FLR\0", 4) != 0)
        return err_set(e, ERR_INPUT, "no JFR file: it does not start with FLR");
    if (be(p + 4, 2) != MAJOR)
        return err_set(e, ERR_INPUT, "version %u.%u, want 2: record with JDK 11 or newer",
                       (unsigned)be(p + 4, 2), (unsigned)be(p + 6, 2));
    uint64_t size = be(p + 8, 8);
    if (size < JFR_HEADER_BYTES || size > left.len)
        return bad_header(e, "cut or never finished: its size", size);
    c->base = p;
    c->size = (size_t)size;
    c->checkpoint = be(p + 16, 8);
    if (c->checkpoint < JFR_HEADER_BYTES || c->checkpoint >= size)
        return bad_header(e, "the offset of constants", c->checkpoint);
    c->metadata = be(p + 24, 8);
    if (c->metadata < JFR_HEADER_BYTES || c->metadata >= size)
        return bad_header(e, "the offset of metadata", c->metadata);
    c->start_ns = (int64_t)be(p + 32, 8);
    c->duration_ns = (int64_t)be(p + 40, 8);
    c->ticks_per_s = be(p + 56, 8);
    if (c->ticks_per_s == 0 || c->ticks_per_s > INT64_MAX)
        return bad_header(e, "ticks per second", c->ticks_per_s);
    if (!(be(p + 66, 2) & FLAG_COMPRESSED))
        return err_set(e, ERR_INPUT, "its integers are not compressed, which no known writer does");
    return 0;
}

/* The time of the recording is that of its first chunk, up to the end of its last. An unset clock
 * is no time; an absurd one only counts where the URL says nothing better. */
static int take_time(struct jfr *j, int64_t now_ms, struct err *e)
{
    const struct jfr_chunk *c = &j->chunk;
    struct push *push = j->push;
    int64_t s = c->start_ns / NS_PER_S;

    push->has_identity |= c->start_ns % NS_PER_S != 0;
    if (c->start_ns < 0 || (s >= YEAR_1971_S && s < YEAR_1990_S) || s > now_ms / 1000 + AHEAD_S) {
        if (j->in->has_from || j->in->has_until)
            return 0;
        return err_set(e, ERR_INPUT, "its start is before 1990 or more than a day ahead");
    }
    if (s < YEAR_1971_S)
        return 0;
    int64_t end = c->start_ns;
    if (c->duration_ns > 0 && c->duration_ns < UNIX_1970_REACHES - c->start_ns)
        end += c->duration_ns;
    if (!push->has_time) {
        push->has_time = true;
        push->time_ns = c->start_ns;
        push->duration_ns = 0;
    }
    push->duration_ns = MAX(push->duration_ns, end - push->time_ns);
    return 0;
}

static void chunk_deinit(struct jfr_chunk *c)
{
    buf_deinit(&c->text);
    vec_free(&c->strings);
    vec_free(&c->classes);
    vec_free(&c->fields);
    vec_free(&c->ops);
    vec_free(&c->progs);
    vec_free(&c->entries);
    map_u64_deinit(&c->class_ids);
    for (size_t i = 0; i < c->pools.len; i++)
        map_u64_deinit(&c->pools.ptr[i].keys);
    vec_free(&c->pools);
}

static int read_chunk(struct jfr *j, struct str left, int64_t now_ms, struct err *e)
{
    size_t before = j->bytes;

    if (read_header(&j->chunk, left, e) || take_time(j, now_ms, e) || jfr_meta_read(j, e) ||
        jfr_pools_read(j, e))
        return e->code;
    size_t constants = j->bytes - before;
    if (jfr_events_read(j, e))
        return e->code;
    jfr_pools_reset(&j->chunk);
    j->bytes -= constants;
    return 0;
}

/* Does a chunk begin here that its writer did not finish? */
static bool unfinished(struct str left)
{
    const uint8_t *p = (const uint8_t *)left.ptr;

    return left.len >= JFR_HEADER_BYTES && memcmp(p, "FLR\0", 4) == 0 && be(p + 4, 2) == MAJOR &&
           (be(p + 8, 8) == 0 || be(p + 16, 8) == 0 || be(p + 24, 8) == 0 ||
            p[64] == STATE_WRITING);
}

/* Is what follows the chunk just read what its writer had not flushed yet? */
static bool unflushed(const struct jfr_chunk *c, struct str left)
{
    uint8_t state = c->base[64];

    return state > 0 && state < STATE_WRITING && left.len && !str_starts(left, STR("FLR"));
}

static int read_all(struct jfr *j, struct str recording, int64_t now_ms, struct err *e)
{
    size_t at = 0, n = 0;

    do {
        struct str left = str_sub(recording, at, recording.len);
        if (++n > JFR_CHUNKS_MAX)
            return err_set(e, ERR_LIMIT, "jfr: more than %d chunks", JFR_CHUNKS_MAX);
        if (n == 1 && unfinished(left))
            return err_set(e, ERR_INPUT,
                           "jfr: nothing of these %zu bytes is finished: its writer died, or still "
                           "writes; push recordings that were stopped or dumped",
                           left.len);
        if (n > 1 && (unfinished(left) || unflushed(&j->chunk, left))) {
            j->push->drops[DROP_UNFINISHED] += left.len;
            return 0;
        }
        if (read_chunk(j, left, now_ms, e))
            return err_wrap(e, "jfr: chunk %zu, at byte %zu", n, at);
        at += j->chunk.size;
    } while (at < recording.len);
    return 0;
}

/* A series of async-profiler says by which event it was sampled. */
static int base_event(struct jfr *j, struct err *e)
{
    struct labels *base = &j->push->base;
    struct str event = buf_str(&j->event), name = STR("jfr_event");

    if (event.len == 0 || event.len > j->l->label_value_bytes || !str_utf8_valid(event) ||
        base->len >= j->l->label_names || labels_get(base, name).ptr)
        return 0;
    struct str kept = arena_strdup(j->push->arena, event);
    return kept.ptr ? labels_set(base, j->push->arena, name, kept, e) : push_full(j->push, e);
}

int jfr_push(const struct decode_job *job, struct str recording, struct str labels, struct err *e)
{
    const struct ingest *in = job->in;
    const struct limits *l = job->l;
    struct push *push = job->push;
    struct jfr j = { .l = l,
                     .in = in,
                     .push = push,
                     .seed = push->stacks.seed,
                     .period = in->sample_rate ? (uint64_t)NS_PER_S / in->sample_rate : 1,
                     .read_left = JFR_READ_LEAST + JFR_READ_TIMES * (uint64_t)recording.len };
    int rc = 0;

    if (push_base(push, in, in->name.app, l, e))
        return e->code;
    if (recording.len > UINT32_MAX)
        return err_set(e, ERR_LIMIT, "jfr: a recording of over 4 GiB");
    buf_init(&j.name, (size_t)l->symbol_bytes);
    buf_init(&j.tmp, 2 * (size_t)l->symbol_bytes + 64);
    buf_init(&j.event, EVENT_BYTES_MAX);
    buf_init(&j.chunk.text, SIZE_MAX);
    paths_init(&j.paths, push, l);
    j.path = arena_alloc(push->arena, (size_t)l->frames * sizeof(*j.path));
    if (!j.path)
        rc = push_full(push, e);
    if (!rc && labels.len)
        rc = jfr_labels_read(&j, labels, e);
    if (!rc)
        rc = read_all(&j, recording, job->now_ms, e);
    if (!rc)
        rc = base_event(&j, e);
    if (!rc)
        rc = jfr_series(&j, e);
    chunk_deinit(&j.chunk);
    jfr_labels_deinit(&j.labels);
    vec_free(&j.tags);
    vec_free(&j.rows);
    vec_free(&j.periods);
    map_u64_deinit(&j.tag_ids);
    map_u64_deinit(&j.row_ids);
    paths_deinit(&j.paths);
    buf_deinit(&j.name);
    buf_deinit(&j.tmp);
    buf_deinit(&j.event);
    return rc;
}

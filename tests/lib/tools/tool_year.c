/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_year BODY FOLDED DAYS_BACK: an hour of the simulated year, so many days back: as the body
 * of an import into BODY, and what the engine makes of the same hour in process, as folded stacks,
 * into FOLDED. Prints the first and the last millisecond and the total: "start end total".
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/wr.h"
#include "common/model/slot.h"
#include "tests/lib/gen/year_bed.h"

#define PODS    4
#define MINUTES 60

static void write_file(const char *path, struct str bytes)
{
    FILE *f = fopen(path, "we");

    CHECK(f && fwrite(bytes.ptr, 1, bytes.len, f) == bytes.len && fclose(f) == 0);
}

static void add_stack(const struct stacks *s, uint32_t node, uint64_t value, struct buf *out)
{
    uint32_t path[1024], n = 0;

    for (; node && n < ARRAY_LEN(path); node = s->node_parent.ptr[node - 1])
        path[n++] = s->frame_func.ptr[s->node_frame.ptr[node - 1]];
    while (n--) {
        buf_add_str(out, stacks_string_at(s, path[n]));
        buf_add_c(out, n ? '\x1f' : ' ');
    }
    buf_addf(out, "%" PRIu64 "\n", value);
}

/* A message per 10 minutes. */
static void make_body(const struct year_opts *o, uint32_t from, const char *path)
{
    struct year *y = year_new(o);
    struct buf body, message;

    buf_init(&body, GIB);
    buf_init(&message, GIB);
    for (uint32_t at = from; at < from + MINUTES * 12; at += 120) {
        year_begin(y);
        for (uint32_t i = 0; i < 10; i++)
            for (uint32_t pod = 0; pod < o->pods; pod++)
                year_add(y, pod, at + i * 12, 12);
        struct store_write w = *year_end(y);
        w.tenant = STR("");
        buf_reset(&message);
        year_pack(&w, 0, &message);
        wr_varint(&body, message.len);
        buf_add_str(&body, buf_str(&message));
    }
    write_file(path, buf_str(&body));
    buf_deinit(&body);
    buf_deinit(&message);
    year_free(y);
}

int main(int argc, char **argv)
{
    struct timespec now;
    uint64_t back;

    if (argc != 4 || !str_u64(str_c(argv[3]), &back)) {
        fprintf(stderr, "usage: tool_year BODY FOLDED DAYS_BACK\n");
        return 2;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t today = slot_of_ms((int64_t)now.tv_sec * 1000);
    struct year_opts o = { .seed = 5, .kind = YEAR_NODE, .pods = PODS, .stacks = 2000 };
    o.start = (today / YEAR_DAY_SLOTS - (uint32_t)back) * YEAR_DAY_SLOTS;
    uint32_t from = o.start + 12 * 720, to = from + MINUTES * 12;
    struct year_bed_opts bo = { .slot = today, .retention = true };
    struct year *y = year_new(&o);
    struct year_bed b;
    struct stacks st;
    struct buf text;

    make_body(&o, from, argv[1]);
    year_bed_open(&b, &bo);
    year_bed_import(&b, y, from, to, PODS);
    stacks_init(&st, GIB, 3);
    struct store_merge m = { .stacks = &st };
    year_bed_ask(&b, "{service_name=\"node\"}", from, to, &m);
    buf_init(&text, GIB);
    vec_for (i, &m.nodes)
        add_stack(&st, m.nodes.ptr[i], m.values.ptr[i], &text);
    write_file(argv[2], buf_str(&text));
    printf("%" PRId64 " %" PRId64 " %" PRIu64 "\n", slot_to_ms(from), slot_to_ms(to), m.total);
    buf_deinit(&text);
    store_merge_deinit(&m);
    stacks_deinit(&st);
    year_bed_remove(&b);
    year_free(y);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The other bytes Parca's clients send: the first byte says which. WriteRawRequest, in JSON where
 * it opens a brace; the two streams of Write, one behind the other; the .meta of debug info; an ELF
 * file.
 */
#include <stdio.h>
#include <unistd.h>

#include "distributor/parca/debuginfo/debuginfo_elf.h"
#include "distributor/parca/debuginfo/debuginfo_file.h"
#include "distributor/parca/parca_json.h"
#include "distributor/parca/parca_labels.h"
#include "distributor/parca/parca_raw.h"
#include "tests/lib/roles/parca_bed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void two_streams(struct str both, const struct parca_opts *o, struct parca_bed *b)
{
    struct buf ask;
    struct err e;
    size_t ids;

    if (both.len < 2)
        return;
    size_t first = MIN((size_t)((uint8_t)both.ptr[0] << 8 | (uint8_t)both.ptr[1]), both.len - 2);
    struct str samples = str_sub(both, 2, 2 + first), stacks = str_sub(both, 2 + first, both.len);
    buf_init(&ask, MIB);
    if (parca_samples_ask(samples, &b->limits, 1, &ask, &ids, &e) == 0) {
        size_t again;
        struct buf none;
        buf_init(&none, MIB); /* what we write we can read */
        CHECK(parca_samples_ask(buf_str(&ask), &b->limits, 1, &none, &again, &e) == 0);
        CHECK(again == ids);
        buf_deinit(&none);
    }
    buf_deinit(&ask);
    (void)parca_samples_push(samples, stacks, o, &b->sink, &e);
}

static void meta(struct str text)
{
    struct debuginfo_meta m, again;
    struct buf out;
    struct err e;

    if (debuginfo_meta_read(text, &m, &e))
        return;
    buf_init(&out, 4096);
    debuginfo_path("data", &m, &out);
    for (size_t i = strlen("data/") + 33; i < out.len; i++)
        CHECK(out.ptr[i] != '/');
    buf_reset(&out);
    debuginfo_meta_write(&m, &out);
    CHECK(debuginfo_meta_read(buf_str(&out), &again, &e) == 0);
    CHECK(strcmp(m.build_id, again.build_id) == 0 && m.size == again.size && m.type == again.type);
    buf_deinit(&out);
}

static void elf(struct str bytes)
{
    uint8_t id[DEBUGINFO_ID_BYTES];
    FILE *f = tmpfile();
    struct err e;
    size_t n;

    CHECK(f && fwrite(bytes.ptr, 1, bytes.len, f) == bytes.len && fflush(f) == 0);
    if (debuginfo_elf_id(fileno(f), bytes.len, id, &n, &e) == 0)
        CHECK(n <= sizeof(id));
    (void)fclose(f);
}

static void raw(struct str body, const struct parca_opts *o, struct parca_bed *b)
{
    struct json_doc *doc;
    struct buf message;
    struct err e;

    if (!str_starts(body, STR("{"))) {
        (void)parca_raw_push(body, o, &b->sink, &e);
        return;
    }
    buf_init(&message, MIB);
    if (json_parse(body, &doc, &e) == 0) {
        int rc = parca_json_read(json_root(doc), &parca_write_raw, &message, &e);
        if (rc == 0)
            (void)parca_raw_push(buf_str(&message), o, &b->sink, &e);
        else
            CHECK(rc == ERR_INPUT || rc == ERR_LIMIT);
        json_doc_free(doc);
    }
    buf_deinit(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct parca_opts o = { .drop_labels = PARCA_DROP_LABELS, .seed = 1 };
    struct str body = size ? str_n(data + 1, size - 1) : STR("");
    struct parca_bed b;

    if (size == 0)
        return 0;
    parca_bed_init(&b);
    b.limits.decode_bytes = 8 * MIB;
    b.limits.inflated_bytes = MIB;
    b.limits.samples = 2000;
    b.pushes_max = 20;
    switch (data[0] & 3) {
    case 0:
        raw(body, &o, &b);
        break;
    case 1:
        two_streams(body, &o, &b);
        break;
    case 2:
        meta(body);
        break;
    default:
        elf(body);
        break;
    }
    parca_bed_free(&b);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What there was before pprof's message: whatever is taken becomes a message that the decoder of
 * pprof reads, and a push that is sound.
 */
#include "distributor/formats/legacy/legacy.h"
#include "distributor/formats/pprof/pprof.h"
#include "tests/lib/roles/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str body = str_n(data, size);
    struct limits l = limits_default();
    struct buf message;
    struct pprof p;
    struct err e = { 0 };
    uint64_t left_out;

    if (!legacy_sniff(body))
        return 0;
    buf_init(&message, 4 * MIB);
    if (legacy_to_pprof(body, &l, &message, &left_out, &e)) {
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    } else {
        CHECK(!legacy_sniff(buf_str(&message)));
        int rc = pprof_parse(&p, buf_str(&message), &l, &e);
        /* The first word of a page names the profile type; a type that is not UTF-8 is refused. */
        CHECK(rc == 0 || rc == ERR_LIMIT || (rc == ERR_INPUT && !str_utf8_valid(body)));
        pprof_deinit(&p);
    }
    buf_deinit(&message);
    fuzz_ingest(FORMAT_PPROF, "", "fuzz", body);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * JFR recordings. Three kinds of input, so that mutations get behind the header:
 *
 *   "FLR" or gzip ...                     the body as it is
 *   01 seed (u24 offset, u8 xor) ...      a good recording of the generator, bytes of it changed
 *   02 n (u16) ...                        a form: a LabelsSnapshot of n bytes, a recording
 */
#include "common/base/mem.h"
#include "tests/lib/gen/gen_jfr.h"
#include "tests/lib/roles/fuzz_ingest.h"

#define BOUNDARY "jfr-fuzz-boundary-0f550ca"
#define EVENTS   30

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void form(struct str labels, struct str recording)
{
    struct buf b;

    buf_init(&b, 16 * MIB);
    buf_addf(&b, "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"labels\"; "
                 "filename=\"labels\"\r\n\r\n");
    buf_add_str(&b, labels);
    buf_addf(&b, "\r\n--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"jfr\"; "
                 "filename=\"jfr\"\r\n\r\n");
    buf_add_str(&b, recording);
    buf_addf(&b, "\r\n--" BOUNDARY "--\r\n");
    fuzz_ingest(FORMAT_JFR, "multipart/form-data; boundary=" BOUNDARY, "fuzz{x=y}", buf_str(&b));
    buf_deinit(&b);
}

static void split(struct str both, size_t n)
{
    form(str_sub(both, 0, n), str_sub(both, n, both.len));
}

static void changed(const uint8_t *data, size_t size)
{
    struct gen_jfr_random r;
    struct prng p;

    prng_init(&p, data[1]);
    gen_jfr_random(&p, EVENTS, &r);
    for (size_t i = 2; i + 4 <= size; i += 4) {
        size_t at = (size_t)data[i] << 16 | (size_t)data[i + 1] << 8 | data[i + 2];
        r.file.ptr[at % r.file.len] ^= (char)data[i + 3];
    }
    if (data[1] & 1)
        form(buf_str(&r.labels), buf_str(&r.file));
    else
        fuzz_ingest(FORMAT_JFR, "", "fuzz", buf_str(&r.file));
    gen_jfr_random_deinit(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (data[0] == 'F' || data[0] == 0x1f)
        fuzz_ingest(FORMAT_JFR, "", "fuzz", str_n(data, size));
    else if (data[0] == 1)
        changed(data, size);
    else if (data[0] == 2 && size > 3)
        split(str_n(data + 3, size - 3), (size_t)data[1] << 8 | data[2]);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of an S3 server: any bytes give a list, or an error; keys stay inside their bound.
 */
#include "common/object/s3_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool on_key(void *cookie, struct str key, uint64_t size)
{
    size_t *bytes = cookie;

    (void)size;
    CHECK(key.len <= S3_XML_KEY_MAX);
    *bytes += key.len;
    return *bytes < 100000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str xml = str_n(data, size);
    char code[32], text[64];
    struct err e = { 0 };
    size_t bytes = 0;
    bool more;

    s3_xml_error(xml, code, sizeof(code), text, sizeof(text));
    CHECK(strlen(code) < sizeof(code) && strlen(text) < sizeof(text));
    if (s3_xml_list(xml, on_key, &bytes, &more, &e))
        CHECK(e.text[0]);
    CHECK(bytes <= size + 5);
    return 0;
}

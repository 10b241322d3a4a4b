/* SPDX-License-Identifier: Apache-2.0
 *
 * sigv4: canonical request -> string to sign -> signature, by keys derived from the secret for one
 * day, region and service. Everything that is signed is also sent; nothing else is.
 */
#include "common/object/sigv4.h"

#include "common/base/hex.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CANONICAL_MAX (16 * KIB)
#define MAC_LEN       32

void sigv4_sha256(struct str data, char ret[SIGV4_HEX_LEN + 1])
{
    uint8_t md[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    CHECK(EVP_Digest(data.len ? data.ptr : "", data.len, md, &len, EVP_sha256(), NULL) == 1);
    CHECK(len == MAC_LEN);
    hex_put_c(md, len, ret);
}

void sigv4_date(int64_t wall_ms, char ret[SIGV4_DATE_LEN + 1])
{
    time_t t = (time_t)(wall_ms / 1000);
    struct tm tm;

    CHECK(gmtime_r(&t, &tm));
    CHECK(strftime(ret, SIGV4_DATE_LEN + 1, "%Y%m%dT%H%M%SZ", &tm) == SIGV4_DATE_LEN);
}

bool sigv4_escape(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.' || c == '~';

        if (plain ? !buf_add_c(out, (char)c) : !buf_addf(out, "%%%02X", (unsigned)c))
            return false;
    }
    return true;
}

static void mac(struct str key, struct str data, uint8_t ret[MAC_LEN])
{
    unsigned len = MAC_LEN;

    CHECK(HMAC(EVP_sha256(), key.ptr, (int)key.len, (const uint8_t *)(const void *)data.ptr,
               data.len, ret, &len));
    CHECK(len == MAC_LEN);
}

static void signing_key(const struct sigv4_keys *k, const char *date, uint8_t ret[MAC_LEN])
{
    char first[512];
    uint8_t next[MAC_LEN];
    int n = snprintf(first, sizeof(first), "AWS4%s", k->secret_key);

    CHECK(n > 0 && (size_t)n < sizeof(first)); /* object_s3_open looked */
    mac(str_n(first, (size_t)n), str_n(date, 8), ret);
    mac(str_n(ret, MAC_LEN), str_c(k->region), next);
    mac(str_n(next, MAC_LEN), str_c(k->service), ret);
    mac(str_n(ret, MAC_LEN), STR("aws4_request"), next);
    memcpy(ret, next, MAC_LEN);
    OPENSSL_cleanse(first, sizeof(first));
    OPENSSL_cleanse(next, sizeof(next));
}

static int by_name(const void *a, const void *b)
{
    const struct sigv4_header *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static void put_canonical(struct buf *out, const struct sigv4_request *r,
                          const struct sigv4_header *sorted, const char *names)
{
    (void)buf_addf(out, "%s\n%.*s\n%.*s\n", r->method, STR_ARG(r->path), STR_ARG(r->query));
    for (size_t i = 0; i < r->headers_len; i++)
        (void)buf_addf(out, "%s:%.*s\n", sorted[i].name, STR_ARG(sorted[i].value));
    (void)buf_addf(out, "\n%s\n%s", names, r->payload);
}

bool sigv4_sign(const struct sigv4_keys *k, const struct sigv4_request *r, const char *date,
                struct buf *out)
{
    struct sigv4_header sorted[SIGV4_HEADERS_MAX];
    char names[512] = "", digest[SIGV4_HEX_LEN + 1], signature[SIGV4_HEX_LEN + 1];
    uint8_t key[MAC_LEN], md[MAC_LEN];
    struct buf text;
    size_t at = 0;

    CHECK(r->headers_len > 0 && r->headers_len <= SIGV4_HEADERS_MAX);
    memcpy(sorted, r->headers, r->headers_len * sizeof(*sorted));
    qsort(sorted, r->headers_len, sizeof(*sorted), by_name);
    for (size_t i = 0; i < r->headers_len; i++) {
        int n = snprintf(names + at, sizeof(names) - at, "%s%s", i ? ";" : "", sorted[i].name);

        CHECK(n > 0 && (size_t)n < sizeof(names) - at);
        at += (size_t)n;
    }
    buf_init(&text, CANONICAL_MAX);
    put_canonical(&text, r, sorted, names);
    sigv4_sha256(buf_str(&text), digest);
    bool ok = buf_ok(&text);
    buf_reset(&text);
    (void)buf_addf(&text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/aws4_request\n%s", date, date,
                   k->region, k->service, digest);
    signing_key(k, date, key);
    mac(str_n(key, MAC_LEN), buf_str(&text), md);
    OPENSSL_cleanse(key, sizeof(key));
    hex_put_c(md, MAC_LEN, signature);
    ok = ok && buf_ok(&text);
    buf_deinit(&text);
    return ok && buf_addf(out,
                          "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, "
                          "SignedHeaders=%s, Signature=%s",
                          k->access_key, date, k->region, k->service, names, signature);
}

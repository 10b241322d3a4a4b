/* SPDX-License-Identifier: Apache-2.0
 *
 * write_id: which pushes are the same push.
 *
 *   base = H(tenant secret; "client", Idempotency-Key)               the client says so, or
 *          H(tenant secret; "sender", id of the profile, body)       its sender numbers them, or
 *          H(tenant secret; "body", name, from, until, ..., body)    the body carries its own time
 *                                                                    below the second, or
 *          random                                                    not known: never equal
 *          H(tenant secret; "import", the sender's id or the message) imported data
 *   id   = H(tenant secret; base, labels, profile type)              one per series
 *
 * Why the body: Alloy, the Java agent and OpenTelemetry collectors send again after a timeout
 * without any key. A profile that says to the nanosecond when it was taken is, byte for byte, the
 * same profile. Folded text is not: two idle pods send equal lines all day long, and each counts.
 * from and until are hashed as text: "now-10s" is another instant at every retry.
 *
 * A sender's own id (Push, OTLP) counts together with the bytes of the profile: an agent that sends
 * one id all day long must lose nothing by it.
 *
 * An Idempotency-Key goes with a fingerprint of the request (its parameters and body), which is
 * stored beside the write id: a client that uses one key for two requests gets 422
 * (draft-ietf-httpapi-idempotency-key-header, section 2.7), and loses nothing unseen.
 *
 * One request may carry pushes with one base: an Idempotency-Key is that of all of them, and a
 * profile may be there twice. They count each; the n-th has n in its base, at every retry.
 *
 * H is SipHash-2-4, keyed: a tenant cannot make ids that collide with those of another one, nor
 * guess them. The body itself, up to tens of megabytes, is first condensed by XXH3-128 with a seed
 * from the secret; a tenant that finds collisions there can only make its own pushes count once.
 */
#include "distributor/send/write_id.h"

#include <stdio.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "distributor/formats/formats.h"

/* ---- ids --------------------------------------------------------------------------------------
 * */

struct digest {
    uint64_t seed;
    struct hash128 h;
};

/* Length first, so that ("ab", "c") is not ("a", "bc"). */
static void digest_add(void *cookie, struct str bytes)
{
    struct digest *d = cookie;
    struct hash128 parts[2] = { d->h, hash128(bytes.ptr, bytes.len, d->seed) };
    struct {
        struct hash128 parts[2];
        uint64_t len;
    } all = { { parts[0], parts[1] }, bytes.len };

    d->h = hash128(&all, sizeof(all), d->seed);
}

static struct hash128 body_digest(const struct write_secret *tenant, const struct ingest *in,
                                  const struct push *p, struct str body)
{
    const struct ingest_raw *r = &in->raw;
    const struct str params[] = { r->name,        r->from,     r->until,
                                  r->sample_rate, r->spy_name, str_c(format_name(in->format)) };
    struct digest d = { .seed = siphash128(tenant, "body", 4).lo };

    for (size_t i = 0; i < ARRAY_LEN(params); i++)
        digest_add(&d, params[i]);
    formats_identity(in, body, p->arena, digest_add, &d);
    return d.h;
}

static struct hash128 keyed(const struct write_secret *tenant, enum write_key kind, struct str s)
{
    struct digest d = { .seed = siphash128(tenant, "key", 3).lo };
    uint64_t words[3] = { kind };

    digest_add(&d, s);
    words[1] = d.h.lo;
    words[2] = d.h.hi;
    return siphash128(tenant, words, sizeof(words));
}

static struct hash128 id_digest(const struct write_secret *tenant, struct str id, struct str body)
{
    struct digest d = { .seed = siphash128(tenant, "sender", 6).lo };

    digest_add(&d, id);
    digest_add(&d, body);
    return keyed(tenant, WRITE_KEY_SENDER, str_n(&d.h, sizeof(d.h)));
}

struct write_base write_base_of(const struct write_secret *tenant,
                                const struct write_sender *sender, const struct ingest *in,
                                const struct push *p, struct str body, struct env *env)
{
    struct write_base base = { .kind = WRITE_KEY_RANDOM };
    struct hash128 h;

    if (sender->key.len) {
        base.kind = WRITE_KEY_CLIENT;
        base.digest = keyed(tenant, base.kind, sender->key);
        h = body_digest(tenant, in, p, body);
        base.print = MAX(h.lo, UINT64_C(1));
    } else if (sender->id.len) {
        base.kind = WRITE_KEY_SENDER;
        base.digest = id_digest(tenant, sender->id, body);
    } else if (p->has_identity) {
        base.kind = WRITE_KEY_BODY;
        h = body_digest(tenant, in, p, body);
        base.digest = keyed(tenant, base.kind, str_n(&h, sizeof(h)));
    } else {
        env->random(env, &base.digest, sizeof(base.digest));
    }
    return base;
}

struct write_base write_base_again(const struct write_secret *tenant, const struct write_base *base,
                                   uint64_t n)
{
    uint64_t words[4] = { base->kind, base->digest.lo, base->digest.hi, n };

    return (struct write_base){ base->kind, siphash128(tenant, words, sizeof(words)), base->print };
}

struct write_base write_base_import(const struct write_secret *tenant, struct str id)
{
    return (struct write_base){ WRITE_KEY_IMPORT, keyed(tenant, WRITE_KEY_IMPORT, id), 0 };
}

void write_id(const struct write_secret *tenant, const struct write_base *base,
              const struct push_series *s, uint8_t ret[WRITE_ID_BYTES])
{
    size_t labels = labels_encoded_len(&s->labels);
    size_t n = sizeof(base->digest) + labels + s->profile_type.len;
    uint8_t small[1024], *bytes = n > sizeof(small) ? xmalloc(n) : small;
    struct hash128 h;

    memcpy(bytes, &base->digest, sizeof(base->digest));
    labels_encode_to(&s->labels, bytes + sizeof(base->digest));
    if (s->profile_type.len)
        memcpy(bytes + sizeof(base->digest) + labels, s->profile_type.ptr, s->profile_type.len);
    h = siphash128(tenant, bytes, n);
    put_u64le(ret, h.lo);
    put_u64le(ret + 8, h.hi);
    if (bytes != small)
        xfree(bytes);
}

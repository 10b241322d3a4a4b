/* SPDX-License-Identifier: Apache-2.0
 *
 * registry: the keys and blocks of this process, by id, and the proof of a credential.
 *
 *   by_id ──> entry ── file      of identity.file; hides the next
 *                  ├── stored    of the coordination service, or the local file
 *                  ├── block     revoked, whatever the source, for good
 *                  └── used_ms   last use, to the minute
 *
 * An entry is there as long as it has a record or a block. When all stored records are forgotten,
 * since they come again from a watch, their entries stay until the next such time, so that the last
 * use is not lost.
 *
 * Proof. A well-formed key costs one lookup, one HMAC and one comparison of 32 bytes, whatever the
 * result: an unknown id is compared with a hash that no secret has. What follows is only for the
 * right secret. So neither the answer nor the time says which ids exist. A malformed key, which
 * its checksum shows, is refused before that: it says nothing of any key.
 *
 * Two hashers with kept keys: one under the pepper, one under zeros, for keys of identity.file that
 * were hashed offline. When the pepper changes, stored records are those of the old one until they
 * are replaced; they just prove nothing. The caller brings the records of the new pepper.
 *
 * Invariants: (1) every entry is in by_id under its own id; (2) `len` is the number of entries with
 * a record; (3) stored records are at most REGISTRY_KEYS_MAX. Thread: the loop's.
 */
#include "common/identity/registry.h"
#include "common/identity/record_net.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/secret.h"
#include "common/identity/registry_impl.h"
#include "common/rpc/rpc_crypto.h"

#define MINUTE_MS 60000

struct registry {
    struct map_str *by_id;                  /* struct registry_entry, owned */
    struct rpc_mac *by_pepper, *by_zeros;   /* owned */
    VEC(struct registry_entry *) from_file; /* entries with a record of identity.file */
    size_t len, stored;                     /* entries with a record; with a stored one */
    uint64_t version;
    char *admin; /* owned; the id that was a server-admin last: no need to look at all of them */
};

static const uint8_t zeros[KEY_PEPPER_BYTES];

static struct str id_of(const struct registry_entry *n)
{
    return str_n(n->id, KEY_ID_LEN);
}

static struct key_record *in_force(const struct registry_entry *n)
{
    return n->file ? n->file : n->stored;
}

struct registry *registry_new(const uint8_t pepper[KEY_PEPPER_BYTES])
{
    struct registry *g = XNEW(struct registry);

    g->by_id = map_str_new();
    g->by_pepper = rpc_mac_new(str_n(pepper, KEY_PEPPER_BYTES));
    g->by_zeros = rpc_mac_new(str_n(zeros, sizeof(zeros)));
    g->admin = XNEW_ARRAY(char, KEY_ID_LEN);
    return g;
}

static void entry_free(struct registry_entry *n)
{
    record_key_unref(n->file);
    record_key_unref(n->stored);
    xfree(n->block);
    xfree(n);
}

void registry_free(struct registry *g)
{
    struct str id;
    size_t at = 0;
    void *n;

    if (!g)
        return;
    while (map_str_next(g->by_id, &at, &id, &n))
        entry_free(n);
    map_str_free(g->by_id);
    rpc_mac_free(g->by_pepper);
    rpc_mac_free(g->by_zeros);
    vec_free(&g->from_file);
    xfree(g->admin);
    xfree(g);
}

void registry_set_pepper(struct registry *g, const uint8_t pepper[KEY_PEPPER_BYTES])
{
    rpc_mac_free(g->by_pepper);
    g->by_pepper = rpc_mac_new(str_n(pepper, KEY_PEPPER_BYTES));
    g->version++;
}

/* ---- entries --------------------------------------------------------------------------------- */

static struct registry_entry *entry_get(const struct registry *g, struct str id)
{
    return map_str_get(g->by_id, id);
}

static struct registry_entry *entry_make(struct registry *g, struct str id)
{
    struct registry_entry *n = entry_get(g, id);

    if (n)
        return n;
    CHECK(id.len == KEY_ID_LEN);
    n = XNEW(struct registry_entry);
    memcpy(n->id, id.ptr, KEY_ID_LEN);
    (void)map_str_put(g->by_id, id_of(n), n);
    return n;
}

/* Sets one of the two records of an entry, and counts. Takes a reference; NULL: none. */
static void entry_set(struct registry *g, struct registry_entry *n, struct key_record **slot,
                      struct key_record *r)
{
    struct key_record *was = *slot;

    g->len -= in_force(n) != NULL;
    g->stored -= n->stored != NULL;
    *slot = r ? record_key_ref(r) : NULL;
    g->len += in_force(n) != NULL;
    g->stored += n->stored != NULL;
    record_key_unref(was);
    g->version++;
}

static void entry_drop_empty(struct registry *g, struct registry_entry *n)
{
    if (in_force(n) || n->block)
        return;
    CHECK(map_str_del(g->by_id, id_of(n)) == n);
    entry_free(n);
}

static int by_id(const void *a, const void *b)
{
    const struct registry_entry *x = *(struct registry_entry *const *)a;
    const struct registry_entry *y = *(struct registry_entry *const *)b;

    return memcmp(x->id, y->id, KEY_ID_LEN);
}

struct registry_entry **registry_entries(const struct registry *g, size_t *ret_len)
{
    size_t len = map_str_len(g->by_id), n = 0, at = 0;
    struct registry_entry **ret = XNEW_ARRAY(struct registry_entry *, len + 1);
    struct str id;
    void *v;

    while (map_str_next(g->by_id, &at, &id, &v))
        ret[n++] = v;
    CHECK(n == len);
    qsort(ret, n, sizeof(*ret), by_id);
    *ret_len = n;
    return ret;
}

bool registry_has_room(const struct registry *g, struct key_record *const *r, size_t n)
{
    size_t added = 0;

    for (size_t i = 0; i < n; i++) {
        const struct registry_entry *known = entry_get(g, r[i]->id);

        added += !known || !known->stored;
    }
    return added <= REGISTRY_KEYS_MAX - g->stored;
}

/* ---- changes --------------------------------------------------------------------------------- */

int registry_put(struct registry *g, struct key_record *r, struct err *e)
{
    struct registry_entry *n;

    if (!registry_has_room(g, &r, 1))
        return err_set(e, ERR_LIMIT,
                       "there are %d keys, and a cluster can have no more; remove "
                       "some that are revoked or expired",
                       REGISTRY_KEYS_MAX);
    n = entry_make(g, r->id);
    entry_set(g, n, &n->stored, r);
    return 0;
}

void registry_del(struct registry *g, struct str id)
{
    struct registry_entry *n = entry_get(g, id);

    if (!n || !n->stored)
        return;
    entry_set(g, n, &n->stored, NULL);
    entry_drop_empty(g, n);
}

void registry_set_file(struct registry *g, struct key_record *const *r, size_t n)
{
    VEC(struct registry_entry *) before = { g->from_file.ptr, g->from_file.len, g->from_file.cap };

    /* Empty entries stay until the new records are in: a key in both files keeps its last use. */
    vec_for (i, &before)
        entry_set(g, before.ptr[i], &before.ptr[i]->file, NULL);
    g->from_file.ptr = NULL;
    g->from_file.len = g->from_file.cap = 0;
    for (size_t i = 0; i < n; i++) {
        struct registry_entry *to = entry_make(g, r[i]->id);

        if (!to->file)
            vec_push(&g->from_file, to);
        entry_set(g, to, &to->file, r[i]);
    }
    vec_for (i, &before)
        entry_drop_empty(g, before.ptr[i]);
    vec_free(&before);
    g->version++;
}

/* Of two blocks of an id the earlier one stays, and of two of one time the one with the lesser
 * text: so all processes end with the same, in whatever order blocks come. */
static bool block_precedes(const struct block_record *a, const struct block_record *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : str_cmp(a->why, b->why) < 0;
}

void registry_block(struct registry *g, const struct block_record *b)
{
    struct registry_entry *n = entry_make(g, b->id);
    struct block_record *to;
    char *why;

    if (n->block && !block_precedes(b, n->block))
        return;
    to = xcalloc(1, sizeof(*to) + b->why.len);
    why = (char *)(to + 1);
    if (b->why.len)
        memcpy(why, b->why.ptr, b->why.len);
    *to = (struct block_record){ .id = id_of(n), .why = { why, b->why.len }, .at_ms = b->at_ms };
    xfree(n->block);
    n->block = to;
    g->version++;
}

void registry_clear_stored(struct registry *g)
{
    size_t len;
    struct registry_entry **all = registry_entries(g, &len);

    for (size_t i = 0; i < len; i++) {
        if (all[i]->stored)
            entry_set(g, all[i], &all[i]->stored, NULL);
        else
            entry_drop_empty(g, all[i]);
    }
    xfree(all);
    g->version++;
}

/* ---- questions ------------------------------------------------------------------------------- */

bool registry_blocked(const struct registry *g, struct str id)
{
    const struct registry_entry *n = entry_get(g, id);

    return n && n->block;
}

struct key_record *registry_find(const struct registry *g, struct str id)
{
    const struct registry_entry *n = entry_get(g, id);

    return n ? in_force(n) : NULL;
}

void registry_each(const struct registry *g,
                   void (*fn)(void *cookie, struct key_record *r, const struct block_record *b),
                   void *cookie)
{
    size_t len;
    struct registry_entry **all = registry_entries(g, &len);

    for (size_t i = 0; i < len; i++)
        if (in_force(all[i]) || all[i]->block)
            fn(cookie, in_force(all[i]), all[i]->block);
    xfree(all);
}

size_t registry_len(const struct registry *g)
{
    return g->len;
}

uint64_t registry_version(const struct registry *g)
{
    return g->version;
}

int64_t registry_last_use_ms(const struct registry *g, struct str id)
{
    const struct registry_entry *n = entry_get(g, id);

    return n ? n->used_ms : 0;
}

/* Clocks of processes differ by up to REGISTRY_SKEW_MS. */
static bool in_time(const struct key_record *r, int64_t now_ms)
{
    return r->from_ms - REGISTRY_SKEW_MS <= now_ms &&
           (!r->until_ms || now_ms - REGISTRY_SKEW_MS < r->until_ms);
}

static bool is_admin(const struct registry_entry *n, int64_t now_ms)
{
    const struct key_record *r = n ? in_force(n) : NULL;

    if (!r || n->block || !in_time(r, now_ms))
        return false;
    for (size_t i = 0; i < r->grants.len; i++)
        if (r->grants.ptr[i].roles & ROLE_SERVER_ADMIN)
            return true;
    return false;
}

bool registry_has_admin(const struct registry *g, int64_t now_ms)
{
    struct str id;
    size_t at = 0;
    void *n;

    if (is_admin(entry_get(g, str_n(g->admin, KEY_ID_LEN)), now_ms))
        return true;
    while (map_str_next(g->by_id, &at, &id, &n))
        if (is_admin(n, now_ms)) {
            memcpy(g->admin, id.ptr, KEY_ID_LEN);
            return true;
        }
    return false;
}

/* ---- proof ----------------------------------------------------------------------------------- */

/* The checks for which the secret must be right. */
static enum credential_fault fault_of(const struct registry_entry *n, const struct key_record *r,
                                      int64_t now_ms, const char *peer)
{
    if (n->block)
        return CREDENTIAL_REVOKED;
    if (!in_time(r, now_ms))
        return CREDENTIAL_EXPIRED;
    if (r->nets_len && !net_range_has(r->nets, r->nets_len, peer))
        return CREDENTIAL_NET;
    return CREDENTIAL_OK;
}

enum credential_fault registry_prove(struct registry *g, struct str key, int64_t now_ms,
                                     const char *peer, struct key_record **ret)
{
    uint8_t hash[KEY_HASH_BYTES];
    struct registry_entry *n;
    struct key_record *r;
    struct key_text text;

    if (!key.len)
        return CREDENTIAL_NONE;
    if (!key_text_parse(key, &text))
        return CREDENTIAL_UNKNOWN;
    n = entry_get(g, text.id);
    r = n ? in_force(n) : NULL;
    key_hash_with(r && r->offline_hash ? g->by_zeros : g->by_pepper, text.id, text.secret, hash);
    bool right = secret_eq(str_n(r ? r->hash : zeros, KEY_HASH_BYTES), str_n(hash, sizeof(hash)));
    if (!r || !right || text.kind == KEY_INVITE) /* an invite is no credential */
        return CREDENTIAL_UNKNOWN;
    enum credential_fault fault = fault_of(n, r, now_ms, peer);
    if (fault != CREDENTIAL_OK)
        return fault;
    n->used_ms = now_ms - now_ms % MINUTE_MS;
    *ret = r;
    return CREDENTIAL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * registry_text: all stored records and blocks as one JSON text, and back.
 *
 *   {"keys":[
 *   {...},
 *   {...}],"blocks":[
 *   {...}]}
 *
 * A line for each, in order of ids, so that equal registries give equal texts. Records of
 * identity.file are not in it: they have a file of their own.
 *
 * A tree of 100,000 keys would take hundreds of MiB, so the text is read value by value, and each
 * record is parsed alone. Nothing is added before all of the text was read and its signatures were
 * checked: half of a set of blocks would let revoked keys through. For the same reason a text
 * without "blocks" is refused.
 *
 * Thread: the loop's.
 */
#include "common/base/json.h"
#include "common/identity/registry_impl.h"
#include "common/net/jpull.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void next_line(struct buf *out, bool *first)
{
    buf_add_str(out, *first ? STR("\n") : STR(",\n"));
    *first = false;
}

void registry_write(const struct registry *g, const uint8_t sign[RECORD_SIGN_BYTES],
                    struct buf *out)
{
    size_t len;
    struct registry_entry **all = registry_entries(g, &len);
    bool first = true;

    buf_add_str(out, STR("{\"keys\":["));
    for (size_t i = 0; i < len; i++)
        if (all[i]->stored) {
            next_line(out, &first);
            record_key_write(all[i]->stored, sign, out);
        }
    first = true;
    buf_add_str(out, STR("],\"blocks\":["));
    for (size_t i = 0; i < len; i++)
        if (all[i]->block) {
            next_line(out, &first);
            record_block_write(all[i]->block, sign, out);
        }
    buf_add_str(out, STR("]}\n"));
    xfree(all);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    const uint8_t *sign;
    struct arena *arena; /* of blocks, and of escapes in names */
    VEC(struct key_record *) keys;
    VEC(struct block_record) blocks;
    bool has_keys, has_blocks;
    struct err *e;
};

static int check_sig(const struct reading *d, struct str json)
{
    if (!d->sign || record_sig_ok(json, d->sign))
        return 0;
    return err_set(d->e, ERR_INPUT,
                   "its signature is wrong: it was changed, or signed with another cluster key");
}

static int take_key(struct reading *d, struct str json)
{
    struct key_record *r;

    if (record_key_read(json, &r, d->e))
        return d->e->code;
    if (d->keys.len >= REGISTRY_KEYS_MAX || check_sig(d, json)) {
        int code = d->keys.len >= REGISTRY_KEYS_MAX
                       ? err_set(d->e, ERR_LIMIT, "more than %d keys", REGISTRY_KEYS_MAX)
                       : err_wrap(d->e, "key %.*s", STR_ARG(r->id));
        record_key_unref(r);
        return code;
    }
    vec_push(&d->keys, r);
    return 0;
}

static int take_block(struct reading *d, struct str json)
{
    struct block_record b;

    if (record_block_read(json, d->arena, &b, d->e))
        return d->e->code;
    if (check_sig(d, json))
        return err_wrap(d->e, "block %.*s", STR_ARG(b.id));
    vec_push(&d->blocks, b);
    return 0;
}

/* Each element of an array. False: *e is set. */
static bool take_list(struct reading *d, struct jpull *j, int (*take)(struct reading *, struct str))
{
    struct jpull_it it;
    struct str json;

    if (jpull_peek(j) != '[')
        return jpull_fault(j, "want a list");
    if (!jpull_open(j, '[', &it))
        return false;
    while (jpull_element(j, &it))
        if (!jpull_value(j, &json) || take(d, json))
            return false;
    return !j->bad;
}

static bool take_text(struct reading *d, struct jpull *j)
{
    struct jpull_it it;
    struct str name;

    if (!jpull_open(j, '{', &it))
        return j->bad ? false : jpull_fault(j, "want an object");
    while (jpull_key(j, &it, &name)) {
        bool *has = str_eqc(name, "keys")     ? &d->has_keys
                    : str_eqc(name, "blocks") ? &d->has_blocks
                                              : NULL;

        if (has && *has)
            return jpull_fault(j, "a list that comes twice");
        if (has)
            *has = true;
        if (!has ? !jpull_skip(j) : !take_list(d, j, has == &d->has_keys ? take_key : take_block))
            return false;
    }
    if (j->bad || !jpull_end(j))
        return false;
    if (d->has_keys && d->has_blocks)
        return true;
    (void)err_set(d->e, ERR_INPUT, "it has no list of %s", d->has_keys ? "blocks" : "keys");
    return false;
}

/* Blocks first: no key is in force for a moment that is revoked. */
static int add_all(struct registry *g, const struct reading *d, struct err *e)
{
    if (!registry_has_room(g, d->keys.ptr, d->keys.len))
        return err_set(e, ERR_LIMIT, "with these keys there would be more than %d",
                       REGISTRY_KEYS_MAX);
    vec_for (i, &d->blocks)
        registry_block(g, &d->blocks.ptr[i]);
    vec_for (i, &d->keys)
        if (registry_put(g, d->keys.ptr[i], e))
            return e->code;
    return 0;
}

int registry_read(struct registry *g, struct str json, const uint8_t sign[RECORD_SIGN_BYTES],
                  struct err *e)
{
    struct reading d = { .sign = sign, .arena = arena_new(4 * json.len + KIB), .e = e };
    struct jpull j;

    err_clear(e);
    jpull_init(&j, json, d.arena, e);
    int code = take_text(&d, &j) ? add_all(g, &d, e) : e->code;
    vec_for (i, &d.keys)
        record_key_unref(d.keys.ptr[i]);
    vec_free(&d.keys);
    vec_free(&d.blocks);
    arena_free(d.arena);
    return code;
}

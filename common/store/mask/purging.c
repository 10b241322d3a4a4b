/* SPDX-License-Identifier: Apache-2.0
 *
 * purging: services with rows of deletes that are not purged, read from the masks and the rows of
 * deletes of a snapshot.
 */
#include "common/store/mask/purging.h"

#include "common/store/mask/tomb_list.h"

static int add_dead_tenants(struct purging *p, struct kv *kv, const struct kv_snap *snap,
                            struct err *e)
{
    struct key from = { .len = 1, .b = { KEY_TOMB } }, to = from;
    int rc = 0;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(kv, snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct tomb *t = tomb_new();
        rc = tomb_row_read(kv_iter_key(it), kv_iter_value(it), t, e);
        if (!rc && t->kind == TOMB_TENANT && t->state != TOMB_DONE)
            vec_push(&p->at, ((struct purging_scope){ t->tenant,
                                                      t->state == TOMB_PURGING ? 0 : UINT32_MAX }));
        tomb_free(t);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int purging_load(struct purging *p, struct kv *kv, const struct kv_snap *snap, struct err *e)
{
    struct key from = { .len = 1, .b = { KEY_TOMB_MASK } }, to = from;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(kv, snap, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (key.len == KEY_TOMB_MASK_LEN)
            vec_push(&p->at,
                     ((struct purging_scope){ get_u32be(key.ptr + 1), get_u32be(key.ptr + 13) }));
    }
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc ? rc : add_dead_tenants(p, kv, snap, e);
}

bool purging_has(const struct purging *p, uint32_t tenant, uint32_t scope)
{
    vec_for (i, &p->at) {
        const struct purging_scope *x = &p->at.ptr[i];
        if (x->tenant == tenant && (!scope || !x->scope || x->scope == scope))
            return true;
    }
    return false;
}

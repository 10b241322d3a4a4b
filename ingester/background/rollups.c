/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/background/rollups.h"

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/model/tenant_id.h"
#include "common/store/catalog/group.h"

struct tenant_names {
    struct str tenant; /* in the configuration; of the default: NULL */
    VEC(struct str) names;
};
struct rollups {
    VEC(struct tenant_names) at; /* the default first */
};

static int add_name(struct tenant_names *t, struct str name, struct err *e)
{
    name = str_trim(name);
    if (!name.len)
        return 0;
    if (name.len > GROUP_NAME_MAX || t->names.len == GROUP_NAMES_MAX / 2)
        return err_set(e, ERR_CONFIG,
                       "rollups: %.*s: a name of a label has at most %d bytes, a list %d names",
                       STR_ARG(name), GROUP_NAME_MAX, GROUP_NAMES_MAX / 2);
    vec_push(&t->names, name);
    return 0;
}

/* "tenant=name name name" */
static int add_tenant(struct rollups *r, struct str entry, struct err *e)
{
    ptrdiff_t eq = str_find(entry, '=');
    struct tenant_names t = { 0 };
    struct str rest, name;
    struct err why;
    bool more = true;
    int rc = 0;

    if (eq < 1)
        return err_set(e, ERR_CONFIG, "rollups.tenants: \"%.*s\": want tenant=label label ...",
                       STR_ARG(entry));
    t.tenant = str_trim(str_sub(entry, 0, (size_t)eq));
    if (tenant_id_check(t.tenant, &why)) /* would never be found */
        return err_set(e, ERR_CONFIG, "rollups.tenants: \"%.*s\": %s", STR_ARG(entry), why.text);
    rest = str_sub(entry, (size_t)eq + 1, entry.len);
    while (!rc && str_next(&rest, ' ', &more, &name))
        rc = add_name(&t, name, e);
    vec_push(&r->at, t);
    return rc;
}

int rollups_new(const struct rollup_conf *c, struct rollups **ret, struct err *e)
{
    struct rollups *r = XNEW(struct rollups);
    int rc = 0;

    vec_push(&r->at, ((struct tenant_names){ 0 }));
    for (size_t i = 0; !rc && i < c->drop.len; i++)
        rc = add_name(&r->at.ptr[0], str_c(c->drop.items[i]), e);
    for (size_t i = 0; !rc && i < c->tenants.len; i++)
        rc = add_tenant(r, str_c(c->tenants.items[i]), e);
    if (rc) {
        rollups_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void rollups_free(struct rollups *r)
{
    if (!r)
        return;
    vec_for (i, &r->at)
        vec_free(&r->at.ptr[i].names);
    vec_free(&r->at);
    xfree(r);
}

struct group_drop rollups_drop(void *cookie, struct str tenant)
{
    const struct rollups *r = cookie;
    const struct tenant_names *t = &r->at.ptr[0];

    for (size_t i = 1; i < r->at.len; i++)
        if (str_eq(r->at.ptr[i].tenant, tenant))
            t = &r->at.ptr[i];
    return (struct group_drop){ t->names.ptr, t->names.len };
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * grant.h: what an identity may do: roles, in tenants, for series that match.
 *
 *   {"tenants": ["shop"], "roles": ["read"], "match": "{team=\"a\"}"}
 *   {"tenants": ["shop"], "roles": ["push"], "set": {"team": "a"}}
 *   {"tenants": ["*"],    "roles": ["server-admin"]}
 *
 * `match` holds for read and delete: the identity sees only such series. `set` holds for push: the
 * server sets these labels on every series, over what the sender said, so that a team cannot be
 * forged. `edit` is a flag of a read grant: notes, settings and uploads may be changed.
 *
 * A tenant-admin may push, read and delete in its tenants. A server-admin may not read profiles:
 * that takes a read grant. An identity may not grant more than it has (grants_cover). Thread: any;
 * the grants of a record do not change. But the compiled regexes of `match` are the loop's, since a
 * regex owns its match buffers: elsewhere copy the texts and compile again.
 *
 * Fields that are not known are refused, and so is null. server-admin and scrape want tenants
 * ["*"]; `match` wants read or delete, `set` wants push, `edit` wants read.
 */
#ifndef COMMON_IDENTITY_GRANT_H
#define COMMON_IDENTITY_GRANT_H

#include "common/base/arena.h"
#include "common/base/json.h"
#include "common/model/label.h"
#include "common/model/selector.h"
#include "common/net/json_in.h"

#define GRANTS_MAX        64 /* of one identity */
#define GRANT_TENANTS_MAX 64
#define GRANT_LABELS_MAX  16   /* of `set`; and matchers of `match` */
#define GRANT_TEXT_MAX    1024 /* bytes of `match` */

/* Bits, so that a grant can have several and a route can take several. */
enum identity_role {
    ROLE_PUSH = 1,
    ROLE_READ = 2,
    ROLE_DELETE = 4,
    ROLE_TENANT_ADMIN = 8,
    ROLE_SERVER_ADMIN = 16,
    ROLE_GATEWAY = 32, /* may name the tenant by header alone */
    ROLE_SCRAPE = 64,  /* /metrics */
};

struct grant {
    struct str *tenants; /* sorted; none if `everywhere` */
    size_t tenants_len;
    bool everywhere; /* "*" */
    bool edit;
    unsigned roles;
    struct selector match; /* len 0: all series. Regexes are compiled. */
    struct labels set;
};
struct grants {
    struct grant *ptr;
    size_t len;
};

/* From a JSON array. Everything is copied to the arena. ERR_INPUT and ERR_LIMIT name grant and
 * field ("grants[1]: ..."). The caller owns the compiled regexes: grants_deinit. */
NODISCARD int grants_read(const struct json_val *list, struct arena *a, struct grants *ret,
                          struct err *e);
void grants_deinit(struct grants *g); /* regexes only */
/* As the array that grants_read takes. */
void grants_write(const struct grants *g, struct json *j);

/* The roles that the grants give in a tenant, with those that a tenant-admin has besides. An empty
 * tenant: the roles of grants for all tenants. */
unsigned grants_roles(const struct grants *g, struct str tenant);
/* The one tenant all grants name; STR_NULL if there are several, or "*". */
struct str grants_only_tenant(const struct grants *g);
/* True if a read in that tenant is not limited to some series. */
bool grants_read_all(const struct grants *g, unsigned role, struct str tenant);
/* Does `mine` allow to hand out `theirs`? False with the reason: roles, tenants, matchers or labels
 * that `mine` lacks. A limited grant covers one with the same `match` text, or with it and more. */
bool grants_cover(const struct grants *mine, const struct grants *theirs, struct err *e);

/* "push", ...; NULL for anything else than one bit. */
const char *grants_role_name(unsigned role);
/* 0: no role is called this. */
unsigned grants_role_of(struct str name);

#endif

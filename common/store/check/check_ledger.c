/* SPDX-License-Identifier: Apache-2.0
 *
 * check_ledger: checks that the accepted writes less those that were deleted or expired are the
 * stored ones, service by service (ledger.h), down to the finest rows. Services that are older than
 * the ledger are not compared.
 */
#include "common/store/check/check_impl.h"
#include "common/store/ledger/ledger.h"

#define ROWS_STEP 65536

static int check_result(struct check *c, const struct ledger_result *r, struct err *e)
{
    int rc = 0;

    vec_for (i, &r->findings)
        if (!rc)
            rc = check_found(c, err_set(e, ERR_CORRUPT, "%s", r->findings.ptr[i].text), e);
    if (!rc && r->more)
        rc = check_found(c, err_set(e, ERR_CORRUPT, "and %" PRIu64 " more of it", r->more), e);
    return rc;
}

static int check_service(struct check *c, struct ledger_audit *a, struct err *e)
{
    bool done = false;
    int rc = 0;

    while (!rc && !done) {
        rc = check_row(c, e);
        if (rc)
            return rc;
        rc = store_ledger_audit(a, ROWS_STEP, SIZE_MAX, &done, e);
    }
    if (rc)
        return check_found(c, rc, e);
    return check_result(c, ledger_audit_result(a), e);
}

int check_ledger(struct check *c, struct err *e)
{
    uint32_t tenant = 0, scope = 0;
    int rc = 0;

    check_begin(c, CHECK_LEDGER);
    while (!rc) {
        struct ledger_audit *a;
        rc = check_found(c, store_ledger_next(c->v, tenant, scope, &a, e), e);
        if (rc || !a)
            break;
        tenant = ledger_audit_result(a)->tenant;
        scope = ledger_audit_result(a)->scope;
        rc = check_service(c, a, e);
        ledger_audit_free(a);
    }
    return rc;
}

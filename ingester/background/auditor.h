/* SPDX-License-Identifier: Apache-2.0
 *
 * auditor.h: compares the ledger of each shard (common/store/LEDGER.md) with the points that the
 * shard stores, in the background.
 */
#ifndef INGESTER_BACKGROUND_AUDITOR_H
#define INGESTER_BACKGROUND_AUDITOR_H

#include "ingester/base/state.h"

struct auditor;

/* After the shards are open. With scrub.audit_rate 0 it does nothing. */
struct auditor *auditor_new(struct ingester *in);
/* True while no step is at work; while the ingester drains none begins. */
bool auditor_idle(const struct auditor *a);
void auditor_free(struct auditor *a); /* when idle; NULL is fine */

/* What the last round found of a tenant in a shard. */
#define AUDITED_TEXTS  4
#define AUDITED_SCOPES 16
struct audited {
    uint64_t services, skipped;
    uint64_t must, found; /* writes */
    uint64_t difference, lost, doubled;
    int64_t at_ms; /* engine time; 0: never */
    char texts[AUDITED_TEXTS][ERR_TEXT_MAX];
    size_t texts_len;
    uint32_t tenant;                 /* its number */
    uint32_t scopes[AUDITED_SCOPES]; /* services that differ */
    size_t scopes_len, scopes_more;
};
/* What differed there was accepted: it is not shown any more, but for services that were not looked
 * at. A walk that is under way there restarts. Loop. */
void auditor_accepted(struct auditor *a, uint32_t shard, struct str tenant);
/* Any thread. */
void auditor_tenant(struct auditor *a, uint32_t shard, struct str tenant, struct audited *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * chores_idle.h: the chores of an engine that has nothing to do, for who tests a shard over a store
 * of its own. Definitions, so that the store itself is not linked: each program includes it once.
 */
#ifndef TESTS_LIB_ROLES_CHORES_IDLE_H
#define TESTS_LIB_ROLES_CHORES_IDLE_H

#include "common/store/build/build.h"
#include "common/store/exemplar/exm.h"
#include "common/store/ledger/acks.h"
#include "common/store/mask/tomb.h"
#include "common/store/retain/retain.h"

int store_build(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    (void)s, (void)rows_max, (void)e;
    *ret_more = false;
    return 0;
}

uint64_t store_build_wait_ms(const struct store *s)
{
    (void)s;
    return 60000;
}

int store_build_watch(struct store *s, bool *ret_more, struct err *e)
{
    (void)s, (void)e;
    *ret_more = false;
    return 0;
}

uint64_t store_build_watch_ms(struct store *s)
{
    (void)s;
    return 60000;
}

int store_acks_drop(struct store *s, bool *ret_more, struct err *e)
{
    (void)s, (void)e;
    *ret_more = false;
    return 0;
}

uint64_t store_acks_drop_ms(struct store *s)
{
    (void)s;
    return 60000;
}

int store_exemplars_retain(struct store *s, bool *ret_more, struct err *e)
{
    (void)s, (void)e;
    *ret_more = false;
    return 0;
}

uint64_t store_exemplars_retain_ms(struct store *s)
{
    (void)s;
    return 60000;
}

int store_retain(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    (void)s, (void)rows_max, (void)e;
    *ret_more = false;
    return 0;
}

uint64_t store_retain_wait_ms(const struct store *s)
{
    (void)s;
    return 60000;
}

int store_purge(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    (void)s, (void)rows_max, (void)e;
    *ret_more = false;
    return 0;
}

uint64_t store_purge_wait_ms(struct store *s)
{
    (void)s;
    return 60000;
}

void store_delete_stats(const struct store *s, struct tomb_stats *ret)
{
    (void)s;
    *ret = (struct tomb_stats){ 0 };
}

bool store_wants_quiet(const struct store *s)
{
    (void)s;
    return false;
}

#endif

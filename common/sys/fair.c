/* SPDX-License-Identifier: Apache-2.0
 *
 * fair.c: a key exists while it has items, and as long afterwards as its clock is ahead of the
 * queue's (it has had more than its share): its debt. The queue's clock is that of the key served
 * last, so it passes every debt as others are served; when the queue is empty, all debts are
 * cleared.
 *
 * Keys with items are found by a walk: there are as many as tenants that want something right now.
 */
#include "common/sys/fair.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"

#define DEBTORS_MAX 4096 /* keys without items that are remembered; the oldest is forgiven */

struct fair_key {
    uint64_t key;      /* first: its bytes are the map's key */
    struct list link;  /* in active, or in debtors */
    struct list items; /* waiting, first come first */
    size_t waiting, running, running_max;
    uint64_t weight; /* of the running ones */
    uint64_t clock;  /* what it has had */
    uint64_t turn;   /* when it was served last: ties go round */
};
struct fair {
    struct fair_opts o;
    struct map_str *keys; /* owned, with what it holds */
    struct list active, debtors;
    size_t debtors_len;
    size_t waiting, running;
    uint64_t clock, turns;
};

static struct str key_of(const struct fair_key *k)
{
    return str_n(&k->key, sizeof(k->key));
}

struct fair *fair_new(const struct fair_opts *o)
{
    struct fair *f = XNEW(struct fair);

    f->o = *o;
    f->keys = map_str_new();
    list_init(&f->active);
    list_init(&f->debtors);
    return f;
}

static void forget(struct fair *f, struct fair_key *k)
{
    CHECK(k->waiting == 0 && k->running == 0);
    list_del(&k->link);
    CHECK(map_str_del(f->keys, key_of(k)) == k);
    xfree(k);
}

static void forgive(struct fair *f)
{
    while (!list_empty(&f->debtors)) {
        struct fair_key *k = container_of(f->debtors.next, struct fair_key, link);
        if (f->debtors_len <= DEBTORS_MAX && k->clock > f->clock && f->waiting + f->running)
            return;
        f->debtors_len--;
        forget(f, k);
    }
}

void fair_free(struct fair *f)
{
    if (!f)
        return;
    CHECK(f->waiting == 0 && f->running == 0);
    forgive(f);
    CHECK(map_str_len(f->keys) == 0);
    map_str_free(f->keys);
    xfree(f);
}

bool fair_push(struct fair *f, uint64_t key, uint64_t cost, struct fair_item *i)
{
    struct fair_key *k = map_str_get(f->keys, str_n(&key, sizeof(key)));

    CHECK(!i->key && cost > 0);
    if (k && f->o.waiting_max && k->waiting >= f->o.waiting_max)
        return false;
    if (!k) {
        k = XNEW(struct fair_key);
        k->key = key;
        k->running_max = f->o.running_max;
        list_init(&k->items);
        list_init(&k->link);
        CHECK(!map_str_put(f->keys, key_of(k), k));
    }
    if (k->waiting + k->running == 0) { /* it comes, or comes back */
        f->debtors_len -= !list_empty(&k->link);
        list_del(&k->link);
        list_add_tail(&f->active, &k->link);
        k->clock = MAX(k->clock, f->clock);
    }
    i->key = k;
    i->cost = cost;
    i->running = i->paused = false;
    list_add_tail(&k->items, &i->link);
    k->waiting++;
    f->waiting++;
    return true;
}

void fair_limit(struct fair *f, uint64_t key, size_t running_max)
{
    struct fair_key *k = map_str_get(f->keys, str_n(&key, sizeof(key)));

    if (k)
        k->running_max = running_max;
}

static struct fair_item *first(const struct fair_key *k)
{
    return container_of(k->items.next, struct fair_item, link);
}

static bool may_run(const struct fair *f, const struct fair_key *k)
{
    if (k->waiting == 0 || (k->running_max && k->running >= k->running_max))
        return false;
    return !f->o.weight_max || k->running == 0 || k->weight + first(k)->weight <= f->o.weight_max;
}

struct fair_item *fair_next(struct fair *f)
{
    struct fair_key *best = NULL;

    list_for (it, &f->active) {
        struct fair_key *k = container_of(it, struct fair_key, link);
        if (!may_run(f, k))
            continue;
        if (!best || k->clock < best->clock || (k->clock == best->clock && k->turn < best->turn))
            best = k;
    }
    return best ? first(best) : NULL;
}

/* Moves a key's clock, within its debt; by how much. */
static uint64_t charge(struct fair *f, struct fair_key *k, uint64_t cost)
{
    uint64_t most = f->o.debt_max ? f->clock + f->o.debt_max : UINT64_MAX / 2;

    cost = MIN(cost, most - MIN(most, k->clock));
    k->clock += cost;
    return cost;
}

void fair_take(struct fair *f, struct fair_item *i)
{
    struct fair_key *k = i->key;

    CHECK(k && !i->running);
    i->running = true;
    i->paused = false;
    list_del(&i->link);
    k->waiting--;
    k->running++;
    k->weight += i->weight;
    f->waiting--;
    f->running++;
    k->turn = ++f->turns;
    f->clock = MAX(f->clock, k->clock);
    i->cost = charge(f, k, i->cost);
    forgive(f);
}

/* The key lost an item. */
static void settle(struct fair *f, struct fair_key *k)
{
    if (k->waiting + k->running)
        return;
    list_del(&k->link);
    list_add_tail(&f->debtors, &k->link);
    f->debtors_len++;
    forgive(f);
}

/* Its turn is over. */
static void stop(struct fair *f, struct fair_item *i, uint64_t cost)
{
    struct fair_key *k = i->key;

    CHECK(k && i->running);
    if (cost > i->cost)
        (void)charge(f, k, cost - i->cost);
    else if (cost)
        k->clock -= i->cost - cost;
    i->running = false;
    k->running--;
    k->weight -= i->weight;
    f->running--;
}

void fair_done(struct fair *f, struct fair_item *i, uint64_t cost)
{
    struct fair_key *k = i->key;

    stop(f, i, cost);
    i->key = NULL;
    settle(f, k);
}

void fair_pause(struct fair *f, struct fair_item *i, uint64_t cost, uint64_t guess)
{
    struct fair_key *k = i->key;

    CHECK(guess > 0);
    stop(f, i, cost);
    i->cost = guess;
    i->paused = true;
    list_add(&k->items, &i->link);
    k->waiting++;
    f->waiting++;
}

bool fair_ahead(const struct fair *f, const struct fair_item *i, uint64_t cost, bool running)
{
    uint64_t clock = i->key->clock + (cost > i->cost ? cost - i->cost : 0);

    CHECK(i->running);
    list_for (it, &f->active) {
        const struct fair_key *k = container_of(it, struct fair_key, link);
        if (k != i->key && k->clock < clock && (may_run(f, k) || (running && k->running > 0)))
            return true;
    }
    return false;
}

bool fair_alone(const struct fair_item *i)
{
    return i->key->waiting + i->key->running == 1;
}

void fair_drop(struct fair *f, struct fair_item *i)
{
    struct fair_key *k = i->key;

    CHECK(k && !i->running);
    list_del(&i->link);
    i->key = NULL;
    k->waiting--;
    f->waiting--;
    settle(f, k);
}

size_t fair_waiting(const struct fair *f)
{
    return f->waiting;
}

size_t fair_running(const struct fair *f)
{
    return f->running;
}

size_t fair_keys(const struct fair *f)
{
    return map_str_len(f->keys);
}

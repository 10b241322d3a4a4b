/* SPDX-License-Identifier: Apache-2.0
 *
 * control_world: the nodes, what must hold of their records always, and what in the end.
 */
#include "tests/lib/repl/control_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"

enum { TICK_MS = 200 };

struct str control_value(struct control_world *w, struct coord_key key, int64_t *ret_rev)
{
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));

    *ret_rev = kv ? kv->mod_rev : 0;
    return kv ? kv->value : STR_NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static struct control_node *node_of(const struct fs *fs)
{
    return container_of((uintptr_t)fs, struct control_node, files);
}

static int read_saved(const struct fs *fs, const char *path, struct buf *out, struct err *e)
{
    const struct control_node *n = node_of(fs);

    if (!n->saved.len)
        return err_set(e, ERR_NOT_FOUND, "no %s", path);
    return buf_add_str(out, buf_str(&n->saved)) ? 0 : err_set(e, ERR_LIMIT, "%s is too long", path);
}

static int write_saved(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    struct control_node *n = node_of(fs);

    (void)path;
    (void)e;
    buf_reset(&n->saved);
    assert_true(buf_add_str(&n->saved, data));
    return 0;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

void control_node_up(struct control_node *n)
{
    struct control_world *w = n->w;

    if (n->coord)
        return;
    n->coord = coord_sim_new(w->site);
    coord_sim_cut(n->coord, n->cut);
    n->view = view_new_coord(&(struct view_opts){ .loop = w->loop,
                                                  .coord = n->coord,
                                                  .prefix = CONTROL_PREFIX,
                                                  .fs = &n->files,
                                                  .file = "cluster.json",
                                                  .keeps = true,
                                                  .node = n->name });
    n->member = member_new(&(struct member_opts){ .loop = w->loop,
                                                  .coord = n->coord,
                                                  .view = n->view,
                                                  .prefix = CONTROL_PREFIX,
                                                  .name = n->name,
                                                  .addr = n->addr,
                                                  .zone = n->zone,
                                                  .id = n->id,
                                                  .ttl_ms = 3000 });
    n->lead = lead_new(&(struct lead_opts){ .loop = w->loop,
                                            .coord = n->coord,
                                            .view = n->view,
                                            .member = n->member,
                                            .prefix = CONTROL_PREFIX,
                                            .seed = n->id });
    n->controller = controller_new(&(struct controller_opts){ .loop = w->loop,
                                                              .coord = n->coord,
                                                              .view = n->view,
                                                              .member = n->member,
                                                              .prefix = CONTROL_PREFIX,
                                                              .shards = CONTROL_SHARDS,
                                                              .replicas = CONTROL_REPLICAS,
                                                              .settle_ms = 2000,
                                                              .replace_ms = 20000,
                                                              .moves_max = 3,
                                                              .spread_bytes = 1000,
                                                              .spread_after_ms = 60000,
                                                              .cluster_id = n->cluster_id });
}

void control_node_down(struct control_node *n)
{
    if (!n->coord)
        return;
    controller_free(n->controller);
    lead_free(n->lead);
    member_free(n->member);
    view_free(n->view);
    coord_free(n->coord);
    n->coord = NULL;
}

static struct control_node *node_called(struct control_world *w, const char *name)
{
    int i = 0;

    while (i < CONTROL_NODES && strcmp(w->nodes[i].name, name) != 0)
        i++;
    CHECK(i < CONTROL_NODES);
    return &w->nodes[i];
}

bool control_talks(struct control_world *w, const char *name)
{
    const struct control_node *n = node_called(w, name);

    return n->coord && !n->cut;
}

static bool majority_talks(struct control_world *w, const struct name_set *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->len; i++)
        n += control_talks(w, s->names[i]);
    return n > s->len / 2;
}

/* What common/repl does, as a model: a leader with a majority commits, the others follow. */
static void replicate(struct control_world *w, struct control_node *n, uint32_t shard,
                      const struct repl_record *r)
{
    bool mine = strcmp(r->leader, n->name) == 0;

    if (mine && !n->cut && majority_talks(w, &r->members) &&
        (!r->prev_members.len || majority_talks(w, &r->prev_members))) {
        w->commit[shard] += prng_below(&w->prng, 100);
        n->last[shard] = w->commit[shard];
        if (!r->established)
            lead_established(n->lead, shard, r->term);
    }
    if (!mine && !n->cut && control_talks(w, r->leader))
        n->last[shard] = MIN(w->commit[shard], n->last[shard] + 400 + prng_below(&w->prng, 2000));
}

static void node_tick(struct control_world *w, struct control_node *n)
{
    struct progress_shard all[CONTROL_SHARDS];
    struct progress_service busy = { STR("t"), STR("big"), w->rate };
    struct progress p = {
        .shards = all, .services = &busy, .services_len = w->rate > 0, .map = view_kept(n->view)
    };

    for (uint32_t i = 0; i < CONTROL_SHARDS; i++) {
        const struct repl_record *r = view_record(n->view, i, NULL);

        if (!r || (!name_set_has(&r->members, n->name) && !name_set_has(&r->learners, n->name)))
            continue;
        replicate(w, n, i, r);
        all[p.shards_len++] = (struct progress_shard){ .shard = i,
                                                       .term = r->term,
                                                       .last = n->last[i],
                                                       .commit = w->commit[i],
                                                       .leads = strcmp(r->leader, n->name) == 0,
                                                       .newest_ms = 1 };
    }
    member_report(n->member, &p);
}

static void on_tick(void *cookie)
{
    struct control_world *w = cookie;

    for (int i = 0; i < CONTROL_NODES; i++)
        if (w->nodes[i].coord)
            node_tick(w, &w->nodes[i]);
}

/* ---- what must hold always ------------------------------------------------------------------- */

static void check_records(struct control_world *w)
{
    if (w->whole || coord_site_rev(w->site) == w->rev)
        return;
    w->rev = coord_site_rev(w->site);
    for (uint32_t i = 0; i < CONTROL_SHARDS; i++) {
        struct repl_record r;
        struct str text;
        struct err e;
        int64_t rev;

        text = control_value(w, key_shard(STR(CONTROL_PREFIX), i), &rev);
        if (rev == w->seen_rev[i])
            continue;
        assert_int_not_equal(rev, 0);
        if (record_parse(text, &r, &e))
            fail_msg("shard %u: %s", i, e.text);
        if (w->seen_rev[i] && record_may_follow(&w->seen[i], &r, &e))
            fail_msg("shard %u: %s", i, e.text);
        assert_true(r.members.len >= CONTROL_REPLICAS);
        w->seen[i] = r;
        w->seen_rev[i] = rev;
        w->records++;
    }
}

void control_pass(struct control_world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&w->clock.clock) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < end) {
        (void)loop_sim_step(w->loop);
        check_records(w);
    }
}

/* ---- and in the end -------------------------------------------------------------------------- */

static void print_state(struct control_world *w)
{
    struct buf b;
    struct json j;
    int one = 0;

    for (int i = 0; i < CONTROL_NODES; i++) {
        const struct control_node *n = &w->nodes[i];
        if (!n->coord)
            continue;
        print_message("%s zone %s: %s%s, moving %u, %s\n", n->name, n->zone,
                      member_in(n->member) ? "in" : member_why(n->member),
                      controller_acts(n->controller) ? ", acts" : "",
                      controller_moving(n->controller), controller_says(n->controller));
        one = i;
    }
    buf_init(&b, MIB);
    json_init(&j, &b);
    json_obj(&j);
    view_json(w->nodes[one].view, &j);
    json_obj_end(&j);
    print_message("%.*s\n", STR_ARG(buf_str(&b)));
    buf_deinit(&b);
}

static bool zones_differ(struct control_world *w, const struct name_set *s)
{
    for (uint32_t i = 0; i < s->len; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(node_called(w, s->names[i])->zone, node_called(w, s->names[k])->zone) == 0)
                return false;
    return true;
}

/* NULL: all is well. */
static const char *what_is_wrong(struct control_world *w)
{
    uint32_t acting = 0, leads[CONTROL_NODES] = { 0 }, up = 0;

    for (int i = 0; i < CONTROL_NODES; i++) {
        struct control_node *n = &w->nodes[i];
        if (!n->coord)
            continue;
        up++;
        if (!member_in(n->member))
            return "a node is not in";
        acting += controller_acts(n->controller);
        if (controller_moving(n->controller))
            return "shards are on their way";
    }
    if (acting != 1)
        return "not one controller";
    for (uint32_t s = 0; s < CONTROL_SHARDS; s++) {
        const struct repl_record *r = &w->seen[s];
        if (!w->seen_rev[s] || !r->established)
            return "a term is not established";
        if (r->members.len != CONTROL_REPLICAS || r->learners.len)
            return "not the right number of replicas";
        if (!control_talks(w, r->leader))
            return "a leader is gone";
        if (up >= 6 && !zones_differ(w, &r->members))
            return "two replicas in a zone";
        leads[node_called(w, r->leader) - w->nodes]++;
    }
    for (int i = 0; i < CONTROL_NODES; i++)
        if (leads[i] > (CONTROL_SHARDS + up - 1) / up + 2)
            return "leaders are not spread";
    return NULL;
}

/* Something else in its place, or it again. */
void control_put_in_place(struct control_world *w, const struct coord_backup *other)
{
    w->whole = coord_site_backup(w->site);
    coord_site_restore(w->site, other);
}

void control_bring_back(struct control_world *w)
{
    if (!w->whole)
        return;
    coord_site_restore(w->site, w->whole);
    coord_backup_free(w->whole);
    w->whole = NULL;
}

void control_heal(struct control_world *w)
{
    const char *wrong = NULL;

    control_bring_back(w);

    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
    coord_site_away(w->site, false);
    for (int i = 0; i < CONTROL_NODES; i++) {
        w->nodes[i].cut = false;
        if (w->nodes[i].coord)
            coord_sim_cut(w->nodes[i].coord, false);
    }
    for (int i = 0; i < 240; i++) {
        control_pass(w, 1000);
        wrong = what_is_wrong(w);
        if (!wrong && i > 30)
            return;
    }
    print_state(w);
    fail_msg("after four minutes of peace: %s", wrong);
}

/* ---- life ------------------------------------------------------------------------------------ */

void control_open(struct control_world *w, uint64_t seed)
{
    *w = (struct control_world){ .rev = 0 };
    print_message("seed %llu\n", (unsigned long long)seed);
    clock_fake_init(&w->clock, 1700000000000);
    w->loop = loop_sim_new(&w->clock);
    prng_init(&w->prng, seed);
    w->site = coord_site_new(w->loop, seed);
    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
    for (int i = 0; i < CONTROL_NODES; i++) {
        struct control_node *n = &w->nodes[i];

        n->w = w;
        n->id = seed * 100 + (uint64_t)i + 1;
        (void)snprintf(n->cluster_id, sizeof(n->cluster_id), "%032llx", (unsigned long long)n->id);
        n->files = (struct fs){ .read_file = read_saved, .write_file = write_saved };
        buf_init(&n->saved, MIB);
        (void)snprintf(n->name, sizeof(n->name), "node-%d", i);
        (void)snprintf(n->zone, sizeof(n->zone), "z%d", i % 3);
        (void)snprintf(n->addr, sizeof(n->addr), "mem://%d", i);
    }
    w->tick = loop_timer_new(w->loop, on_tick, w);
    loop_timer_start(w->tick, TICK_MS, TICK_MS);
}

void control_close(struct control_world *w)
{
    for (int i = 0; i < CONTROL_NODES; i++) {
        control_node_down(&w->nodes[i]);
        buf_deinit(&w->nodes[i].saved);
    }
    coord_backup_free(w->whole);
    loop_timer_free(w->tick);
    coord_site_free(w->site);
    loop_free(w->loop);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Grants against a model over a small world: four tenants, one of which no grant names, and nine
 * label sets. The model walks all acts (a role, a tenant, a label set) and knows nothing of how
 * grants are stored or compared.
 *
 *   grants_cover(mine, theirs)  implies  each act that theirs allows, mine allows
 *
 * Pairs are made by narrowing one side at random, so that covers are common, and then breaking the
 * other at random. A refusal should have a reason in the model, too: where it has none the rule
 * was careful, and that may not happen too often.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "common/base/prng.h"
#include "common/identity/grant.h"

#define ROUNDS 60000
#define MAX_OF 3 /* grants of an identity */

enum { TENANTS = 4, ROLES = 7, VALUES = 3, SETS = VALUES * VALUES, MATCHERS = 2 };

static const char *const tenants[TENANTS] = { "a", "b", "c", "never" }; /* the last is not named */
static const char *const names[] = { "team", "env" };
static const char *const values[VALUES] = { "", "x", "y" }; /* "": the label is missing */
static const char *const role_names[ROLES] = { "push",         "read",    "delete", "tenant-admin",
                                               "server-admin", "gateway", "scrape" };
static const char *const ops[] = { "=", "!=", "=~", "!~" };
/* What a matcher may compare with, and which of the values that is (bits), as =~ takes it. */
static const struct {
    const char *text;
    unsigned hits;
} patterns[] = { { "x", 2 }, { "y", 4 }, { "x|y", 6 }, { ".*", 7 }, { "x?", 3 } };

enum { PUSH = 1, READ = 2, DELETE = 4, ADMIN = 8, SERVER = 16, GATEWAY = 32, SCRAPE = 64 };

struct spec_matcher {
    int name, op, pattern;
};
struct spec {
    unsigned tenants; /* bits of the first three; 8: all */
    unsigned roles;
    struct spec_matcher m[MATCHERS];
    int m_len;
    int set[2]; /* value of each name; 0: not set */
    bool edit;
};
struct identity {
    struct spec g[MAX_OF];
    int len;
};

/* ---- the model ------------------------------------------------------------------------------- */

static bool in_tenant(const struct spec *s, int tenant)
{
    return s->tenants & 8 || (tenant < 3 && s->tenants >> tenant & 1);
}

static bool selects(const struct spec *s, const int at[2])
{
    for (int i = 0; i < s->m_len; i++) {
        const struct spec_matcher *m = &s->m[i];
        /* = and != compare with the text of the pattern, which is a value for the first two. */
        unsigned hits = m->op >= 2        ? patterns[m->pattern].hits
                        : m->pattern == 0 ? 2u
                        : m->pattern == 1 ? 4u
                                          : 0u;
        bool hit = hits >> at[m->name] & 1;

        if (hit == (m->op == 1 || m->op == 3))
            return false;
    }
    return true;
}

static bool may_see(const struct identity *id, unsigned role, int tenant, const int at[2])
{
    for (int i = 0; i < id->len; i++)
        if (in_tenant(&id->g[i], tenant) && id->g[i].roles & (role | ADMIN) &&
            selects(&id->g[i], at))
            return true;
    return false;
}

static bool may_edit(const struct identity *id, int tenant, const int at[2])
{
    for (int i = 0; i < id->len; i++)
        if (in_tenant(&id->g[i], tenant) && (id->g[i].edit || id->g[i].roles & ADMIN) &&
            selects(&id->g[i], at))
            return true;
    return false;
}

/* May a push end as a series with these labels? Labels of all grants are set, and two values for
 * one label let no push through. */
static bool may_push(const struct identity *id, int tenant, const int at[2])
{
    bool any = false;

    for (int i = 0; i < id->len; i++) {
        const struct spec *s = &id->g[i];

        if (!in_tenant(s, tenant) || !(s->roles & (PUSH | ADMIN)))
            continue;
        any = true;
        for (int k = 0; k < 2; k++)
            if (s->set[k] && s->set[k] != at[k])
                return false;
    }
    return any;
}

static bool has(const struct identity *id, unsigned role, int tenant)
{
    for (int i = 0; i < id->len; i++)
        if (in_tenant(&id->g[i], tenant) && id->g[i].roles & role)
            return true;
    return false;
}

static bool allows(const struct identity *id, int act, int tenant, const int at[2])
{
    switch (act) {
    case 0:
        return may_push(id, tenant, at);
    case 1:
        return may_see(id, READ, tenant, at);
    case 2:
        return may_see(id, DELETE, tenant, at);
    case ROLES:
        return may_edit(id, tenant, at);
    default:
        return has(id, 1u << act, tenant);
    }
}

/* Is there an act that theirs allows and mine does not? */
static bool exceeds(const struct identity *mine, const struct identity *theirs)
{
    for (int act = 0; act <= ROLES; act++)
        for (int tenant = 0; tenant < TENANTS; tenant++)
            for (int set = 0; set < SETS; set++) {
                const int at[2] = { set % VALUES, set / VALUES };

                if (allows(theirs, act, tenant, at) && !allows(mine, act, tenant, at))
                    return true;
            }
    return false;
}

/* ---- random identities ----------------------------------------------------------------------- */

static int below(struct prng *p, int n)
{
    return (int)prng_below(p, (uint64_t)n);
}

static bool chance(struct prng *p, int percent)
{
    return below(p, 100) < percent;
}

static struct spec_matcher matcher(struct prng *p)
{
    return (struct spec_matcher){ below(p, 2), below(p, 4), below(p, (int)ARRAY_LEN(patterns)) };
}

/* What the reader of grants would refuse is taken away. */
static void make_valid(struct spec *s)
{
    if (!s->tenants || s->tenants & 8)
        s->tenants = 8;
    if (!(s->tenants & 8))
        s->roles &= ~(unsigned)(SERVER | SCRAPE);
    if (!s->roles)
        s->roles = READ;
    if (!(s->roles & (READ | DELETE)))
        s->m_len = 0;
    if (!(s->roles & PUSH))
        s->set[0] = s->set[1] = 0;
    if (!(s->roles & READ))
        s->edit = false;
}

static struct spec grant(struct prng *p)
{
    struct spec s = { .tenants = chance(p, 25) ? 8 : (unsigned)below(p, 8) };

    for (int i = 0; i < ROLES; i++)
        s.roles |= chance(p, i < 3 ? 45 : 12) ? 1u << i : 0;
    for (s.m_len = 0; s.m_len < MATCHERS && chance(p, 40); s.m_len++)
        s.m[s.m_len] = matcher(p);
    for (int k = 0; k < 2; k++)
        s.set[k] = chance(p, 30) ? 1 + below(p, VALUES - 1) : 0;
    s.edit = chance(p, 30);
    make_valid(&s);
    return s;
}

static struct identity identity(struct prng *p)
{
    struct identity id = { .len = 1 + below(p, MAX_OF) };

    for (int i = 0; i < id.len; i++)
        id.g[i] = grant(p);
    return id;
}

/* One change, mostly to less. */
static void change(struct prng *p, struct spec *s)
{
    switch (below(p, 7)) {
    case 0:
        s->tenants = s->tenants & 8 ? (unsigned)below(p, 8) : s->tenants & (unsigned)below(p, 8);
        break;
    case 1:
        s->roles &= ~(1u << below(p, ROLES));
        break;
    case 2:
        if (s->m_len < MATCHERS)
            s->m[s->m_len++] = matcher(p);
        break;
    case 3:
        s->set[below(p, 2)] = below(p, VALUES);
        break;
    case 4:
        s->edit = chance(p, 20);
        break;
    case 5:
        if (chance(p, 40))
            s->roles |= 1u << below(p, ROLES);
        break;
    default:
        if (chance(p, 40) && s->m_len)
            s->m_len--;
        break;
    }
    make_valid(s);
}

static struct identity narrower(struct prng *p, const struct identity *of)
{
    struct identity id = *of;

    if (chance(p, 10))
        return identity(p);

    if (id.len > 1 && chance(p, 30)) {
        int drop = below(p, id.len);
        id.g[drop] = id.g[--id.len];
    }
    for (int n = below(p, 6); n > 0; n--)
        change(p, &id.g[below(p, id.len)]);
    return id;
}

/* ---- grants of an identity ------------------------------------------------------------------- */

static void put_match(const struct spec *s, struct json *j)
{
    struct buf b;

    buf_init(&b, KIB);
    for (int i = 0; i < s->m_len; i++)
        buf_addf(&b, "%s%s%s\"%s\"", i ? ", " : "{", names[s->m[i].name], ops[s->m[i].op],
                 patterns[s->m[i].pattern].text);
    buf_add_c(&b, '}');
    json_put_str(j, "match", buf_str(&b));
    buf_deinit(&b);
}

static void put_grant(const struct spec *s, struct json *j)
{
    json_obj(j);
    json_key(j, "tenants");
    json_arr(j);
    for (int i = 2; i >= 0; i--) /* not in order: the reader sorts */
        if (!(s->tenants & 8) && s->tenants >> i & 1)
            json_cstr(j, tenants[i]);
    if (s->tenants & 8)
        json_cstr(j, "*");
    json_arr_end(j);
    json_key(j, "roles");
    json_arr(j);
    for (int i = 0; i < ROLES; i++)
        if (s->roles >> i & 1)
            json_cstr(j, role_names[i]);
    json_arr_end(j);
    if (s->m_len)
        put_match(s, j);
    if (s->set[0] || s->set[1]) {
        json_key(j, "set");
        json_obj(j);
        for (int k = 0; k < 2; k++)
            if (s->set[k])
                json_put_cstr(j, names[k], values[s->set[k]]);
        json_obj_end(j);
    }
    if (s->edit)
        json_put_bool(j, "edit", true);
    json_obj_end(j);
}

static struct grants read_text(struct str text, struct arena *a)
{
    struct json_doc *doc;
    struct grants ret = { 0 };
    struct err e;

    if (json_parse(text, &doc, &e) || grants_read(json_root(doc), a, &ret, &e))
        fail_msg("%.*s: %s", STR_ARG(text), e.text);
    json_doc_free(doc);
    return ret;
}

static struct grants grants_of(const struct identity *id, struct arena *a, struct buf *text)
{
    struct json j;

    buf_reset(text);
    json_init(&j, text);
    json_arr(&j);
    for (int i = 0; i < id->len; i++)
        put_grant(&id->g[i], &j);
    json_arr_end(&j);
    return read_text(buf_str(text), a);
}

/* ---- properties ------------------------------------------------------------------------------ */

struct world {
    struct prng p;
    struct arena *arena;
    struct buf mine, theirs, last;
};

static void world_init(struct world *w)
{
    const char *given = getenv("SEED");
    uint64_t seed = 20261128;

    if (given)
        (void)str_u64(str_c(given), &seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&w->p, seed);
    w->arena = arena_new(MIB);
    buf_init(&w->mine, 64 * KIB);
    buf_init(&w->theirs, 64 * KIB);
    buf_init(&w->last, 64 * KIB);
}

static void world_deinit(struct world *w)
{
    arena_free(w->arena);
    buf_deinit(&w->mine);
    buf_deinit(&w->theirs);
    buf_deinit(&w->last);
}

static void test_cover_gives_no_more(void **state)
{
    (void)state;
    size_t covers = 0, reasons = 0, careful = 0;
    struct world w;

    world_init(&w);
    for (int round = 0; round < ROUNDS; round++) {
        struct identity mine = identity(&w.p), theirs = narrower(&w.p, &mine);
        struct grants m = grants_of(&mine, w.arena, &w.mine);
        struct grants t = grants_of(&theirs, w.arena, &w.theirs);
        struct err e = { .code = 0 };
        bool covered = grants_cover(&m, &t, &e), more = exceeds(&mine, &theirs);

        if (covered && more)
            fail_msg("round %d: %.*s\nis said to cover %.*s", round, STR_ARG(buf_str(&w.mine)),
                     STR_ARG(buf_str(&w.theirs)));
        if (!covered && (e.code != ERR_FORBIDDEN || !str_starts(str_c(e.text), STR("grants["))))
            fail_msg("round %d: no reason: %s", round, e.text);
        covers += covered;
        reasons += more;
        careful += !covered && !more;
        grants_deinit(&m);
        grants_deinit(&t);
        arena_reset(w.arena);
    }
    print_message("%zu covers, %zu refusals with a reason, %zu without\n", covers, reasons,
                  careful);
    assert_true(covers > ROUNDS / 4);
    assert_true(reasons > ROUNDS / 10);
    assert_true(careful < ROUNDS / 10);
    world_deinit(&w);
}

static void test_cover_is_an_order(void **state)
{
    (void)state;
    size_t chains = 0;
    struct world w;
    struct err e;

    world_init(&w);
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct identity id[3];
        struct grants g[3];

        id[0] = identity(&w.p);
        id[1] = narrower(&w.p, &id[0]);
        id[2] = narrower(&w.p, &id[1]);
        g[0] = grants_of(&id[0], w.arena, &w.mine);
        g[1] = grants_of(&id[1], w.arena, &w.theirs);
        g[2] = grants_of(&id[2], w.arena, &w.last);
        assert_true(grants_cover(&g[0], &g[0], &e));
        if (grants_cover(&g[0], &g[1], &e) && grants_cover(&g[1], &g[2], &e)) {
            chains++;
            if (!grants_cover(&g[0], &g[2], &e))
                fail_msg("round %d: %.*s\n%.*s\n%.*s: %s", round, STR_ARG(buf_str(&w.mine)),
                         STR_ARG(buf_str(&w.theirs)), STR_ARG(buf_str(&w.last)), e.text);
        }
        for (int i = 0; i < 3; i++)
            grants_deinit(&g[i]);
        arena_reset(w.arena);
    }
    assert_true(chains > ROUNDS / 40);
    world_deinit(&w);
}

/* Roles, limits of reads, the only tenant; and what is written reads back to the same. */
static void test_questions(void **state)
{
    (void)state;
    static const int any[SETS][2] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 0, 1 }, { 1, 1 },
                                      { 2, 1 }, { 0, 2 }, { 1, 2 }, { 2, 2 } };
    struct world w;

    world_init(&w);
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct identity id = identity(&w.p);
        struct grants g = grants_of(&id, w.arena, &w.mine);
        unsigned named = 0;
        struct json j;

        for (int t = 0; t < TENANTS; t++) {
            unsigned want = 0;
            for (int i = 0; i < id.len; i++)
                if (in_tenant(&id.g[i], t))
                    want |= id.g[i].roles | (id.g[i].roles & ADMIN ? PUSH | READ | DELETE : 0u);
            assert_int_equal(grants_roles(&g, str_c(tenants[t])), want);
            if (t == 3)
                assert_int_equal(grants_roles(&g, STR_NULL), want);
            if (grants_read_all(&g, ROLE_READ, str_c(tenants[t])))
                for (int s = 0; s < SETS; s++)
                    assert_true(may_see(&id, READ, t, any[s]));
        }
        for (int i = 0; i < id.len; i++)
            named |= id.g[i].tenants;
        struct str only = grants_only_tenant(&g);
        if (named == 1 || named == 2 || named == 4)
            assert_true(str_eqc(only, tenants[named / 2]));
        else
            assert_null(only.ptr);
        buf_reset(&w.theirs);
        buf_reset(&w.last);
        json_init(&j, &w.theirs);
        grants_write(&g, &j);
        struct grants again = read_text(buf_str(&w.theirs), w.arena);
        json_init(&j, &w.last);
        grants_write(&again, &j);
        assert_true(str_eq(buf_str(&w.theirs), buf_str(&w.last)));
        grants_deinit(&g);
        grants_deinit(&again);
        arena_reset(w.arena);
    }
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover_gives_no_more),
        cmocka_unit_test(test_cover_is_an_order),
        cmocka_unit_test(test_questions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * record: the rules of a shard's record, and its text.
 *
 * The rules are here and not where they are used, since replicas, the controller and an operator's
 * command all write records: a record that these functions refuse cannot come into being.
 */
#include "common/cluster/map/record.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/net/json_in.h"

/* ---- names ----------------------------------------------------------------------------------- */

bool node_name_ok(struct str name)
{
    if (name.len == 0 || name.len > NODE_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

        if (!word && (i == 0 || (c != '-' && c != '_' && c != '.')))
            return false;
    }
    return true;
}

static void name_set_put(char to[NODE_NAME_MAX + 1], struct str name)
{
    CHECK(name.len <= NODE_NAME_MAX);
    memset(to, 0, NODE_NAME_MAX + 1);
    if (name.len)
        memcpy(to, name.ptr, name.len);
}

bool name_set_has(const struct name_set *s, const char *name)
{
    for (uint32_t i = 0; i < s->len; i++)
        if (strcmp(s->names[i], name) == 0)
            return true;
    return false;
}

bool name_set_add(struct name_set *s, const char *name)
{
    if (s->len == RECORD_SET_MAX || name_set_has(s, name))
        return false;
    name_set_put(s->names[s->len++], str_c(name));
    return true;
}

bool name_set_del(struct name_set *s, const char *name)
{
    for (uint32_t i = 0; i < s->len; i++) {
        if (strcmp(s->names[i], name) != 0)
            continue;
        s->len--;
        for (; i < s->len; i++)
            memcpy(s->names[i], s->names[i + 1], sizeof(s->names[i]));
        memset(s->names[s->len], 0, sizeof(s->names[0]));
        return true;
    }
    return false;
}

bool name_set_eq(const struct name_set *a, const struct name_set *b)
{
    if (a->len != b->len)
        return false;
    for (uint32_t i = 0; i < a->len; i++)
        if (!name_set_has(b, a->names[i]))
            return false;
    return true;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static int check_set(const struct name_set *s, const char *what, struct err *e)
{
    if (s->len > RECORD_SET_MAX)
        return err_set(e, ERR_INPUT, "%u %s, at most %d", s->len, what, RECORD_SET_MAX);
    for (uint32_t i = 0; i < s->len; i++) {
        if (!node_name_ok(str_c(s->names[i])))
            return err_set(e, ERR_INPUT, "%s: \"%s\" is no name of a node", what, s->names[i]);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(s->names[i], s->names[k]) == 0)
                return err_set(e, ERR_INPUT, "%s: %s twice", what, s->names[i]);
    }
    return 0;
}

int record_check(const struct repl_record *r, struct err *e)
{
    int code = check_set(&r->members, "members", e);

    if (!code)
        code = check_set(&r->learners, "learners", e);
    if (!code)
        code = check_set(&r->prev_members, "prev_members", e);
    if (code)
        return code;
    if (r->term == 0)
        return err_set(e, ERR_INPUT, "term 0; terms begin with 1");
    if (r->term > RECORD_TERM_MAX)
        return err_set(e, ERR_INPUT,
                       "term %" PRIu64 " is above the highest one, %" PRIu64
                       ": the record in etcd was changed by hand, or is damaged",
                       r->term, RECORD_TERM_MAX);
    if (!name_set_has(&r->members, r->leader))
        return err_set(e, ERR_INPUT, "the leader \"%s\" is not a member", r->leader);
    for (uint32_t i = 0; i < r->learners.len; i++)
        if (name_set_has(&r->members, r->learners.names[i]))
            return err_set(e, ERR_INPUT, "%s is a learner and a member", r->learners.names[i]);
    if (r->established && r->prev_members.len)
        return err_set(e, ERR_INPUT, "an established record names previous members");
    return 0;
}

/* How many names are in one and not in the other. */
static uint32_t set_difference(const struct name_set *a, const struct name_set *b)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->len; i++)
        n += !name_set_has(b, a->names[i]);
    for (uint32_t i = 0; i < b->len; i++)
        n += !name_set_has(a, b->names[i]);
    return n;
}

static int same_term(const struct repl_record *old, const struct repl_record *next, struct err *e)
{
    if (strcmp(old->leader, next->leader) != 0 || !name_set_eq(&old->members, &next->members))
        return err_set(e, ERR_CONFLICT, "another leader or member within term %" PRIu64, old->term);
    if (old->established && !next->established)
        return err_set(e, ERR_CONFLICT, "term %" PRIu64 " was established before", old->term);
    if (!next->established && !name_set_eq(&old->prev_members, &next->prev_members))
        return err_set(e, ERR_CONFLICT, "the previous members changed within term %" PRIu64,
                       old->term);
    return 0;
}

int record_may_follow(const struct repl_record *old, const struct repl_record *next, struct err *e)
{
    const struct name_set *before = old->established ? &old->members : &old->prev_members;
    int code = record_check(next, e);

    if (code)
        return code;
    if (next->term == old->term)
        return same_term(old, next, e);
    if (next->term != old->term + 1)
        return err_set(e, ERR_CONFLICT, "term %" PRIu64 " after %" PRIu64, next->term, old->term);
    if (next->established)
        return err_set(e, ERR_CONFLICT, "a new term is never established at once");
    if (!name_set_eq(before, &next->prev_members))
        return err_set(e, ERR_CONFLICT, "prev_members are not those of the last established term");
    if (set_difference(&old->members, &next->members) > 1)
        return err_set(e, ERR_CONFLICT, "members changed by more than one");
    if (!old->established && !name_set_eq(&old->members, &next->members) &&
        !(before->len && name_set_eq(before, &next->members)))
        return err_set(e, ERR_CONFLICT, "members change only when term %" PRIu64 " is established",
                       old->term);
    return 0;
}

static bool set_same(const struct name_set *a, const struct name_set *b)
{
    if (a->len != b->len)
        return false;
    for (uint32_t i = 0; i < a->len; i++)
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    return true;
}

bool record_eq(const struct repl_record *a, const struct repl_record *b)
{
    return a->term == b->term && a->established == b->established &&
           strcmp(a->leader, b->leader) == 0 && set_same(&a->members, &b->members) &&
           set_same(&a->learners, &b->learners) && set_same(&a->prev_members, &b->prev_members);
}

/* ---- the next one ---------------------------------------------------------------------------- */

static void next_term(const struct repl_record *old, struct repl_record *ret)
{
    struct repl_record r = *old;

    r.term = old->term + 1;
    r.established = false;
    r.prev_members = old->established ? old->members : old->prev_members;
    *ret = r;
}

void record_next_leader(const struct repl_record *old, const char *leader, struct repl_record *ret)
{
    CHECK(name_set_has(&old->members, leader));
    next_term(old, ret);
    name_set_put(ret->leader, str_c(leader));
}

int record_next_add(const struct repl_record *old, const char *name, struct repl_record *ret,
                    struct err *e)
{
    struct repl_record r;

    next_term(old, &r);
    (void)name_set_del(&r.learners, name);
    if (!name_set_add(&r.members, name))
        return err_set(e, ERR_CONFLICT, "%s is a member, or there are %d", name, RECORD_SET_MAX);
    int code = record_may_follow(old, &r, e);
    if (!code)
        *ret = r;
    return code;
}

int record_next_remove(const struct repl_record *old, const char *name, const char *leader,
                       struct repl_record *ret, struct err *e)
{
    struct repl_record r;

    next_term(old, &r);
    if (!name_set_del(&r.members, name))
        return err_set(e, ERR_CONFLICT, "%s is no member", name);
    name_set_put(r.leader, str_c(leader));
    int code = record_may_follow(old, &r, e);
    if (!code)
        *ret = r;
    return code;
}

bool record_undo_member_change(const struct repl_record *old, const char *leader,
                               struct repl_record *ret)
{
    struct repl_record r;
    struct err e;

    if (old->established || !name_set_has(&old->prev_members, leader) ||
        name_set_eq(&old->prev_members, &old->members))
        return false;
    next_term(old, &r);
    r.members = old->prev_members;
    for (uint32_t i = 0; i < r.members.len; i++)
        (void)name_set_del(&r.learners, r.members.names[i]);
    for (uint32_t i = 0; i < old->members.len; i++)
        if (!name_set_has(&r.members, old->members.names[i]))
            (void)name_set_add(&r.learners, old->members.names[i]);
    name_set_put(r.leader, str_c(leader));
    if (record_may_follow(old, &r, &e))
        return false;
    *ret = r;
    return true;
}

void record_established(const struct repl_record *old, struct repl_record *ret)
{
    struct repl_record r = *old;

    r.established = true;
    memset(&r.prev_members, 0, sizeof(r.prev_members));
    *ret = r;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void write_set(struct json *j, const char *key, const struct name_set *s)
{
    if (!s->len)
        return;
    json_key(j, key);
    json_arr(j);
    for (uint32_t i = 0; i < s->len; i++)
        json_cstr(j, s->names[i]);
    json_arr_end(j);
}

void record_write(const struct repl_record *r, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_u64(&j, "term", r->term);
    json_put_cstr(&j, "leader", r->leader);
    write_set(&j, "members", &r->members);
    write_set(&j, "learners", &r->learners);
    write_set(&j, "prev_members", &r->prev_members);
    json_put_bool(&j, "established", r->established);
    json_obj_end(&j);
}

static int parse_name(const struct json_val *v, const char *what, char to[NODE_NAME_MAX + 1],
                      struct err *e)
{
    struct str s = STR_NULL;
    int code = json_take_str(v, what, &s, e);

    if (code)
        return code;
    if (!node_name_ok(s))
        return err_set(e, ERR_INPUT, "%s: \"%.*s\" is no name of a node", what,
                       STR_ARG(str_sub(s, 0, NODE_NAME_MAX)));
    name_set_put(to, s);
    return 0;
}

static int parse_set(const struct json_val *v, const char *what, struct name_set *ret,
                     struct err *e)
{
    if (!v)
        return 0;
    if (!json_is_arr(v))
        return err_set(e, ERR_INPUT, "%s is no list", what);
    if (json_len(v) > RECORD_SET_MAX)
        return err_set(e, ERR_INPUT, "%zu %s, at most %d", json_len(v), what, RECORD_SET_MAX);
    for (size_t i = 0; i < json_len(v); i++) {
        int code = parse_name(json_at(v, i), what, ret->names[i], e);

        if (code)
            return code;
        ret->len++;
    }
    return 0;
}

static int parse_root(const struct json_val *root, struct repl_record *r, struct err *e)
{
    int64_t term = 0;
    int code = json_take_i64(json_get(root, "term", NULL), "term", &term, e);

    if (!code && term <= 0)
        code = err_set(e, ERR_INPUT, "term %" PRId64 "; terms begin with 1", term);
    r->term = (uint64_t)term;
    if (!code)
        code = parse_name(json_get(root, "leader", NULL), "leader", r->leader, e);
    if (!code)
        code = parse_set(json_get(root, "members", NULL), "members", &r->members, e);
    if (!code)
        code = parse_set(json_get(root, "learners", NULL), "learners", &r->learners, e);
    if (!code)
        code = parse_set(json_get(root, "prev_members", NULL), "prev_members", &r->prev_members, e);
    if (!code)
        code =
            json_take_bool(json_get(root, "established", NULL), "established", &r->established, e);
    return code ? code : record_check(r, e);
}

int record_parse(struct str text, struct repl_record *ret, struct err *e)
{
    struct repl_record r = { 0 };
    struct json_doc *doc = NULL;
    int code;

    if (text.len > RECORD_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a record of %zu bytes, at most %zu", text.len,
                       (size_t)RECORD_BYTES_MAX);
    code = json_parse(text, &doc, e);
    if (!code)
        code = parse_root(json_root(doc), &r, e);
    json_doc_free(doc);
    if (!code)
        *ret = r;
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_labels: which service a sample belongs to, and what its series is called.
 *
 * Parca knows no services: its series are label sets. The service is the first of `service_names`
 * that a set has. An agent on a Kubernetes node takes from its relabelling what a workload is
 * (service_name, job, app), or knows the container; without any of that the name of the program
 * (comm) is the best there is, and better than one service for a whole machine.
 *
 * Labels that number threads and CPUs are left out (option): otherwise each thread and CPU would be
 * a permanent series. Their samples are added up with those of the same program.
 */
#include "distributor/parca/parca_labels.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "distributor/formats/push.h"

static const char *const service_names[] = {
    "service_name", "job", "app_kubernetes_io_name", "app", "container", "systemd_unit", "comm",
};

static bool in_list(const char *list, struct str name)
{
    struct str rest = str_c(list), part;
    bool more = true;

    while (str_next(&rest, ',', &more, &part))
        if (str_eq(str_trim(part), name))
            return true;
    return false;
}

static bool plain(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= '0' && c <= '9' && !first);
}

/* A copy in which every byte that a name cannot have is '_'. False: the arena is full. */
static bool clean_name(struct str name, struct arena *a, struct str *ret)
{
    bool digit = name.ptr[0] >= '0' && name.ptr[0] <= '9';
    char *to = arena_alloc(a, name.len + 1);

    if (!to)
        return false;
    to[0] = '_';
    for (size_t i = 0; i < name.len; i++)
        to[i + digit] = plain(name.ptr[i], i == 0 && !digit) ? name.ptr[i] : '_';
    *ret = str_n(to, name.len + digit);
    return true;
}

static bool clean_value(struct str v, const struct limits *l, struct arena *a, struct str *ret)
{
    char *to;

    *ret = STR(PARCA_OVERFLOW);
    if (v.len > l->label_value_bytes)
        return true;
    to = arena_alloc(a, v.len + 1);
    if (!to)
        return false;
    memcpy(to, v.ptr, v.len);
    if (!str_utf8_valid(v))
        for (size_t i = 0; i < v.len; i++)
            to[i] = (unsigned char)v.ptr[i] < 0x80 ? v.ptr[i] : '?';
    *ret = str_n(to, v.len);
    return true;
}

static int label_cmp(const void *a, const void *b)
{
    return str_cmp(((const struct label *)a)->name, ((const struct label *)b)->name);
}

static int full(const struct arena *a, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the labels take more than %zu bytes of memory", arena_limit(a));
}

/* The ids of a sample are no labels; what is hidden otherwise is dropped without a word. */
static bool take_hidden(const struct label *given, struct parca_set *s)
{
    enum exid_kind kind = exid_label(given->name);

    if (kind != EXID_NONE && !exid_parse(given->value, &s->ids[kind]))
        s->ids[kind].len = 0;
    return push_label_hidden(given->name);
}

/* The labels that stay, each name once. False: the arena is full. */
static bool take_labels(const struct labels *sent, const char *drop, const struct limits *l,
                        struct arena *a, struct parca_set *s)
{
    const struct label *given = sent->ptr;

    for (size_t i = 0; i < sent->len; i++) {
        struct label label;
        if (given[i].value.len == 0 || take_hidden(&given[i], s) || in_list(drop, given[i].name))
            continue;
        if (given[i].name.len == 0 || given[i].name.len >= l->label_name_bytes) {
            s->dropped++;
            continue;
        }
        if (!clean_name(given[i].name, a, &label.name) ||
            !clean_value(given[i].value, l, a, &label.value))
            return false;
        bool again = push_label_hidden(label.name);
        for (size_t k = 0; k < s->labels.len && !again; k++)
            again = str_eq(s->labels.ptr[k].name, label.name);
        if (again)
            s->dropped++;
        else
            s->labels.ptr[s->labels.len++] = label;
    }
    return true;
}

int parca_set(const struct labels *given, const char *drop, const struct limits *l, struct arena *a,
              struct parca_set *ret, struct err *e)
{
    struct parca_set s = { .labels = { ARENA_ARRAY(a, struct label, given->len + 1), 0 } };
    size_t most = (size_t)l->label_names > 2 ? (size_t)l->label_names - 2 : 0;

    if (!s.labels.ptr || !take_labels(given, drop, l, a, &s))
        return full(a, e);
    if (s.labels.len > 1)
        qsort(s.labels.ptr, s.labels.len, sizeof(*s.labels.ptr), label_cmp);
    for (size_t i = 0; i < ARRAY_LEN(service_names) && s.service.len == 0; i++)
        s.service = labels_get(&s.labels, str_c(service_names[i]));
    labels_del(&s.labels, STR("service_name")); /* these two every push has */
    labels_del(&s.labels, STR("pyroscope_spy"));
    if (s.service.len == 0)
        s.service = STR(PARCA_NO_SERVICE);
    if (s.labels.len > most) { /* service_name and pyroscope_spy come to them */
        s.dropped += s.labels.len - most;
        s.labels.len = most;
    }
    *ret = s;
    return 0;
}

void parca_sets_init(struct parca_sets *s)
{
    map_u64_init(&s->sent_ids);
    map_u64_init(&s->set_ids);
}

void parca_sets_deinit(struct parca_sets *s)
{
    vec_free(&s->sent);
    vec_free(&s->sets);
    map_u64_deinit(&s->sent_ids);
    map_u64_deinit(&s->set_ids);
}

static bool same_values(const struct str *a, const struct str *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!str_eq(a[i], b[i]))
            return false;
    return true;
}

/* The set equal to *set, which is added if it is new. */
static uint32_t find_set(struct parca_sets *s, const struct parca_set *set)
{
    uint32_t next = (uint32_t)s->sets.len;
    uint64_t h = labels_hash(&set->labels, hash64(set->service.ptr, set->service.len, s->seed));

    for (;; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(&s->set_ids, h, next);
        if (at == MAP_U64_EMPTY)
            break;
        if (str_eq(s->sets.ptr[at].service, set->service) &&
            labels_eq(&s->sets.ptr[at].labels, &set->labels))
            return at;
    }
    vec_push(&s->sets, *set);
    return next;
}

static int add_sent(struct parca_sets *s, const struct str *values, struct err *e)
{
    struct label *given = ARENA_ARRAY(s->arena, struct label, s->columns + 1);
    struct str *copy = ARENA_ARRAY(s->arena, struct str, s->columns + 1);
    struct parca_sent sent = { .values = copy };
    struct parca_set set;

    if (!given || !copy)
        return full(s->arena, e);
    for (size_t i = 0; i < s->columns; i++) {
        copy[i] = values[i];
        given[i] = (struct label){ s->names[i], values[i] };
    }
    if (parca_set(&(struct labels){ given, s->columns }, s->drop, s->limits, s->arena, &set, e))
        return e->code;
    sent.set = find_set(s, &set);
    memcpy(sent.ids, set.ids, sizeof(sent.ids));
    vec_push(&s->sent, sent);
    return 0;
}

int parca_sets_find(struct parca_sets *s, const struct str *values, uint32_t *ret, struct err *e)
{
    uint32_t next = (uint32_t)s->sent.len;
    uint64_t h = s->seed;

    for (size_t i = 0; i < s->columns; i++)
        if (values[i].ptr)
            h = hash64(values[i].ptr, values[i].len, h + i);
    for (;; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(&s->sent_ids, h, next);
        *ret = at == MAP_U64_EMPTY ? next : at;
        if (at == MAP_U64_EMPTY)
            return add_sent(s, values, e);
        if (same_values(s->sent.ptr[at].values, values, s->columns))
            return 0;
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_known: the tables of sessions, three columns each.
 *
 * Sessions of a dictionary stand in a list, the one used last in front: a service has one or two by
 * distributor. Their bytes are charged to the dictionary, whose cache drops it as a whole when
 * memory is short.
 */
#include "common/store/dict/dict_known.h"

#include "common/base/mem.h"

struct dict_session {
    struct list link; /* of dict.sessions */
    uint8_t id[DICT_SESSION_BYTES];
    VEC(uint32_t) strings; /* by number of the session: ids here */
    VEC(uint32_t) frames;
    VEC(uint32_t) nodes;
    size_t charged;
};

static int beyond(const char *what, size_t i, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s %zu of a session refers to what is not told yet", what, i);
}

int dict_told_check(const struct dict_told *t, struct err *e)
{
    const struct stacks_view *m = &t->more;
    uint64_t strings = t->from.strings + (uint64_t)m->strings, bytes = 0;
    uint64_t frames = t->from.frames + (uint64_t)m->frames;
    uint64_t nodes = t->from.nodes + (uint64_t)m->nodes;

    if (strings >= UINT32_MAX || frames >= UINT32_MAX || nodes >= UINT32_MAX)
        return err_set(e, ERR_INPUT, "a session has more than 2^32 - 2 entries");
    if (!t->from.strings || !t->from.nodes)
        return err_set(e, ERR_INPUT, "a session begins with the string \"\" and the root");
    for (size_t i = 0; i < m->strings; i++)
        bytes += m->string_len[i];
    if (bytes != m->string_data.len)
        return err_set(e, ERR_INPUT, "%zu strings of a session have %" PRIu64 " bytes, not %zu",
                       m->strings, bytes, m->string_data.len);
    for (size_t i = 0; i < m->frames; i++)
        if (m->frame_func[i] >= strings || m->frame_file[i] >= strings ||
            m->frame_module[i] >= strings)
            return beyond("frame", i, e);
    for (size_t i = 0; i < m->nodes; i++)
        if (m->node_parent[i] >= t->from.nodes + i || m->node_frame[i] >= frames)
            return beyond("node", i, e);
    uint32_t highest = 0;
    for (size_t i = 0; i < t->nodes; i++)
        highest = MAX(highest, t->node[i]);
    for (size_t i = 0; highest >= nodes && i < t->nodes; i++)
        if (t->node[i] >= nodes)
            return beyond("stack", i, e);
    return 0;
}

struct dict_session *dict_session_find(struct dict *d, const struct dict_told *t)
{
    if (!d || !dict_writable(d))
        return NULL;
    list_for (it, &d->sessions) {
        struct dict_session *s = container_of(it, struct dict_session, link);
        if (memcmp(s->id, t->session, sizeof(s->id)) != 0)
            continue;
        list_del(&s->link);
        list_add_tail(d->sessions.next, &s->link);
        return s;
    }
    return NULL;
}

bool dict_session_has(const struct dict_session *s, const struct dict_told *t)
{
    struct dict_counts have = { 1, 0, 1 };

    if (s)
        have = (struct dict_counts){ (uint32_t)s->strings.len, (uint32_t)s->frames.len,
                                     (uint32_t)s->nodes.len };
    return t->from.strings <= have.strings && t->from.frames <= have.frames &&
           t->from.nodes <= have.nodes;
}

/* How many of n entries from `from` on are there already. */
static size_t overlap(size_t have, uint32_t from, size_t n)
{
    return MIN(have - from, n);
}

uint64_t dict_session_cost(const struct dict_session *s, const struct dict_told *t)
{
    size_t nodes = s ? s->nodes.len : 1;

    return t->more.nodes - overlap(nodes, t->from.nodes, t->more.nodes) +
           t->more.string_data.len / DICT_NAME_BYTES;
}

static void session_free(struct dict *d, struct dict_session *s)
{
    list_del(&s->link);
    d->sessions_len--;
    dict_discharge(d, s->charged);
    vec_free(&s->strings);
    vec_free(&s->frames);
    vec_free(&s->nodes);
    xfree(s);
}

void dict_sessions_free(struct dict *d)
{
    while (!list_empty(&d->sessions))
        session_free(d, container_of(d->sessions.next, struct dict_session, link));
}

static struct dict_session *session_new(struct dict *d, const struct dict_told *t)
{
    struct dict_session *s = XNEW(struct dict_session);

    if (d->sessions_len >= DICT_SESSIONS_MAX)
        session_free(d, container_of(d->sessions.prev, struct dict_session, link));
    memcpy(s->id, t->session, sizeof(s->id));
    vec_push(&s->strings, 0);
    vec_push(&s->nodes, 0);
    list_add_tail(d->sessions.next, &s->link);
    d->sessions_len++;
    return s;
}

static void learn_strings(struct dict *d, struct dict_session *s, const struct dict_told *t)
{
    size_t skip = overlap(s->strings.len, t->from.strings, t->more.strings), off = 0;

    for (size_t i = 0; i < t->more.strings; i++) {
        uint32_t len = t->more.string_len[i];
        if (i >= skip)
            vec_push(&s->strings, dict_add_string(d, str_n(t->more.string_data.ptr + off, len)));
        off += len;
    }
}

static void learn(struct dict *d, struct dict_session *s, const struct dict_told *t)
{
    const struct stacks_view *m = &t->more;

    learn_strings(d, s, t);
    for (size_t i = overlap(s->frames.len, t->from.frames, m->frames); i < m->frames; i++) {
        struct frame f = { .func = s->strings.ptr[m->frame_func[i]],
                           .file = s->strings.ptr[m->frame_file[i]],
                           .module = s->strings.ptr[m->frame_module[i]],
                           .line = m->frame_line[i],
                           .addr = m->frame_addr[i] };
        vec_push(&s->frames, dict_add_frame(d, &f));
    }
    for (size_t i = overlap(s->nodes.len, t->from.nodes, m->nodes); i < m->nodes; i++) {
        struct dict_node n = { s->nodes.ptr[m->node_parent[i]], s->frames.ptr[m->node_frame[i]] };
        vec_push(&s->nodes, dict_add_node(d, n));
    }
    dict_publish_added(d);
    size_t bytes = sizeof(*s) + (s->strings.cap + s->frames.cap + s->nodes.cap) * sizeof(uint32_t);
    dict_charge(d, bytes - s->charged); /* columns never shrink */
    s->charged = bytes;
}

void dict_session_use(struct dict *d, struct dict_session *s, const struct dict_told *t,
                      struct dict_scratch *x)
{
    CHECK(dict_writable(d) && dict_session_has(s, t));
    if (!s)
        s = session_new(d, t);
    if (t->more.strings || t->more.frames || t->more.nodes || !s->charged)
        learn(d, s, t);
    vec_reserve(&x->node_map, t->nodes + 1);
    x->node_map.ptr[0] = 0;
    for (size_t i = 0; i < t->nodes; i++)
        x->node_map.ptr[i + 1] = s->nodes.ptr[t->node[i]];
}

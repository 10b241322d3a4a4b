/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_k8s_json: one target for each address and port of an EndpointSlice, one for each declared
 * port of a running container of a Pod (or one without a port, if it declares none).
 *
 * Whatever is missing or of another type than the API says leaves its label out; only an object
 * without a name is refused. Names of labels and annotations become part of label names, with '_'
 * for what those cannot hold; of two that become equal the first one stays.
 */
#include "distributor/scrape/scrape_k8s_json.h"

#include <stdio.h>

#include "common/base/mem.h"

#define LABELS_MOST 256
#define M(name)     "__meta_kubernetes_" name

struct maker {
    struct arena *a;
    struct label l[LABELS_MOST];
    size_t len;
    bool full;
    struct scrape_group *groups;
    size_t groups_len, groups_cap;
};

/* ---- what may be missing -------------------------------------------------------------------- */

static struct str text_of(const struct json_val *v)
{
    struct str s = STR("");
    struct err e;

    return json_take_str(v, "", &s, &e) ? STR("") : s;
}

static struct str get(const struct json_val *v, const char *key)
{
    return text_of(json_get(v, key, NULL));
}

/* "true", "false", or "" where it is missing. */
static struct str truth(const struct json_val *v, const char *key)
{
    const struct json_val *at = json_get(v, key, NULL);
    bool b = false;
    struct err e;

    if (!at || json_take_bool(at, "", &b, &e))
        return STR("");
    return b ? STR("true") : STR("false");
}

static int64_t number(const struct json_val *v, const char *key)
{
    int64_t n = 0;
    struct err e;

    return json_take_i64(json_get(v, key, NULL), "", &n, &e) ? 0 : n;
}

/* ---- labels --------------------------------------------------------------------------------- */

static void add_named(struct maker *m, struct str name, struct str value)
{
    struct label *to = &m->l[m->len];

    if (!value.len || m->full)
        return;
    for (size_t i = 0; i < m->len; i++)
        if (str_eq(m->l[i].name, name))
            return;
    m->full = m->len == LABELS_MOST;
    if (m->full)
        return;
    *to = (struct label){ name, arena_strdup(m->a, value) };
    m->full = !to->value.ptr;
    m->len += !m->full;
}

static void add(struct maker *m, const char *name, struct str value)
{
    add_named(m, str_c(name), value);
}

static void add_map(struct maker *m, const char *prefix, const struct json_val *map)
{
    struct str key, base = str_c(prefix);
    const struct json_val *value;
    void *pos = NULL;

    while (!m->full && json_each(map, &pos, &key, &value)) {
        char *name = arena_alloc(m->a, base.len + key.len + 1);
        if (!name) {
            m->full = true;
            return;
        }
        memcpy(name, base.ptr, base.len);
        for (size_t i = 0; i < key.len; i++) {
            char c = key.ptr[i];
            bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
            name[base.len + i] = plain ? c : '_';
        }
        add_named(m, str_n(name, base.len + key.len), text_of(value));
    }
}

static int no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "an object with too many targets or labels");
}

/* A group of one address with the labels so far. */
static int add_group(struct maker *m, struct str host, int64_t port, struct err *e)
{
    struct scrape_group *g;
    struct str *address = ARENA_NEW(m->a, struct str);
    bool v6 = str_find(host, ':') >= 0;
    char text[320], number_text[16] = "";

    if (m->groups_len == m->groups_cap) {
        size_t cap = MAX(m->groups_cap * 2, 8);
        g = ARENA_ARRAY(m->a, struct scrape_group, cap);
        if (!g)
            return no_room(e);
        if (m->groups_len)
            memcpy(g, m->groups, m->groups_len * sizeof(*g));
        m->groups = g;
        m->groups_cap = cap;
    }
    if (host.len > 255)
        return err_set(e, ERR_INPUT, "an address of %zu bytes", host.len);
    if (port > 0 && port <= UINT16_MAX)
        (void)snprintf(number_text, sizeof(number_text), ":%u", (unsigned)port);
    (void)snprintf(text, sizeof(text), "%s%.*s%s%s", v6 ? "[" : "", STR_ARG(host), v6 ? "]" : "",
                   number_text);
    g = &m->groups[m->groups_len];
    g->labels = (struct labels){ ARENA_ARRAY(m->a, struct label, m->len + 1), m->len };
    if (m->full || !address || !g->labels.ptr)
        return no_room(e);
    *address = arena_strdup(m->a, str_c(text));
    if (!address->ptr)
        return no_room(e);
    if (m->len)
        memcpy(g->labels.ptr, m->l, m->len * sizeof(m->l[0]));
    if (labels_sort(&g->labels, e))
        return e->code;
    g->addresses = address;
    g->len = 1;
    m->groups_len++;
    return 0;
}

static void add_number(struct maker *m, const char *name, int64_t n)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRId64, n);
    add(m, name, n > 0 ? str_c(text) : STR(""));
}

/* ---- EndpointSlices ------------------------------------------------------------------------- */

static int one_endpoint(struct maker *m, const struct json_val *point, const struct json_val *port,
                        struct err *e)
{
    const struct json_val *conditions = json_get(point, "conditions", NULL);
    const struct json_val *target = json_get(point, "targetRef", NULL);
    const struct json_val *addresses = json_get(point, "addresses", NULL);
    size_t before = m->len;

    add(m, M("endpointslice_endpoint_conditions_ready"), truth(conditions, "ready"));
    add(m, M("endpointslice_endpoint_conditions_serving"), truth(conditions, "serving"));
    add(m, M("endpointslice_endpoint_conditions_terminating"), truth(conditions, "terminating"));
    add(m, M("endpointslice_endpoint_hostname"), get(point, "hostname"));
    add(m, M("endpointslice_endpoint_node_name"), get(point, "nodeName"));
    add(m, M("endpointslice_endpoint_zone"), get(point, "zone"));
    add(m, M("endpointslice_address_target_kind"), get(target, "kind"));
    add(m, M("endpointslice_address_target_name"), get(target, "name"));
    if (str_eqc(get(target, "kind"), "Pod")) {
        add(m, M("pod_name"), get(target, "name"));
        add(m, M("pod_uid"), get(target, "uid"));
        add(m, M("pod_node_name"), get(point, "nodeName"));
    }
    add_number(m, M("endpointslice_port"), number(port, "port"));
    add(m, M("endpointslice_port_name"), get(port, "name"));
    add(m, M("endpointslice_port_protocol"), get(port, "protocol"));
    add(m, M("endpointslice_port_app_protocol"), get(port, "appProtocol"));
    for (size_t i = 0; i < json_len(addresses); i++) {
        struct str host = text_of(json_at(addresses, i));
        if (host.len && add_group(m, host, number(port, "port"), e))
            return e->code;
    }
    m->len = before;
    return 0;
}

static int slice_of(struct maker *m, const struct json_val *v, struct err *e)
{
    const struct json_val *points = json_get(v, "endpoints", NULL);
    const struct json_val *ports = json_get(v, "ports", NULL),
                          *meta = json_get(v, "metadata", NULL);
    const struct json_val *labels = json_get(meta, "labels", NULL);

    add(m, M("endpointslice_name"), get(meta, "name"));
    add(m, M("service_name"), get(labels, "kubernetes.io/service-name"));
    add(m, M("endpointslice_address_type"), get(v, "addressType"));
    add_map(m, M("endpointslice_label_"), labels);
    add_map(m, M("endpointslice_annotation_"), json_get(meta, "annotations", NULL));
    for (size_t i = 0; i < json_len(points); i++)
        for (size_t k = 0; k < MAX(json_len(ports), 1); k++)
            if (one_endpoint(m, json_at(points, i), json_at(ports, k), e))
                return e->code;
    return 0;
}

/* ---- Pods ----------------------------------------------------------------------------------- */

static int one_port(struct maker *m, struct str ip, const struct json_val *port, struct err *e)
{
    size_t before = m->len;

    add_number(m, M("pod_container_port_number"), number(port, "containerPort"));
    add(m, M("pod_container_port_name"), get(port, "name"));
    add(m, M("pod_container_port_protocol"), get(port, "protocol"));
    int rc = add_group(m, ip, number(port, "containerPort"), e);
    m->len = before;
    return rc;
}

static int one_container(struct maker *m, struct str ip, const struct json_val *c, struct err *e)
{
    const struct json_val *ports = json_get(c, "ports", NULL);
    size_t before = m->len;

    add(m, M("pod_container_name"), get(c, "name"));
    add(m, M("pod_container_image"), get(c, "image"));
    for (size_t i = 0; i < MAX(json_len(ports), 1); i++)
        if (one_port(m, ip, json_at(ports, i), e))
            return e->code;
    m->len = before;
    return 0;
}

static struct str pod_ready(const struct json_val *status)
{
    const struct json_val *all = json_get(status, "conditions", NULL);

    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *c = json_at(all, i);
        if (str_eqc(get(c, "type"), "Ready"))
            return str_eqc(get(c, "status"), "True") ? STR("true") : STR("false");
    }
    return STR("unknown");
}

static int pod_of(struct maker *m, const struct json_val *v, struct err *e)
{
    const struct json_val *meta = json_get(v, "metadata", NULL), *spec = json_get(v, "spec", NULL);
    const struct json_val *status = json_get(v, "status", NULL);
    const struct json_val *all = json_get(spec, "containers", NULL);
    const struct json_val *owner = json_at(json_get(meta, "ownerReferences", NULL), 0);
    struct str ip = get(status, "podIP");

    if (!ip.len) /* it has no network yet */
        return 0;
    add(m, M("pod_name"), get(meta, "name"));
    add(m, M("pod_ip"), ip);
    add(m, M("pod_ready"), pod_ready(status));
    add(m, M("pod_phase"), get(status, "phase"));
    add(m, M("pod_node_name"), get(spec, "nodeName"));
    add(m, M("pod_host_ip"), get(status, "hostIP"));
    add(m, M("pod_uid"), get(meta, "uid"));
    add(m, M("pod_controller_kind"), get(owner, "kind"));
    add(m, M("pod_controller_name"), get(owner, "name"));
    add_map(m, M("pod_label_"), json_get(meta, "labels", NULL));
    add_map(m, M("pod_annotation_"), json_get(meta, "annotations", NULL));
    for (size_t i = 0; i < json_len(all); i++)
        if (one_container(m, ip, json_at(all, i), e))
            return e->code;
    return 0;
}

/* ---- objects, lists, events ----------------------------------------------------------------- */

int k8s_object_name(const struct json_val *v, struct arena *a, struct k8s_object *ret,
                    struct err *e)
{
    const struct json_val *meta = json_get(v, "metadata", NULL);
    struct str ns = get(meta, "namespace"), name = get(meta, "name");
    char *key = arena_alloc(a, ns.len + name.len + 1);

    *ret = (struct k8s_object){ .version = arena_strdup(a, get(meta, "resourceVersion")) };
    if (!key || !ret->version.ptr)
        return no_room(e);
    if (ns.len)
        memcpy(key, ns.ptr, ns.len);
    key[ns.len] = '/';
    if (name.len)
        memcpy(key + ns.len + 1, name.ptr, name.len);
    ret->key = str_n(key, ns.len + 1 + name.len);
    return 0;
}

int k8s_object_of(const struct json_val *v, bool pod, struct arena *a, struct k8s_object *ret,
                  struct err *e)
{
    struct maker *m;
    int rc;

    if (!get(json_get(v, "metadata", NULL), "name").len)
        return err_set(e, ERR_INPUT, "an object without a name");
    if (k8s_object_name(v, a, ret, e))
        return e->code;
    m = XNEW(struct maker);
    m->a = a;
    add(m, M("namespace"), get(json_get(v, "metadata", NULL), "namespace"));
    rc = pod ? pod_of(m, v, e) : slice_of(m, v, e);
    if (!rc && m->full)
        rc = no_room(e);
    ret->groups = (struct scrape_groups){ m->groups, m->groups_len };
    xfree(m);
    return rc;
}

int k8s_event_of(const struct json_val *v, struct k8s_event *ret, struct err *e)
{
    static const char *const names[] = { "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR" };
    struct str type = get(v, "type");

    ret->object = json_get(v, "object", NULL);
    ret->code = number(ret->object, "code");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!str_eqc(type, names[i]) || !json_is_obj(ret->object))
            continue;
        ret->type = (enum k8s_event_type)i;
        return 0;
    }
    return err_set(e, ERR_INPUT, "an event of type \"%.*s\"", (int)MIN(type.len, 40), type.ptr);
}

int k8s_list_of(const struct json_val *v, const struct json_val **ret_items,
                struct str *ret_version, struct str *ret_continue, struct err *e)
{
    const struct json_val *meta = json_get(v, "metadata", NULL);

    *ret_items = json_get(v, "items", NULL);
    *ret_version = get(meta, "resourceVersion");
    *ret_continue = get(meta, "continue");
    if (!json_is_obj(meta) || (*ret_items && !json_is_arr(*ret_items)))
        return err_set(e, ERR_INPUT, "this is no list of objects");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of Kubernetes to groups of targets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "distributor/scrape/scrape_k8s_json.h"

#define M(name) "__meta_kubernetes_" name

struct doc {
    struct arena *a;
    struct json_doc *json;
    struct k8s_object o;
};

static int take(struct doc *d, const char *text, bool pod, struct err *e)
{
    d->a = arena_new(MIB);
    assert_int_equal(json_parse(str_c(text), &d->json, e), 0);
    return k8s_object_of(json_root(d->json), pod, d->a, &d->o, e);
}

static void drop(struct doc *d)
{
    json_doc_free(d->json);
    arena_free(d->a);
}

static void expect(const struct doc *d, size_t group, const char *address,
                   const char *const *labels)
{
    const struct scrape_group *g = &d->o.groups.ptr[group];

    assert_true(group < d->o.groups.len);
    assert_int_equal(g->len, 1);
    assert_int_equal(g->addresses[0].len, strlen(address));
    assert_memory_equal(g->addresses[0].ptr, address, strlen(address));
    for (; labels[0]; labels += 2) {
        struct str got = labels_get(&g->labels, str_c(labels[0]));
        if (!str_eq(got, str_c(labels[1])))
            fail_msg("%s: %.*s, want %s", labels[0], STR_ARG(got), labels[1]);
    }
}

static void slices(void **state)
{
    static const char *const first[] = { M("namespace"),
                                         "n",
                                         M("endpointslice_name"),
                                         "s-1",
                                         M("service_name"),
                                         "s",
                                         M("endpointslice_label_a_b_c"),
                                         "v",
                                         M("endpointslice_endpoint_conditions_ready"),
                                         "true",
                                         M("endpointslice_port_name"),
                                         "http",
                                         M("endpointslice_port"),
                                         "80",
                                         M("pod_name"),
                                         "p",
                                         M("endpointslice_endpoint_node_name"),
                                         "node",
                                         NULL };
    static const char *const last[] = { M("endpointslice_endpoint_conditions_ready"),
                                        "false",
                                        M("endpointslice_port_name"),
                                        "grpc",
                                        M("pod_name"),
                                        "",
                                        NULL };
    struct doc d;
    struct err e;

    (void)state;
    assert_int_equal(
        take(
            &d,
            "{\"metadata\":{\"name\":\"s-1\",\"namespace\":\"n\",\"resourceVersion\":\"7\","
            "\"labels\":{\"kubernetes.io/service-name\":\"s\",\"a.b/c\":\"v\"}},"
            "\"addressType\":\"IPv6\",\"endpoints\":[{\"addresses\":[\"10.0.0.1\",\"fd00::1\"],"
            "\"conditions\":{\"ready\":true},\"nodeName\":\"node\",\"targetRef\":{\"kind\":\"Pod\","
            "\"name\":\"p\"}},{\"addresses\":[\"10.0.0.2\"],\"conditions\":{\"ready\":false}}],"
            "\"ports\":[{\"name\":\"http\",\"port\":80},{\"name\":\"grpc\",\"port\":81}]}",
            false, &e),
        0);
    assert_true(str_eqc(d.o.key, "n/s-1"));
    assert_true(str_eqc(d.o.version, "7"));
    assert_int_equal(d.o.groups.len, 6);
    expect(&d, 0, "10.0.0.1:80", first);
    expect(&d, 1, "[fd00::1]:80", first);
    expect(&d, 5, "10.0.0.2:81", last);
    drop(&d);
}

static void pods(void **state)
{
    static const char *const labels[] = { M("pod_name"),
                                          "p",
                                          M("pod_container_name"),
                                          "c",
                                          M("pod_ready"),
                                          "true",
                                          M("pod_phase"),
                                          "Running",
                                          M("pod_label_app"),
                                          "x",
                                          M("pod_annotation_pyroscope_io_service_name"),
                                          "svc",
                                          M("pod_controller_kind"),
                                          "ReplicaSet",
                                          M("pod_container_port_number"),
                                          "6060",
                                          NULL };
    static const char *const second[] = { M("pod_container_name"), "d",
                                          M("pod_container_port_number"), "", NULL };
    struct doc d;
    struct err e;

    (void)state;
    assert_int_equal(
        take(
            &d,
            "{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"labels\":{\"app\":\"x\"},"
            "\"annotations\":{\"pyroscope.io/service_name\":\"svc\",\"pyroscope_io/service_name\":"
            "\"other\"},\"ownerReferences\":[{\"kind\":\"ReplicaSet\",\"name\":\"r\"}]},\"spec\":{"
            "\"containers\":[{\"name\":\"c\",\"ports\":[{\"containerPort\":6060}]},{\"name\":\"d\"}"
            "]},\"status\":{\"podIP\":\"10.1.1.1\",\"phase\":\"Running\",\"conditions\":[{\"type\":"
            "\"Ready\",\"status\":\"True\"}]}}",
            true, &e),
        0);
    assert_int_equal(d.o.groups.len, 2);
    expect(&d, 0, "10.1.1.1:6060", labels);
    expect(&d, 1, "10.1.1.1", second);
    drop(&d);
    assert_int_equal(
        take(&d, "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{}]}}", true, &e), 0);
    assert_int_equal(d.o.groups.len, 0); /* no address yet */
    drop(&d);
    assert_int_equal(take(&d, "{\"metadata\":{}}", true, &e), ERR_INPUT);
    drop(&d);
    assert_int_equal(take(&d, "{\"metadata\":3}", false, &e), ERR_INPUT);
    drop(&d);
}

static void events(void **state)
{
    static const struct {
        const char *text;
        int code;
        enum k8s_event_type type;
    } rows[] = {
        { "{\"type\":\"ADDED\",\"object\":{}}", 0, K8S_ADDED },
        { "{\"type\":\"DELETED\",\"object\":{}}", 0, K8S_DELETED },
        { "{\"type\":\"BOOKMARK\",\"object\":{}}", 0, K8S_BOOKMARK },
        { "{\"type\":\"ERROR\",\"object\":{\"code\":410}}", 0, K8S_ERROR },
        { "{\"type\":\"ADDED\"}", ERR_INPUT, 0 },
        { "{\"type\":\"LOST\",\"object\":{}}", ERR_INPUT, 0 },
        { "{}", ERR_INPUT, 0 },
        { "[]", ERR_INPUT, 0 },
    };
    struct json_doc *doc;
    struct k8s_event ev;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(json_parse(str_c(rows[i].text), &doc, &e), 0);
        assert_int_equal(k8s_event_of(json_root(doc), &ev, &e), rows[i].code);
        if (!rows[i].code)
            assert_int_equal(ev.type, rows[i].type);
        if (rows[i].type == K8S_ERROR)
            assert_int_equal(ev.code, 410);
        json_doc_free(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),
        cmocka_unit_test(pods),
        cmocka_unit_test(events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

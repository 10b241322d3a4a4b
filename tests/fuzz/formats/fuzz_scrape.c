/* SPDX-License-Identifier: Apache-2.0
 *
 * What scraping reads. The first byte says as what: 'c' its configuration, with the targets and
 * URLs that follow from it; 'g' a file of targets; 'p' a Pod; 's' an EndpointSlice; 'e' an event of
 * a watch; 'l' a list.
 */
#include "distributor/scrape/scrape_k8s_json.h"
#include "distributor/scrape/scrape_targets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_groups(const struct scrape_job *j, const struct scrape_groups *g, struct arena *a)
{
    struct scrape_target t;
    struct err e;

    for (size_t i = 0; i < g->len; i++) {
        for (size_t k = 0; k < g->ptr[i].len; k++) {
            if (scrape_target_of(j, g->ptr[i].addresses[k], &g->ptr[i].labels, a, &t, &e) <= 0)
                continue;
            CHECK(t.service.len && t.base.len && labels_get(&t.labels, STR("instance")).len);
            for (size_t n = 0; n < t.labels.len; n++)
                CHECK(!str_starts(t.labels.ptr[n].name, STR("__")));
            for (size_t n = 0; n < j->profiles_len; n++)
                if (j->profiles[n].enabled)
                    (void)scrape_url(j, &t, &j->profiles[n], 14, a);
        }
    }
}

static void config(struct str text)
{
    struct arena *a = arena_new(16 * MIB);
    struct scrape_conf *c;
    struct err e;

    if (scrape_conf_parse("f", text, &c, &e) == 0) {
        for (size_t i = 0; i < c->len; i++)
            check_groups(&c->jobs[i], &c->jobs[i].statics, a);
        scrape_conf_free(c);
    } else {
        CHECK(e.code == ERR_CONFIG || e.code == ERR_LIMIT);
    }
    arena_free(a);
}

static void json(char kind, struct str text)
{
    struct arena *a = arena_new(MIB);
    const struct json_val *items;
    struct json_doc *doc;
    struct str version, more;
    struct k8s_object o;
    struct k8s_event ev;
    struct err e;

    if (json_parse(text, &doc, &e) == 0) {
        if (kind == 'l')
            (void)!k8s_list_of(json_root(doc), &items, &version, &more, &e);
        else if (kind == 'e')
            (void)!k8s_event_of(json_root(doc), &ev, &e);
        else if (k8s_object_of(json_root(doc), kind == 'p', a, &o, &e) == 0)
            for (size_t i = 0; i < o.groups.len; i++)
                CHECK(o.groups.ptr[i].len == 1 && o.groups.ptr[i].addresses[0].len);
        json_doc_free(doc);
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a;
    struct scrape_groups g;
    struct str text;
    struct err e;

    if (size < 1)
        return 0;
    text = str_n(data + 1, size - 1);
    if (data[0] == 'c') {
        config(text);
    } else if (data[0] == 'g') {
        a = arena_new(MIB);
        (void)!scrape_groups_parse("f", text, a, &g, &e);
        arena_free(a);
    } else {
        json((char)data[0], text);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_k8s_json.h: Pods and EndpointSlices as a Kubernetes API server writes them, to groups of
 * targets with Prometheus' __meta_kubernetes_ labels. Pure.
 *
 * Objects: proto/WIRE.md, "Scraping".
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_K8S_JSON_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_K8S_JSON_H

#include "common/net/json_in.h"
#include "distributor/scrape/scrape_conf.h"

struct k8s_object {
    struct str key;     /* namespace/name */
    struct str version; /* resourceVersion */
    struct scrape_groups groups;
};
enum k8s_event_type { K8S_ADDED, K8S_MODIFIED, K8S_DELETED, K8S_BOOKMARK, K8S_ERROR };
struct k8s_event {
    enum k8s_event_type type;
    const struct json_val *object;
    int64_t code; /* of K8S_ERROR: an HTTP status */
};

/* Everything is copied into the arena. ERR_INPUT, ERR_LIMIT. */
NODISCARD int k8s_object_of(const struct json_val *v, bool pod, struct arena *a,
                            struct k8s_object *ret, struct err *e);
/* The key and version alone: of what was deleted, and of bookmarks. */
NODISCARD int k8s_object_name(const struct json_val *v, struct arena *a, struct k8s_object *ret,
                              struct err *e);
NODISCARD int k8s_event_of(const struct json_val *v, struct k8s_event *ret, struct err *e);
/* Of a list: its version, and the token to continue it ("" at its end). Slices of the document. */
NODISCARD int k8s_list_of(const struct json_val *v, const struct json_val **ret_items,
                          struct str *ret_version, struct str *ret_continue, struct err *e);

#endif

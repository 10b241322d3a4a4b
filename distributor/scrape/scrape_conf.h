/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_conf.h: the file of scrape_configs, checked: what is scraped where, how often, by what
 * rules. Keys are those of Prometheus and Alloy; all of them: deploy/config/scrape.yaml.
 *
 * Keys and labels: proto/WIRE.md, "Scraping".
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_CONF_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_CONF_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/conf/conf_tree.h"
#include "common/model/label.h"
#include "common/net/client/http_client.h"
#include "distributor/rules/relabel.h"

#define SCRAPE_CONF_BYTES   (32 * MIB) /* memory of one file's tree and structs */
#define SCRAPE_JOBS_MAX     1000
#define SCRAPE_PROFILES_MAX 64 /* of one job */
#define SCRAPE_FILES_MAX    100

struct scrape_profile {
    struct str name; /* __name__ of its series */
    struct str path; /* with a '/' in front */
    bool enabled;
    bool delta;    /* the server measures: asked with ?seconds= */
    bool subtract; /* counts since its start: what it said last is subtracted */
};
/* Addresses that share labels, as a file or an API gave them. */
struct scrape_group {
    const struct str *addresses;
    size_t len;
    struct labels labels; /* sorted */
};
struct scrape_groups {
    struct scrape_group *ptr;
    size_t len;
};
struct scrape_client { /* how to talk to a server; strings end with a NUL; "" for none */
    const char *user, *password, *password_file, *bearer, *bearer_file;
    struct http_client_tls tls;
};
struct scrape_selector {
    struct str role, label, field;
};
struct scrape_k8s_conf {
    bool pods;              /* else EndpointSlices */
    const char *api_server; /* "": that of the cluster we run in */
    struct scrape_client client;
    const struct str *namespaces; /* none: all */
    size_t namespaces_len;
    struct str label, field; /* selectors */
};
struct scrape_job {
    struct str name, tenant;
    uint64_t interval_ms, timeout_ms; /* timeout: on top of what the server measures */
    bool https;
    struct str path_prefix;
    struct labels params; /* of the query; names may repeat */
    struct scrape_client client;
    size_t body_max;
    struct scrape_profile profiles[SCRAPE_PROFILES_MAX];
    size_t profiles_len;
    struct scrape_groups statics;
    const struct str *files; /* of file_sd_configs; NUL-terminated */
    size_t files_len;
    const struct scrape_k8s_conf *k8s;
    size_t k8s_len;
    struct relabel *relabel; /* owned */
};
struct scrape_conf {
    struct arena *arena;
    struct scrape_job *jobs;
    size_t len;
};

/* An empty text has no jobs. ERR_CONFIG with file and line. */
NODISCARD int scrape_conf_parse(const char *file, struct str text, struct scrape_conf **ret,
                                struct err *e);
void scrape_conf_free(struct scrape_conf *c); /* NULL is fine */
/* [{targets: [...], labels: {...}}, ...]: static_configs, and the files of file_sd_configs. */
NODISCARD int scrape_groups_of(const struct conf_node *list, const char *file, struct arena *a,
                               struct scrape_groups *ret, struct err *e);
/* The same from the text of a file, YAML or JSON. */
NODISCARD int scrape_groups_parse(const char *file, struct str text, struct arena *a,
                                  struct scrape_groups *ret, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_targets.h: what discovery found, through the relabel rules, to what is asked and what its
 * profiles are labelled with. Pure.
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_TARGETS_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_TARGETS_H

#include "distributor/scrape/scrape_conf.h"

struct scrape_target {
    struct str service;
    struct labels labels; /* sorted, without service_name and names that start with __ */
    struct str base;      /* URL up to the path of a profile: http://host:port/prefix */
    struct str address;   /* for people */
    uint64_t hash;        /* of all of this and the job */
};

/* The target of one address: 1, or 0 where a rule dropped it, or -1 with *e. `found`: its group's
 * labels. Everything is copied into the arena. */
int scrape_target_of(const struct scrape_job *j, struct str address, const struct labels *found,
                     struct arena *a, struct scrape_target *ret, struct err *e);
/* base + path + the job's parameters and ?seconds=. Ends with a NUL. STR_NULL: no room. */
struct str scrape_url(const struct scrape_job *j, const struct scrape_target *t,
                      const struct scrape_profile *p, uint64_t seconds, struct arena *a);

#endif

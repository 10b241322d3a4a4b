/* SPDX-License-Identifier: Apache-2.0
 *
 * api_parca.h: parca.profilestore.v1alpha1.ProfileStoreService, what parca-agent calls.
 */
#ifndef DISTRIBUTOR_PARCA_API_PARCA_H
#define DISTRIBUTOR_PARCA_API_PARCA_H

struct distributor;

/* Adds the routes to the process's server. */
void api_parca_routes(struct distributor *d);

#endif

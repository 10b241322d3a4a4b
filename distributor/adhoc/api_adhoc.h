/* SPDX-License-Identifier: Apache-2.0
 *
 * api_adhoc.h: profiles that people upload, /api/v1/adhoc and adhocprofiles.v1.
 */
#ifndef DISTRIBUTOR_ADHOC_API_ADHOC_H
#define DISTRIBUTOR_ADHOC_API_ADHOC_H

struct distributor;

/* Registers the routes on the process's listener. */
void api_adhoc_routes(struct distributor *d);

#endif

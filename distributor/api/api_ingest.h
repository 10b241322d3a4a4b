/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ingest.h: POST /ingest and /pyroscope/ingest (proto/WIRE.md, "Ingest parameters" to
 * "Ingest responses").
 */
#ifndef DISTRIBUTOR_API_API_INGEST_H
#define DISTRIBUTOR_API_API_INGEST_H

struct distributor;

/* Adds the routes to the process's server. */
void api_ingest_routes(struct distributor *d);

#endif

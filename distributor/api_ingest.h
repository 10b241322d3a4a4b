/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ingest.h: POST /ingest and /pyroscope/ingest.
 */
#ifndef DISTRIBUTOR_API_INGEST_H
#define DISTRIBUTOR_API_INGEST_H

#include "distributor/state.h"

void api_ingest_routes(struct distributor *d);

#endif

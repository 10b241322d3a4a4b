/* SPDX-License-Identifier: Apache-2.0
 *
 * api_otlp.h: OTLP profiles: POST /v1development/profiles, and ProfilesService/Export over gRPC.
 */
#ifndef DISTRIBUTOR_API_OTLP_H
#define DISTRIBUTOR_API_OTLP_H

struct distributor;
void api_otlp_routes(struct distributor *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_otlp.h: OTLP profiles: POST /v1development/profiles, and ProfilesService/Export over gRPC.
 *
 * Protocol: opentelemetry-proto v1.11.0, docs/specification.md (proto/WIRE.md, "OTLP transport").
 */
#ifndef DISTRIBUTOR_API_API_OTLP_H
#define DISTRIBUTOR_API_API_OTLP_H

struct distributor;
void api_otlp_routes(struct distributor *d);

#endif

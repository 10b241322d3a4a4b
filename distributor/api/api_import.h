/* SPDX-License-Identifier: Apache-2.0
 *
 * api_import.h: POST /api/v1/import, many profiles in one body.
 */
#ifndef DISTRIBUTOR_API_API_IMPORT_H
#define DISTRIBUTOR_API_API_IMPORT_H

struct distributor;
void api_import_routes(struct distributor *d);

#endif

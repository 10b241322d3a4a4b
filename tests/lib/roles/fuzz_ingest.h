/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_ingest.h: what the fuzz targets of the ingest formats share: decode a body as the server
 * would, and hold the result against what every later step relies on.
 */
#ifndef TESTS_LIB_ROLES_FUZZ_INGEST_H
#define TESTS_LIB_ROLES_FUZZ_INGEST_H

#include "distributor/formats/formats.h"

/* Decodes `body` under small limits, checks the outcome, packs what was accepted. */
void fuzz_ingest(enum format format, const char *content_type, const char *name, struct str body);
/* The same with a file that a person uploads. */
void fuzz_upload(struct str body);

#endif

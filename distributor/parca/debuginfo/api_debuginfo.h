/* SPDX-License-Identifier: Apache-2.0
 *
 * api_debuginfo.h: debug info uploaded by parca-agent (parca.debuginfo.v1alpha1) and Alloy
 * (debuginfo.v1alpha1).
 */
#ifndef DISTRIBUTOR_PARCA_DEBUGINFO_API_DEBUGINFO_H
#define DISTRIBUTOR_PARCA_DEBUGINFO_API_DEBUGINFO_H

#include "common/base/err.h"

struct distributor;

/* Opens the store below the data folder and adds the routes; *ret is NULL in a simulation, which
 * has no disk. */
struct api_debuginfo;
NODISCARD int api_debuginfo_new(struct distributor *d, struct api_debuginfo **ret, struct err *e);
void api_debuginfo_free(struct api_debuginfo *a); /* NULL is fine */

#endif

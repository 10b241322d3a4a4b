/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h: does the data folder go with the settings? What was stored under others would be
 * missing from answers, be counted twice, or be taken for another node's word.
 */
#ifndef INGESTER_BASE_FOLDER_H
#define INGESTER_BASE_FOLDER_H

#include "ingester/base/state.h"

/* ERR_CONFIG: it does not, and what to do. Else the folder keeps in <data>/written-as what it must
 * be started with from now on. Before anything is opened; state.h's `moves` and `index` are set. */
NODISCARD int folder_check(const struct ingester *in, struct err *e);
/* The name under which the copies here promise and ack is this node's: written down, if it is not.
 * When the coordination service has nothing against it (ingester/base/incarnation.c). */
void folder_name(const struct ingester *in);

#endif

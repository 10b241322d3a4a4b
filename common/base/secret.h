/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.h: what code that knows secrets needs: a random number of this process, and a comparison.
 */
#ifndef COMMON_BASE_SECRET_H
#define COMMON_BASE_SECRET_H

#include "common/base/str.h"

/* Returns a number that is not known outside of the process, another one in each process: for
 * tables whose keys come from outside. What depends on it may not be stored, sent, or decide an
 * order. */
uint64_t secret_word(void);

/* Compares a secret with text from outside. The time that this takes depends on the length of the
 * secret alone. */
bool secret_eq(struct str secret, struct str given);

#endif

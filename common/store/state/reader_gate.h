/* SPDX-License-Identifier: Apache-2.0
 *
 * reader_gate.h: readers hold the gate open while they read (reader_gate.c). Any thread.
 */
#ifndef COMMON_STORE_STATE_READER_GATE_H
#define COMMON_STORE_STATE_READER_GATE_H

#include "common/base/base.h"

struct store_gate;

struct store_gate *gate_new(void);
void gate_free(struct store_gate *g);
bool reader_gate_enter(struct store_gate *g, bool wait); /* false: it is closed, and !wait */
void reader_gate_leave(struct store_gate *g);
/* Closes the gate and waits for its readers; false, and open again, if one is still inside after
 * two seconds. One thread at a time. */
bool gate_close(struct store_gate *g);
void gate_open(struct store_gate *g);

#endif

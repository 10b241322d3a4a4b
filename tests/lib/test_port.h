/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_port.h: TCP ports of loopback for a test program, while others look for theirs.
 *
 * Below the range of outgoing connections, and kept by files of the same folder as cluster.py keeps
 * its ones, until the program ends: a server that is killed wants its port again.
 */
#ifndef TESTS_LIB_TEST_PORT_H
#define TESTS_LIB_TEST_PORT_H

#include <stdint.h>

/* The first of `count` ports in a row that no other program has. */
uint16_t test_port_new(uint32_t count);
/* Before the end. */
void test_port_give_back(uint16_t first, uint32_t count);

#endif

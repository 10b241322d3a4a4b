/* SPDX-License-Identifier: Apache-2.0
 *
 * testdata.h: the third-party sample files next to the repository (../shared/testdata, or
 * $EMBERTREE_TESTDATA), which tests read and never copy. Where the folder is missing every reader
 * returns false and says "SKIPPED" once per call, so that a green run without the files cannot be
 * mistaken for a check of them.
 */
#ifndef TESTS_LIB_TESTDATA_H
#define TESTS_LIB_TESTDATA_H

#include <jansson.h>

#include "common/base/buf.h"

#define TESTDATA_BYTES_MAX (256 * MIB)

bool testdata_here(const char *why);
/* Whole file, path below the folder. Initialises *out. A file that is missing though the folder is
 * there fails the test process. */
void testdata_read(const char *path, struct buf *out);
/* Parsed JSON; json_decref it. */
json_t *testdata_json(const char *path);
/* Calls fn for each regular file directly below `dir`, in byte order of the names. */
void testdata_each(const char *dir, void (*fn)(const char *name, void *cookie), void *cookie);
/* Rows of corrupt/VERDICTS.tsv with this format, e.g. "pprof". */
void testdata_verdicts(const char *format,
                       void (*fn)(const char *file, const char *verdict, void *cookie),
                       void *cookie);
/* "pprof/x.pb.gz" to "expected/pprof__x.pb.gz.json". */
void testdata_expected_path(const char *path, char *ret, size_t size);

#endif

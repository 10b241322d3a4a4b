/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape.h: fetches profiles from programs that serve them, by a file of scrape_configs. Thread:
 * the loop's.
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_H

#include "common/base/err.h"
#include "common/base/str.h"

struct distributor;
struct scrape;

/* Would a server take this text as its file? multi: tenancy.multi. ERR_CONFIG: what is wrong. */
NODISCARD int scrape_check(const char *file, struct str text, bool multi, struct err *e);
/* NULL if distributor.scrape_config_file is empty. A file with an error is one of this call, so
 * that a wrong file is seen at the start; later ones are logged, and the last good one stays. */
NODISCARD int scrape_new(struct distributor *d, struct scrape **ret, struct err *e);
/* Begins nothing new and cancels running fetches; profiles that were fetched are stored. NULL is
 * fine, and so is a second call. */
void scrape_stop(struct scrape *s);
/* After the last intake of it ended. NULL is fine. */
void scrape_free(struct scrape *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * made_key.h: keys for tests: a text as key_make writes it, and its record. What is wrong with a
 * form is a CHECK.
 */
#ifndef TESTS_LIB_IDENTITY_MADE_KEY_H
#define TESTS_LIB_IDENTITY_MADE_KEY_H

#include "common/identity/record.h"
#include "common/sys/env.h"

extern const uint8_t made_key_pepper[KEY_PEPPER_BYTES]; /* unless the form has another */

struct made_key {
    char text[KEY_TEXT_LEN + 1];
    struct key_record *r; /* owned: record_key_unref */
};
struct made_key_form {
    const char *grants; /* NULL: to read in the tenant "shop" */
    const char *name, *nets;
    int64_t from, until;
    bool offline, file;
    const uint8_t *pepper;
};

struct made_key made_key(struct env *env, const struct made_key_form *f);
/* Another record for the text of a key. */
struct key_record *made_key_record(const char *text, const struct made_key_form *f);
/* The id of one, the secret of the other, and a checksum that is right. */
void made_key_mix(const char *id_of, const char *secret_of, char to[KEY_TEXT_LEN + 1]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/secret.h"

#include <sys/auxv.h>

#include "common/base/hash.h"

/* Sixteen random bytes that the kernel gives to each process. */
uint64_t secret_word(void)
{
    const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    uint64_t words[2] = { (uint64_t)(uintptr_t)&words, 1 };

    if (random)
        memcpy(words, random, sizeof(words));
    return hash_u64(words[0]) ^ words[1];
}

bool secret_eq(struct str secret, struct str given)
{
    unsigned char odd = secret.len != given.len;

    for (size_t i = 0; i < secret.len; i++)
        odd |= (unsigned char)(secret.ptr[i] ^ (i < given.len ? given.ptr[i] : 0x55));
    return !odd;
}

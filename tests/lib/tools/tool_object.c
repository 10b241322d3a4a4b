/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_object WHERE COMMAND ...: the object store from the command line, for tests.
 *   WHERE    a folder, or an endpoint, http://host:port (bucket and keys: S3_BUCKET, S3_KEY,
 *            S3_SECRET or S3_KEYS_FILE, S3_PREFIX, S3_REGION; path style; S3_SKEW_MS: our clock;
 *            S3_CA: file of CAs)
 *   turns NAME   by one handle: for each line of standard input NAME's size is asked, and said
 *   put NAME < bytes | get NAME FROM LEN | size NAME | list PREFIX AFTER | delete NAME
 * Exit: 0, or 1 with "ERR_X: text" on standard error.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/object/object.h"

static const char *env_or(const char *name, const char *other)
{
    const char *value = getenv(name);

    return value ? value : other;
}

static int open_where(const char *where, struct object_store **ret, struct err *e)
{
    static struct clock_fake clock;
    static struct env env;
    env = *env_real();
    if (getenv("S3_SKEW_MS")) {
        clock_fake_init(&clock, clock_wall_ms(env.clock) + atoll(getenv("S3_SKEW_MS")));
        env.clock = &clock.clock;
    }
    struct object_s3_opts o = {
        .env = &env,
        .endpoint = where,
        .bucket = env_or("S3_BUCKET", "profiles"),
        .prefix = env_or("S3_PREFIX", ""),
        .region = env_or("S3_REGION", ""),
        .access_key = env_or("S3_KEY", ""),
        .secret_key = env_or("S3_SECRET", ""),
        .keys_file = getenv("S3_KEYS_FILE"),
        .ca_file = getenv("S3_CA"),
        .path_style = true,
        .timeout_ms = 5000,
    };

    return strstr(where, "://") ? object_s3_open(&o, ret, e) : object_dir_open(where, ret, e);
}

static bool print_name(void *cookie, struct str name, uint64_t size)
{
    (void)cookie;
    return printf("%.*s %" PRIu64 "\n", STR_ARG(name), size) > 0;
}

static int put(struct object_store *o, struct str name, struct err *e)
{
    struct buf b;
    char part[4096];
    size_t n;

    buf_init(&b, OBJECT_BYTES_MAX + 1);
    while ((n = fread(part, 1, sizeof(part), stdin)) > 0)
        if (!buf_add(&b, part, n))
            break;
    int rc = object_put(o, name, buf_str(&b), e);
    buf_deinit(&b);
    return rc;
}

static int get(struct object_store *o, struct str name, const char *from, const char *len,
               struct err *e)
{
    struct buf b;
    uint64_t at, n;

    if (!str_u64(str_c(from), &at) || !str_u64(str_c(len), &n))
        return err_set(e, ERR_INPUT, "want numbers");
    buf_init(&b, OBJECT_BYTES_MAX);
    int rc = object_read(o, name, at, n, &b, e);
    if (!rc && b.len)
        (void)fwrite(b.ptr, 1, b.len, stdout);
    buf_deinit(&b);
    return rc;
}

static void turns(struct object_store *o, struct str name)
{
    char line[16];

    while (fgets(line, sizeof(line), stdin)) {
        struct err e = { 0 };
        uint64_t size;

        if (object_size(o, name, &size, &e))
            (void)printf("%s: %s\n", err_name(e.code), e.text);
        else
            (void)printf("%" PRIu64 "\n", size);
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct object_store *o;
    struct err e = { 0 };
    uint64_t size = 0;
    int rc = argc < 4 ? err_set(&e, ERR_INPUT, "see the head of tool_object.c")
                      : open_where(argv[1], &o, &e);

    if (rc) {
        (void)fprintf(stderr, "%s: %s\n", err_name(rc), e.text);
        return 1;
    }
    struct str command = str_c(argv[2]), name = str_c(argv[3]);
    if (str_eqc(command, "put"))
        rc = put(o, name, &e);
    else if (str_eqc(command, "get") && argc == 6)
        rc = get(o, name, argv[4], argv[5], &e);
    else if (str_eqc(command, "size"))
        rc = object_size(o, name, &size, &e);
    else if (str_eqc(command, "list") && argc == 5)
        rc = object_list(o, name, str_c(argv[4]), print_name, NULL, &e);
    else if (str_eqc(command, "turns"))
        turns(o, name);
    else if (str_eqc(command, "delete"))
        rc = object_delete(o, name, &e);
    else
        rc = err_set(&e, ERR_INPUT, "no such command");
    if (!rc && str_eqc(command, "size"))
        (void)printf("%" PRIu64 "\n", size);
    if (rc)
        (void)fprintf(stderr, "%s: %s\n", err_name(rc), e.text);
    object_close(o);
    return rc != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/testdata.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/base/vec.h"

static const char *root(void)
{
    const char *given = getenv("EMBERTREE_TESTDATA");

    return given ? given : "../shared/testdata";
}

static void full_path(const char *path, char *ret, size_t size)
{
    int n = snprintf(ret, size, "%s/%s", root(), path);

    CHECK(n > 0 && (size_t)n < size);
}

bool testdata_here(const char *why)
{
    char path[512];
    struct stat st;

    full_path("README.md", path, sizeof(path));
    if (stat(path, &st) == 0)
        return true;
    printf("SKIPPED: %s: no test data in %s (set EMBERTREE_TESTDATA)\n", why, root());
    fflush(stdout);
    return false;
}

void testdata_read(const char *path, struct buf *out)
{
    char full[1024];

    full_path(path, full, sizeof(full));
    FILE *f = fopen(full, "rb");
    if (!f) {
        fprintf(stderr, "testdata: cannot open %s\n", full);
        abort();
    }
    buf_init(out, TESTDATA_BYTES_MAX);
    for (;;) {
        char *to = buf_room(out, 65536);
        CHECK(to);
        size_t n = fread(to, 1, 65536, f);
        if (n == 0)
            break;
        out->len += n;
    }
    fclose(f);
}

json_t *testdata_json(const char *path)
{
    struct buf text;
    json_error_t why;

    testdata_read(path, &text);
    json_t *doc = json_loadb(text.ptr, text.len, JSON_ALLOW_NUL, &why);
    if (!doc) /* one file has a total over 2^63: as reals its numbers are close enough */
        doc = json_loadb(text.ptr, text.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!doc)
        fprintf(stderr, "testdata: %s: %s\n", path, why.text);
    CHECK(doc);
    buf_deinit(&text);
    return doc;
}

static int name_cmp(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void testdata_each(const char *dir, void (*fn)(const char *name, void *cookie), void *cookie)
{
    VEC(char *) names = { 0 };
    char full[1024], file[2048];
    struct dirent *d;
    struct stat st;

    full_path(dir, full, sizeof(full));
    DIR *open = opendir(full);
    CHECK(open);
    while ((d = readdir(open)) != NULL) {
        int n = snprintf(file, sizeof(file), "%s/%s", full, d->d_name);
        CHECK(n > 0 && (size_t)n < sizeof(file));
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            vec_push(&names, xstrdup(d->d_name));
    }
    closedir(open);
    qsort(names.ptr, names.len, sizeof(*names.ptr), name_cmp);
    vec_for (i, &names) {
        fn(names.ptr[i], cookie);
        xfree(names.ptr[i]);
    }
    vec_free(&names);
}

void testdata_verdicts(const char *format,
                       void (*fn)(const char *file, const char *verdict, void *cookie),
                       void *cookie)
{
    struct buf text;
    struct str rest, line, field[3];
    bool more = true;

    testdata_read("corrupt/VERDICTS.tsv", &text);
    rest = buf_str(&text);
    while (str_next(&rest, '\n', &more, &line)) {
        bool cells = true;
        size_t n = 0;
        while (n < ARRAY_LEN(field) && str_next(&line, '\t', &cells, &field[n]))
            n++;
        if (n < ARRAY_LEN(field) || !str_eqc(field[1], format))
            continue;
        char *file = xmalloc(field[0].len + 1), *verdict = xmalloc(field[2].len + 1);
        memcpy(file, field[0].ptr, field[0].len);
        file[field[0].len] = '\0';
        memcpy(verdict, field[2].ptr, field[2].len);
        verdict[field[2].len] = '\0';
        fn(file, verdict, cookie);
        xfree(file);
        xfree(verdict);
    }
    buf_deinit(&text);
}

void testdata_expected_path(const char *path, char *ret, size_t size)
{
    const char *slash = strchr(path, '/');
    CHECK(slash);
    int n = snprintf(ret, size, "expected/%.*s__%s.json", (int)(slash - path), path, slash + 1);

    CHECK(n > 0 && (size_t)n < size);
}

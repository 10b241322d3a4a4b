/* SPDX-License-Identifier: Apache-2.0
 *
 * written_as: read by the ingester before it opens anything (ingester/base/folder.c), written by
 * it and by the commands that make a folder: `embertree adopt` gives it its node's name, so that
 * no other name can take it, and `embertree restore` the number of shards of the backup.
 */
#include "common/cluster/node/written_as.h"

#include <limits.h>
#include <stdio.h>

#define FILE_NAME "written-as"
#define TEXT_MAX  (4 * KIB)

static int path_in(const char *dir, char ret[PATH_MAX], struct err *e)
{
    if (snprintf(ret, PATH_MAX, "%s/" FILE_NAME, dir) >= PATH_MAX)
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    return 0;
}

int written_as_load(const struct fs *fs, const char *dir, struct written_as *ret, struct err *e)
{
    char path[PATH_MAX];
    struct str text, line;
    struct buf in;
    bool more = true;
    uint64_t n;
    int code = path_in(dir, path, e);

    *ret = (struct written_as){ 0 };
    if (code)
        return code;
    buf_init(&in, TEXT_MAX);
    code = fs->read_file(fs, path, &in, e);
    text = buf_str(&in);
    while (!code && more && str_next(&text, '\n', &more, &line)) {
        if (str_starts(line, STR("shards ")) && str_u64(str_sub(line, 7, line.len), &n) &&
            n <= CLUSTER_SHARDS_MAX)
            ret->shards = (uint32_t)n;
        if (str_starts(line, STR("node ")) && node_name_ok(str_sub(line, 5, line.len)))
            (void)snprintf(ret->node, sizeof(ret->node), "%.*s",
                           STR_ARG(str_sub(line, 5, line.len)));
    }
    buf_deinit(&in);
    return code == ERR_NOT_FOUND ? 0 : code;
}

int written_as_keep(const struct fs *fs, const char *dir, const struct written_as *w, struct err *e)
{
    char path[PATH_MAX];
    struct buf text;
    int code = path_in(dir, path, e);

    if (code)
        return code;
    buf_init(&text, TEXT_MAX);
    if (w->shards)
        (void)buf_addf(&text, "shards %" PRIu32 "\n", w->shards);
    if (w->node[0])
        (void)buf_addf(&text, "node %s\n", w->node);
    code = fs->write_file(fs, path, buf_str(&text), e);
    buf_deinit(&text);
    return code;
}

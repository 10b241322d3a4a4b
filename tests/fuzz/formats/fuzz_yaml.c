/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration file: any bytes either load or are refused with a text that names the file and
 * a line; and what loaded is printed to something that loads again.
 */
#include "common/conf/conf_impl.h"

struct fuzz_conf {
    const char *text, *choice;
    uint64_t size, time, number;
    bool flag;
    struct conf_list list;
};
static const struct conf_row rows[] = {
    CONF_STR(struct fuzz_conf, text, "text", "t", "Text."),
    CONF_ENUM(struct fuzz_conf, choice, "choice", "a", "a|b", "Choice."),
    CONF_BYTES(struct fuzz_conf, size, "size", "1MiB", "1", "1GiB", "Size."),
    CONF_DURATION(struct fuzz_conf, time, "time", "1s", "0s", "1d", "Time."),
    CONF_U64(struct fuzz_conf, number, "number", "1", NULL, NULL, "Number."),
    CONF_BOOL(struct fuzz_conf, flag, "flag", "true", "Flag."),
    CONF_LIST(struct fuzz_conf, list, "list", "", "List."),
};
static const struct conf_table first = { "first", "First", rows, ARRAY_LEN(rows),
                                         sizeof(struct fuzz_conf) };
static const struct conf_table second = { "second", "Second", rows, ARRAY_LEN(rows),
                                          sizeof(struct fuzz_conf) };
static const struct conf_table *const tables[] = { &first, &second };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf *c = conf_new(tables, ARRAY_LEN(tables));
    struct conf *again = conf_new(tables, ARRAY_LEN(tables));
    struct err e = { 0 };
    struct buf printed, twice;

    buf_init(&printed, 64 * MIB);
    buf_init(&twice, 64 * MIB);
    if (conf_yaml_apply(c, "f.yaml", str_n(data, size), &e)) {
        CHECK(e.code == ERR_CONFIG);
        CHECK(str_starts(str_c(e.text), STR("f.yaml ")));
        CHECK(str_utf8_valid(str_c(e.text)));
    } else {
        conf_print(c, &printed);
        CHECK(buf_ok(&printed));
        if (printed.len <= CONF_FILE_MAX) {
            CHECK(conf_yaml_apply(again, "printed", buf_str(&printed), &e) == 0);
            conf_print(again, &twice);
            CHECK(str_eq(buf_str(&printed), buf_str(&twice)));
        }
    }
    buf_deinit(&printed);
    buf_deinit(&twice);
    conf_free(c);
    conf_free(again);
    return 0;
}

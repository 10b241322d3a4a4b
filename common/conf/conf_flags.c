/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_flags: the command line. Two passes: the first finds the configuration file and the action,
 * since the file is read between defaults and flags; the second applies the values.
 */
#include "common/conf/conf_impl.h"

struct flag {
    struct str name;  /* without the leading "--" */
    struct str value; /* behind '=' */
    bool has_value;
};

static int flag_split(const char *arg, struct flag *ret, struct err *e)
{
    struct str s = str_c(arg);
    ptrdiff_t eq;

    if (str_eqc(s, "-h"))
        s = STR("--help");
    if (!str_starts(s, STR("--")) || s.len == 2) {
        struct conf_hint shown = conf_quote(s);

        return err_set(e, ERR_CONFIG,
                       "unexpected argument \"%s\": want --section.name=value (--help lists all)",
                       shown.text);
    }
    s = str_sub(s, 2, s.len);
    eq = str_find(s, '=');
    ret->has_value = eq >= 0;
    ret->name = eq >= 0 ? str_sub(s, 0, (size_t)eq) : s;
    ret->value = eq >= 0 ? str_sub(s, (size_t)eq + 1, s.len) : STR_NULL;
    return 0;
}

/* A flag may be written with dashes where the key in the file has underscores. */
static bool lookup(const struct conf *c, struct str name, size_t *ret_table,
                   const struct conf_row **ret_row)
{
    ptrdiff_t dot = str_find(name, '.');
    char key[128];

    if (name.len > sizeof(key))
        return false;
    for (size_t i = 0; i < name.len; i++)
        key[i] = name.ptr[i] == '-' ? '_' : name.ptr[i];
    name = str_n(key, name.len);
    return dot >= 0 && conf_find(c, str_sub(name, 0, (size_t)dot),
                                 str_sub(name, (size_t)dot + 1, name.len), ret_table, ret_row);
}

/* The command line, and the argument that is read. */
struct arguments {
    int argc;
    char *const *argv;
    int at;
};

static const char *next_value(struct arguments *a, const struct flag *f)
{
    if (f->has_value)
        return f->value.ptr;
    return a->at + 1 < a->argc ? a->argv[++a->at] : NULL;
}

static int unknown(const struct conf *c, const struct flag *f, struct err *e)
{
    struct conf_hint h = conf_hint_flag(c, f->name), shown = conf_quote(f->name);

    return err_set(e, ERR_CONFIG, "unknown flag --%s%s (--help lists all)", shown.text, h.text);
}

/* True if the flag is --help, --version, --print-config, --print-reference or --config. */
static bool fixed_flag(struct conf *c, struct arguments *a, const struct flag *f, int *ret_result,
                       struct err *e)
{
    static const struct {
        const char *name;
        enum conf_action action;
    } actions[] = { { "help", CONF_HELP },
                    { "version", CONF_VERSION },
                    { "print-config", CONF_PRINT },
                    { "print-reference", CONF_REFERENCE } };

    for (size_t k = 0; k < ARRAY_LEN(actions); k++) {
        if (!str_eqc(f->name, actions[k].name))
            continue;
        if (f->has_value)
            *ret_result = err_set(e, ERR_CONFIG, "--%s takes no value", actions[k].name);
        else if (c->action == CONF_RUN || actions[k].action < c->action)
            c->action = actions[k].action;
        return true;
    }
    if (!str_eqc(f->name, "config"))
        return false;
    c->file = next_value(a, f);
    if (!c->file || !*c->file)
        *ret_result = err_set(e, ERR_CONFIG, "--config wants the name of a YAML file");
    return true;
}

/* One flag, which may take the next argument too. In the first pass (apply = false) only the fixed
 * ones count, but all are parsed, to know which argument is a value. */
static int one_flag(struct conf *c, struct arguments *a, bool apply, struct err *e)
{
    const struct conf_row *row;
    struct flag f = { 0 };
    const char *value;
    size_t table;
    bool no = false;
    int result = flag_split(a->argv[a->at], &f, e);

    if (result || fixed_flag(c, a, &f, &result, e))
        return result;
    if (!lookup(c, f.name, &table, &row)) {
        no = str_starts(f.name, STR("no-"));
        if (!no || !lookup(c, str_sub(f.name, 3, f.name.len), &table, &row) ||
            row->type != CONF_T_BOOL)
            return apply ? unknown(c, &f, e) : 0;
        if (f.has_value)
            return apply ? err_set(e, ERR_CONFIG, "--%.*s takes no value", STR_ARG(f.name)) : 0;
    }
    if (row->type == CONF_T_BOOL && !f.has_value)
        value = no ? "false" : "true";
    else
        value = next_value(a, &f);
    if (!apply)
        return 0;
    if (!value)
        return err_set(e, ERR_CONFIG, "--%.*s wants a value", STR_ARG(f.name));
    if (conf_put(c, table, row, str_c(value), e))
        return err_wrap(e, "flag --%.*s", STR_ARG(f.name));
    return 0;
}

static int each_flag(struct conf *c, int argc, char *const *argv, bool apply, struct err *e)
{
    struct arguments a = { argc, argv, 0 };
    int result = 0;

    for (a.at = 1; a.at < argc && !result; a.at++)
        if (one_flag(c, &a, apply, e))
            result = apply ? conf_go_on(c, e) : e->code;
    return result;
}

int conf_flags_scan(struct conf *c, int argc, char *const *argv, struct err *e)
{
    return each_flag(c, argc, argv, false, e);
}

int conf_flags_apply(struct conf *c, int argc, char *const *argv, struct err *e)
{
    return each_flag(c, argc, argv, true, e);
}

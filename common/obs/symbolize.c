/* SPDX-License-Identifier: Apache-2.0
 *
 * symbolize: module -> symbol file -> name -> what people read.
 *
 * C++ names are demangled by the C++ library if the process has loaded it (RocksDB brings it);
 * a process without it has no mangled names to speak of. Parameters and return types go: they make
 * frames long and split what is one function to its author.
 */
#include "common/obs/symbolize.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/obs/elfsym.h"

enum { MANGLED_MAX = 8192, ALIASES_MAX = 64 };

struct entry {
    const struct module *module; /* borrowed; the key */
    char *path; /* owned; with start the check that the key is not a reused address */
    uint64_t start;
    struct elfsym *syms; /* owned; NULL: cannot be read */
};
struct alias {
    uint64_t function;
    const char *name; /* borrowed literal */
};
struct symbolizer {
    VEC(struct entry) entries;
    struct alias aliases[ALIASES_MAX];
    size_t aliases_len;
};

/* The busiest functions of the C library exist once per kind of CPU, and the one in use has no
 * symbol in a stripped library; but the linker knows it by its public name. */
static void alias_chosen_functions(struct symbolizer *s)
{
    static const char *const names[] = {
        "memcpy", "memmove", "memset", "memcmp",  "memchr",     "memrchr", "strlen", "strnlen",
        "strchr", "strrchr", "strcmp", "strncmp", "strcasecmp", "strstr",  "stpcpy", "exp",
        "log",    "pow",     "sin",    "cos",     "expf",       "logf",    "powf",
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        symbolizer_alias(s, (uintptr_t)dlsym(RTLD_DEFAULT, names[i]), names[i]);
}

struct symbolizer *symbolizer_new(void)
{
    struct symbolizer *s = XNEW(struct symbolizer);

    alias_chosen_functions(s);
    return s;
}

void symbolizer_free(struct symbolizer *s)
{
    if (!s)
        return;
    vec_for (i, &s->entries) {
        elfsym_close(s->entries.ptr[i].syms);
        xfree(s->entries.ptr[i].path);
    }
    vec_free(&s->entries);
    xfree(s);
}

static struct elfsym *syms_of(struct symbolizer *s, const struct module *m)
{
    struct entry n = { .module = m, .start = m->start };
    struct err e = { 0 };

    vec_for (i, &s->entries) {
        const struct entry *o = &s->entries.ptr[i];

        if (o->module == m && o->start == m->start && strcmp(o->path, m->path) == 0)
            return o->syms;
    }
    n.path = xstrdup(m->path);
    /* The vDSO has no file; others may be gone. Their frames then show the library's name. */
    if (m->path[0] != '/' || elfsym_open(m->path, m->build_id, m->build_id_len, &n.syms, &e))
        n.syms = NULL;
    vec_push(&s->entries, n);
    return n.syms;
}

void symbolizer_load(struct symbolizer *s, const struct unwind_map *map)
{
    for (size_t i = 0; i < map->modules_len; i++)
        (void)syms_of(s, map->modules[i]);
}

/* ---- cleaning -------------------------------------------------------------------------------- */

/* End of the name in a demangled C++ symbol: where its own parameter list starts, which is the last
 * one. ("Foo::bar()::{lambda()#1}::operator()(int) const" has three pairs that are not.) */
static size_t cpp_name_end(struct str s)
{
    size_t depth = 0, end = s.len;

    while (end && s.ptr[end - 1] != ')') /* " const", " &&", ... */
        end--;
    for (size_t i = end; i-- > 0;) {
        if (s.ptr[i] == ')')
            depth++;
        else if (s.ptr[i] == '(' && --depth == 0)
            return i ? i : s.len;
    }
    return s.len;
}

/* A template function's demangled name starts with its return type: cut at the last blank outside
 * brackets, but for the blank in "operator new" and the like. */
static size_t cpp_name_start(struct str s)
{
    size_t depth = 0, start = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '<' || s.ptr[i] == '(')
            depth++;
        else if ((s.ptr[i] == '>' || s.ptr[i] == ')') && depth)
            depth--;
        else if (s.ptr[i] == ' ' && depth == 0 && !str_ends(str_sub(s, 0, i), STR("operator")))
            start = i + 1;
        if (str_ends(str_sub(s, 0, i + 1), STR("operator")))
            break;
    }
    return start;
}

static bool all_in(struct str s, const char *set)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr(set, s.ptr[i]) || !s.ptr[i])
            return false;
    return s.len > 0;
}

/* ".constprop.0", ".part.1.isra.0", ".cold", ".lto_priv.3", ".llvm.123": copies made by gcc and
 * clang. "@@GLIBC_2.34" and "::h0123456789abcdef" (Rust) go as well. */
static struct str without_suffixes(struct str s)
{
    static const char *const made[] = { "constprop", "part",  "isra",       "cold",
                                        "lto_priv",  "clone", "localalias", "llvm" };
    ptrdiff_t at = str_find(s, '@');
    bool cut = true;

    if (at > 0)
        s = str_sub(s, 0, (size_t)at);
    if (s.len > 19 && str_eq(str_sub(s, s.len - 19, s.len - 16), STR("::h")) &&
        all_in(str_sub(s, s.len - 16, s.len), "0123456789abcdef"))
        s = str_sub(s, 0, s.len - 19);
    while (cut) {
        ptrdiff_t dot = str_rfind(s, '.');
        struct str last;

        if (dot <= 0)
            break;
        last = str_sub(s, (size_t)dot + 1, s.len);
        cut = all_in(last, "0123456789");
        for (size_t i = 0; i < ARRAY_LEN(made) && !cut; i++)
            cut = str_eqc(last, made[i]);
        if (cut)
            s = str_sub(s, 0, (size_t)dot);
    }
    return s;
}

static char *demangle(struct str raw)
{
    static char *(*fn)(const char *, char *, size_t *, int *);
    char name[MANGLED_MAX];
    int status = 0;

    if (!str_starts(raw, STR("_Z")) || raw.len >= sizeof(name))
        return NULL;
    if (!fn) {
        void *found = dlsym(RTLD_DEFAULT, "__cxa_demangle");

        memcpy(&fn, &found, sizeof(fn)); /* ISO C has no cast from object to function pointers */
    }
    if (!fn)
        return NULL;
    memcpy(name, raw.ptr, raw.len);
    name[raw.len] = '\0';
    return fn(name, NULL, NULL, &status);
}

/* What a folded line can hold. */
static void add_readable(struct str s, struct buf *out)
{
    s = str_sub(s, 0, SYMBOL_MAX);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        (void)buf_add_c(out, c <= ' ' || c == ';' || c >= 0x7f ? '_' : (char)c);
    }
}

void symbol_clean(struct str raw, struct buf *out)
{
    struct str s = without_suffixes(raw);
    char *plain = demangle(s);

    if (plain) {
        s = str_c(plain);
        s = str_sub(s, 0, cpp_name_end(s));
        s = without_suffixes(str_sub(s, cpp_name_start(s), s.len));
    }
    add_readable(s, out);
    free(plain); /* the C++ library took it from malloc */
}

void symbolizer_alias(struct symbolizer *s, uint64_t function, const char *name)
{
    if (function && s->aliases_len < ALIASES_MAX)
        s->aliases[s->aliases_len++] = (struct alias){ function, name };
}

/* No symbol: the library and where in it the function starts. */
static void add_place(const struct symbolizer *s, const struct module *m, uint64_t pc,
                      uint64_t function, struct buf *out)
{
    const struct cfi_row *row = m->cfi ? cfi_find(m->cfi, pc) : NULL;
    struct str name = str_c(m->path);
    ptrdiff_t slash = str_rfind(name, '/');

    for (size_t i = 0; i < s->aliases_len; i++)
        if (function && s->aliases[i].function == function) {
            (void)buf_add_str(out, str_c(s->aliases[i].name));
            return;
        }
    if (row && row->cfa == CFI_PLT) {
        (void)buf_add_str(out, STR("[plt]"));
    } else if (str_starts(name, STR("linux-vdso"))) {
        (void)buf_add_str(out, STR("[vdso]"));
    } else {
        (void)buf_add_c(out, '[');
        add_readable(str_sub(name, (size_t)(slash + 1), name.len), out);
        (void)buf_addf(out, "+0x%" PRIx64 "]", (function ? function : pc) - m->bias);
    }
}

void symbolizer_name(struct symbolizer *s, const struct unwind_map *map, uint64_t pc,
                     struct buf *out)
{
    const struct module *m = unwind_module(map, pc);
    const struct elfsym *syms = m ? syms_of(s, m) : NULL;
    uint64_t function = m && m->cfi ? cfi_function(m->cfi, pc) : 0;
    struct str name;

    if (!m)
        (void)buf_add_str(out, STR("[unknown]"));
    else if (syms && elfsym_find(syms, pc - m->bias, function ? function - m->bias : 0, &name))
        symbol_clean(name, out);
    else
        add_place(s, m, pc, function, out);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * elfsym: symbols of functions from one ELF file, sorted by address, and their names.
 *
 * The file is untrusted: it may be another build, cut off, or written to meanwhile. So each table
 * is checked against the size of the file and against TABLE_BYTES_MAX, the build id is compared
 * with that of the loaded object, and offsets of names are checked when symbols are kept. Symbols
 * are copied into 16 bytes each; the table of names is kept whole.
 *
 * A lookup is a binary search, then picks among the symbols of one address. Symbols without a size
 * (assembly) cover at most SIZELESS_REACH bytes.  Thread: one at a time; const after elfsym_open.
 */
#include "common/obs/elfsym.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/rd.h"

enum {
    TABLE_BYTES_MAX = 256 << 20,
    SIZELESS_REACH = 4096, /* hand-written assembly has symbols without a size */
};

struct sym {
    uint64_t addr;
    uint32_t size; /* 0: not said */
    uint32_t name; /* offset in names */
};
struct elfsym {
    struct sym *syms; /* owned; ascending addr */
    size_t len;
    char *names; /* owned; ends with a NUL */
    size_t names_len;
};

struct file {
    const char *path; /* borrowed */
    int fd;
    uint64_t size;
};

/* n bytes at off, with a NUL behind them. */
static int file_read(const struct file *f, uint64_t off, uint64_t n, char **ret, struct err *e)
{
    uint64_t done = 0;
    char *p;

    if (n > TABLE_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%s: a table of %" PRIu64 " bytes", f->path, n);
    if (off > f->size || n > f->size - off)
        return err_set(e, ERR_CORRUPT, "%s: a table lies outside the file", f->path);
    p = xmalloc(n + 1);
    while (done < n) {
        ssize_t got = pread(f->fd, p + done, n - done, (off_t)(off + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            xfree(p);
            return got ? err_errno(e, errno, "cannot read %s", f->path)
                       : err_set(e, ERR_CORRUPT, "%s became shorter", f->path);
        }
        done += (uint64_t)got;
    }
    p[n] = '\0';
    *ret = p;
    return 0;
}

static int read_header(const struct file *f, Elf64_Ehdr *ret, struct err *e)
{
    CLEANUP(xfreep) char *bytes = NULL;

    if (file_read(f, 0, sizeof(*ret), &bytes, e))
        return e->code;
    memcpy(ret, bytes, sizeof(*ret));
    if (memcmp(ret->e_ident, ELFMAG, SELFMAG) != 0 || ret->e_ident[EI_CLASS] != ELFCLASS64 ||
        ret->e_ident[EI_DATA] != ELFDATA2LSB)
        return err_set(e, ERR_CORRUPT, "%s is no 64-bit little-endian ELF file", f->path);
    if (ret->e_shentsize != sizeof(Elf64_Shdr) || ret->e_shnum == 0)
        return err_set(e, ERR_CORRUPT, "%s has no section table", f->path);
    return 0;
}

static int check_build_id(const struct file *f, const Elf64_Shdr *sections, size_t n,
                          const uint8_t *want, size_t want_len, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        CLEANUP(xfreep) char *bytes = NULL;
        uint32_t name_len, desc_len, type;
        struct str name, desc;
        struct rd r;

        if (sections[i].sh_type != SHT_NOTE || sections[i].sh_size > 4096)
            continue;
        if (file_read(f, sections[i].sh_offset, sections[i].sh_size, &bytes, e))
            return e->code;
        r = rd_of(str_n(bytes, sections[i].sh_size));
        while (rd_u32le(&r, &name_len) && rd_u32le(&r, &desc_len) && rd_u32le(&r, &type) &&
               rd_bytes(&r, name_len, &name) && rd_skip(&r, -name_len & 3) &&
               rd_bytes(&r, desc_len, &desc)) {
            if (type == NT_GNU_BUILD_ID && str_eq(name, STR("GNU\0")))
                return str_eq(desc, str_n(want, want_len))
                           ? 0
                           : err_set(e, ERR_CORRUPT, "%s is another build than the loaded one",
                                     f->path);
            if (!rd_skip(&r, -desc_len & 3))
                break;
        }
    }
    return err_set(e, ERR_CORRUPT, "%s has no build id, the loaded object has one", f->path);
}

static const Elf64_Shdr *find_table(const Elf64_Shdr *sections, size_t n)
{
    const Elf64_Shdr *dynamic = NULL;

    for (size_t i = 0; i < n; i++) {
        if (sections[i].sh_entsize != sizeof(Elf64_Sym) || sections[i].sh_link >= n)
            continue;
        if (sections[i].sh_type == SHT_SYMTAB)
            return &sections[i];
        if (sections[i].sh_type == SHT_DYNSYM)
            dynamic = &sections[i];
    }
    return dynamic;
}

/* Of two names for one address the name of the longer range comes first. */
static int by_addr(const void *a, const void *b)
{
    const struct sym *x = a, *y = b;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

static bool is_function(const Elf64_Sym *s)
{
    unsigned type = ELF64_ST_TYPE(s->st_info);

    return (type == STT_FUNC || type == STT_GNU_IFUNC) && s->st_shndx != SHN_UNDEF && s->st_value;
}

static void keep_functions(struct elfsym *s, const char *table, size_t n)
{
    s->syms = XNEW_ARRAY(struct sym, n + 1);
    for (size_t i = 0; i < n; i++) {
        Elf64_Sym sym;

        memcpy(&sym, table + i * sizeof(sym), sizeof(sym));
        if (is_function(&sym) && sym.st_name < s->names_len && s->names[sym.st_name])
            s->syms[s->len++] =
                (struct sym){ sym.st_value, (uint32_t)MIN(sym.st_size, UINT32_MAX), sym.st_name };
    }
    qsort(s->syms, s->len, sizeof(struct sym), by_addr);
    s->syms = xreallocarray(s->syms, s->len + 1, sizeof(struct sym));
}

static int load(const struct file *f, const uint8_t *build_id, size_t build_id_len,
                struct elfsym *s, struct err *e)
{
    CLEANUP(xfreep) char *section_bytes = NULL;
    CLEANUP(xfreep) char *table = NULL;
    CLEANUP(xfreep) Elf64_Shdr *sections = NULL;
    const Elf64_Shdr *symtab, *strtab;
    Elf64_Ehdr h;

    if (read_header(f, &h, e) ||
        file_read(f, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr), &section_bytes, e))
        return e->code;
    /* Copied for alignment. */
    sections = xmemdup(section_bytes, h.e_shnum * sizeof(Elf64_Shdr));
    if (build_id_len && check_build_id(f, sections, h.e_shnum, build_id, build_id_len, e))
        return e->code;
    symtab = find_table(sections, h.e_shnum);
    if (!symtab)
        return err_set(e, ERR_CORRUPT, "%s has no symbol table", f->path);
    strtab = &sections[symtab->sh_link];
    if (file_read(f, symtab->sh_offset, symtab->sh_size, &table, e) ||
        file_read(f, strtab->sh_offset, strtab->sh_size, &s->names, e))
        return e->code;
    s->names_len = strtab->sh_size;
    keep_functions(s, table, symtab->sh_size / sizeof(Elf64_Sym));
    return 0;
}

int elfsym_open(const char *path, const uint8_t *build_id, size_t build_id_len, struct elfsym **ret,
                struct err *e)
{
    struct file f = { path, open(path, O_RDONLY | O_CLOEXEC), 0 };
    struct elfsym *s = XNEW(struct elfsym);
    struct stat st;
    int result = 0;

    if (f.fd < 0 || fstat(f.fd, &st))
        result = err_errno(e, errno, "cannot open %s", path);
    if (!result) {
        f.size = (uint64_t)st.st_size;
        result = load(&f, build_id, build_id_len, s, e);
    }
    if (f.fd >= 0)
        (void)close(f.fd);
    if (result) {
        elfsym_close(s);
        return result;
    }
    *ret = s;
    return 0;
}

void elfsym_close(struct elfsym *s)
{
    if (!s)
        return;
    xfree(s->syms);
    xfree(s->names);
    xfree(s);
}

size_t elfsym_len(const struct elfsym *s)
{
    return s->len;
}

/* Names of one address and size stand together; "malloc" says more than "__libc_malloc". */
static struct str best_alias(const struct elfsym *s, size_t first)
{
    struct str best = str_c(s->names + s->syms[first].name);

    for (size_t i = first + 1; i < s->len && s->syms[i].addr == s->syms[first].addr &&
                               s->syms[i].size == s->syms[first].size;
         i++) {
        struct str other = str_c(s->names + s->syms[i].name);

        if (best.ptr[0] == '_' && other.ptr[0] != '_')
            best = other;
    }
    return best;
}

bool elfsym_find(const struct elfsym *s, uint64_t addr, uint64_t function, struct str *ret)
{
    size_t lo = 0, hi = s->len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->syms[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return false;
    lo--;
    while (lo > 0 && s->syms[lo - 1].addr == s->syms[lo].addr)
        lo--;
    if (addr - s->syms[lo].addr >= (s->syms[lo].size ? s->syms[lo].size : SIZELESS_REACH))
        return false;
    if (s->syms[lo].size == 0 && s->syms[lo].addr < function)
        return false;
    *ret = best_alias(s, lo);
    return true;
}

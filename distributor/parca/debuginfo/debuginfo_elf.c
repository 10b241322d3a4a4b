/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_elf: the notes of an ELF file, by program headers and, as split debug files have those
 * without content, by section headers. Nothing in the file is believed: at most HEADERS_MAX headers
 * and NOTE_BYTES of each note part are read, wherever they claim to be.
 *
 * Format: System V ABI, ELF (proto/FORMATS.md, "ELF build ids").
 */
#include "distributor/parca/debuginfo/debuginfo_elf.h"

#include <elf.h>
#include <unistd.h>

#define HEADERS_MAX 4096
#define NOTES_MAX   64
#define NOTE_BYTES  4096

struct elf {
    int fd;
    uint64_t size;
    bool wide; /* 64 bits */
};

static bool read_at(const struct elf *f, uint64_t at, void *to, size_t n)
{
    return at <= f->size && n <= f->size - at && pread(f->fd, to, n, (off_t)at) == (ssize_t)n;
}

/* The GNU build id among notes; 0 bytes: it is not there. */
static size_t find_note(const uint8_t *p, size_t n, uint8_t *id)
{
    while (n >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr h; /* the same in 32 bits */
        memcpy(&h, p, sizeof(h));
        uint64_t name = ((uint64_t)h.n_namesz + 3) / 4 * 4;
        uint64_t desc = ((uint64_t)h.n_descsz + 3) / 4 * 4;
        p += sizeof(h);
        n -= sizeof(h);
        if (name > n || desc > n - name)
            return 0;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(p, "GNU", 4) == 0 &&
            h.n_descsz <= DEBUGINFO_ID_BYTES) {
            memcpy(id, p + name, h.n_descsz);
            return h.n_descsz;
        }
        p += name + desc;
        n -= (size_t)(name + desc);
    }
    return 0;
}

static size_t note_part(const struct elf *f, uint64_t at, uint64_t len, uint8_t *id)
{
    uint8_t notes[NOTE_BYTES];
    size_t n = (size_t)MIN(len, sizeof(notes));

    if (at >= f->size)
        return 0;
    n = (size_t)MIN(n, f->size - at);
    return read_at(f, at, notes, n) ? find_note(notes, n, id) : 0;
}

/* Where a header says that its part is, if it is one of notes. */
static bool note_header(const struct elf *f, uint64_t at, bool section, uint64_t *ret_at,
                        uint64_t *ret_len)
{
    union {
        Elf64_Phdr p64;
        Elf32_Phdr p32;
        Elf64_Shdr s64;
        Elf32_Shdr s32;
    } h;

    memset(&h, 0, sizeof(h));
    if (section && f->wide) {
        if (!read_at(f, at, &h.s64, sizeof(h.s64)) || h.s64.sh_type != SHT_NOTE)
            return false;
        *ret_at = h.s64.sh_offset;
        *ret_len = h.s64.sh_size;
    } else if (section) {
        if (!read_at(f, at, &h.s32, sizeof(h.s32)) || h.s32.sh_type != SHT_NOTE)
            return false;
        *ret_at = h.s32.sh_offset;
        *ret_len = h.s32.sh_size;
    } else if (f->wide) {
        if (!read_at(f, at, &h.p64, sizeof(h.p64)) || h.p64.p_type != PT_NOTE)
            return false;
        *ret_at = h.p64.p_offset;
        *ret_len = h.p64.p_filesz;
    } else {
        if (!read_at(f, at, &h.p32, sizeof(h.p32)) || h.p32.p_type != PT_NOTE)
            return false;
        *ret_at = h.p32.p_offset;
        *ret_len = h.p32.p_filesz;
    }
    return true;
}

static size_t in_headers(const struct elf *f, uint64_t at, unsigned n, bool section, uint8_t *id)
{
    size_t step = section ? (f->wide ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr))
                          : (f->wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr));
    size_t found = 0, notes = 0;
    uint64_t part, len;

    for (unsigned i = 0; i < MIN(n, (unsigned)HEADERS_MAX) && !found && notes < NOTES_MAX; i++)
        if (at <= f->size && note_header(f, at + i * step, section, &part, &len)) {
            found = note_part(f, part, len, id);
            notes++;
        }
    return found;
}

int debuginfo_elf_id(int fd, uint64_t size, uint8_t id[DEBUGINFO_ID_BYTES], size_t *ret_len,
                     struct err *e)
{
    struct elf f = { fd, size, false };
    union {
        unsigned char ident[EI_NIDENT];
        Elf64_Ehdr h64;
        Elf32_Ehdr h32;
    } h;
    size_t found;

    memset(&h, 0, sizeof(h));
    *ret_len = 0;
    if (!read_at(&f, 0, h.ident, EI_NIDENT) || memcmp(h.ident, ELFMAG, SELFMAG) != 0 ||
        (h.ident[EI_CLASS] != ELFCLASS32 && h.ident[EI_CLASS] != ELFCLASS64))
        return err_set(e, ERR_INPUT, "not an ELF file: %" PRIu64 " bytes without its magic", size);
    if (h.ident[EI_DATA] != ELFDATA2LSB)
        return 0; /* of another machine: kept, but not looked into */
    f.wide = h.ident[EI_CLASS] == ELFCLASS64;
    if (!read_at(&f, 0, &h, f.wide ? sizeof(h.h64) : sizeof(h.h32)))
        return err_set(e, ERR_INPUT, "not an ELF file: its header is cut off");
    if (f.wide) {
        found = in_headers(&f, h.h64.e_phoff, h.h64.e_phnum, false, id);
        if (!found)
            found = in_headers(&f, h.h64.e_shoff, h.h64.e_shnum, true, id);
    } else {
        found = in_headers(&f, h.h32.e_phoff, h.h32.e_phnum, false, id);
        if (!found)
            found = in_headers(&f, h.h32.e_shoff, h.h32.e_shnum, true, id);
    }
    *ret_len = found;
    return 0;
}

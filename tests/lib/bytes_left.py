"""Which files of a data folder still hold some bytes, plain or compressed: tables of RocksDB are
zstd, a frame for each block. For tests of deletes."""
import ctypes
import ctypes.util
import pathlib

MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK_MAX = 1 << 22


def _zstd():
    lib = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    lib.ZSTD_findFrameCompressedSize.restype = ctypes.c_size_t
    lib.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    lib.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                    ctypes.c_size_t]
    lib.ZSTD_isError.argtypes = [ctypes.c_size_t]
    return lib


def plain(data):
    """The bytes, and those of each zstd frame among them."""
    lib, out, at = _zstd(), [data], data.find(MAGIC)
    room = ctypes.create_string_buffer(BLOCK_MAX)
    while at >= 0:
        rest = data[at:]
        size = lib.ZSTD_findFrameCompressedSize(rest, len(rest))
        if not lib.ZSTD_isError(size):
            n = lib.ZSTD_decompress(room, BLOCK_MAX, rest[:size], size)
            if not lib.ZSTD_isError(n):
                out.append(room.raw[:n])
        at = data.find(MAGIC, at + 1)
    return out


def files_with(folder, marker):
    """Paths below the folder, in order; files that go meanwhile hold nothing."""
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        try:
            data = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue
        if any(marker in piece for piece in plain(data)):
            found.append(path)
    return found

"""Disks whose power can be cut: a real ext4 file system on a loop device over a sparse file.

    d = Disk(image, folder, mib=1024)     made, and mounted on the folder
    d.cut()                               no power: whatever was not fsynced is gone
    d.mount()                             power again: ext4 reads its journal, as after any power failure
    d.make_read_only(), d.repair()        what the kernel does after an I/O error, and fsck with a new mount

The power cut is the ioctl EXT4_IOC_SHUTDOWN with the flag NOLOGFLUSH: from then on nothing reaches the device, neither
dirty pages nor the journal's open transaction. The file of the device survives, so what was written and flushed by then
is there at the next mount and nothing else is. The mount options make ext4 do no more than POSIX promises: a rename
flushes no data by itself (`noauto_da_alloc`) and the journal is committed by fsync, else once in 60 seconds (`commit`).
`nobarrier` saves the flush of the machine's own disk behind each fsync; it changes nothing here, since the cut does not
touch the page cache of the device's file.

Nothing outlives the test: mounts are in its private mount namespace (wire.py), and each loop device frees itself at its
last close (LO_FLAGS_AUTOCLEAR), which the kernel does when the namespace ends.
"""
import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time

LOOP_CONTROL = "/dev/loop-control"
LOOP_CONFIGURE, LOOP_CTL_GET_FREE = 0x4C0A, 0x4C82
LO_FLAGS_AUTOCLEAR = 4
LOOP_MAJOR = 7
EXT4_IOC_SHUTDOWN, NOLOGFLUSH = 0x8004587D, 2
OPTIONS = "noatime,nobarrier,noauto_da_alloc,commit=60,errors=remount-ro"
BUSY_S = 20   # so long may the kernel take to let go of the files of a killed process
PROBE_MIB = 16
BLOCK = 4096


def tool(name):
    """Its path; that of a user may lack the folders for root."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def run(*command):
    """Runs a tool; its words are the error's."""
    r = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if r.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(r.stderr or r.stdout).strip()}")
    return r.stdout


def loop_of(image):
    """(open file, path) of a free loop device over the file. Other programs look for one, too: theirs may be quicker."""
    with open(image, "r+b") as file:
        for _ in range(50):
            with open(LOOP_CONTROL, "r+b", buffering=0) as control:
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            path = f"/dev/loop{number}"
            if not os.path.exists(path):  # /dev is no devtmpfs
                with contextlib.suppress(FileExistsError):
                    os.mknod(path, 0o600 | 0o060000, os.makedev(LOOP_MAJOR, number))
            device = open(path, "r+b", buffering=0)
            info = struct.pack("5Q4I64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR,
                               os.fsencode(image.name)[:63], b"", b"", 0, 0)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE,
                            struct.pack("2I", file.fileno(), BLOCK) + info + bytes(64))
                return device, path
            except OSError:
                device.close()
                time.sleep(0.05)
    raise RuntimeError(f"{LOOP_CONTROL}: of fifty free loop devices none could be had")


def why_not():
    """What is missing for a power cut here; empty: nothing. A failure of a machine that has loop devices and ext4
    is raised instead, since there the rig itself is broken."""
    if os.getuid() or not os.access(LOOP_CONTROL, os.W_OK):
        return f"power cuts: no access to {LOOP_CONTROL} (loop devices need root)"
    for name in ("mkfs.ext4", "mount", "umount", "e2fsck"):
        if not tool(name):
            return f"power cuts: there is no {name} (package e2fsprogs or mount)"
    with open("/proc/filesystems", encoding="ascii") as f:
        if "ext4" not in f.read().split() and subprocess.run(["modprobe", "ext4"], capture_output=True,
                                                             check=False).returncode:
            return "power cuts: the kernel has no ext4"
    with tempfile.TemporaryDirectory(prefix="embertree-disks-") as folder:
        try:
            probe(folder)
        except (OSError, RuntimeError) as e:
            return f"power cuts: {LOOP_CONTROL} is there, and a probe failed: {e}"
    return ""


def broken(why):
    """True if it should have worked here: loop devices are there."""
    return LOOP_CONTROL + " is there" in why


def probe(folder):
    """A disk loses what was not fsynced, and keeps what was."""
    disk = Disk(os.path.join(folder, "image"), os.path.join(folder, "disk"), PROBE_MIB)
    try:
        for name, synced in (("lost", False), ("kept", True)):
            with open(disk.folder / name, "wb") as f:
                f.write(name.encode())
                f.flush()
                if synced:
                    os.fsync(f.fileno())
        with open(disk.folder / "kept", "ab") as f:
            f.write(b" and more")
        disk.cut()
        disk.mount()
        lost, kept = disk.folder / "lost", (disk.folder / "kept").read_bytes()
        if lost.exists() and lost.stat().st_size or kept != b"kept":
            raise RuntimeError("after a power cut a file that was not fsynced is still there, or an fsynced one "
                               f"is not: {kept!r}")
    finally:
        disk.close()


class Disk:
    """One ext4 file system, mounted on a folder."""

    def __init__(self, image, folder, mib):
        self.image, self.folder = pathlib.Path(image), pathlib.Path(folder)
        self.mib, self.cuts, self.mounted, self.device = mib, 0, False, None
        with open(self.image, "wb") as f:
            f.truncate(mib << 20)
        run(tool("mkfs.ext4"), "-q", "-F", "-b", str(BLOCK), "-m", "0", "-N", str(mib * 8), "-J", f"size={4 if mib < 64 else 16}",
            "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self.image))
        self.device, self.path = loop_of(self.image)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.mount()

    def mount(self):
        run("mount", "-t", "ext4", "-o", OPTIONS, self.path, str(self.folder))
        self.mounted = True

    def shut_down(self):
        """From now on nothing that is written reaches the device; the file system says EIO."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(folder)

    def umount(self):
        """Once its processes are gone. Never lazily: the next mount would get the same file system again."""
        until = time.monotonic() + BUSY_S
        while self.mounted:
            try:
                run("umount", str(self.folder))
                self.mounted = False
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def cut(self):
        self.shut_down()
        self.umount()
        self.cuts += 1

    def make_read_only(self):
        """An I/O error of the file system's own, for which `errors=remount-ro` is made."""
        name = os.path.basename(self.path)
        with open(f"/sys/fs/ext4/{name}/trigger_fs_error", "w", encoding="ascii") as f:
            f.write("1")
        assert self.read_only(), f"{self.folder} is still writable"

    def read_only(self):
        """Asked by a write: since Linux 6.15 the flag of the mount does not tell."""
        try:
            (self.folder / "probe").touch()
            (self.folder / "probe").unlink()
            return False
        except OSError as e:
            return e.errno == errno.EROFS

    def repair(self):
        """What an operator does: unmounted, looked through, mounted again. Its processes are gone by now."""
        self.umount()
        r = subprocess.run([tool("e2fsck"), "-fy", self.path], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, check=False)
        if r.returncode > 1:
            raise RuntimeError(f"e2fsck of {self.folder}: {r.returncode}: {r.stdout[-1000:]}{r.stderr[-500:]}")
        self.mount()

    def free(self):
        v = os.statvfs(self.folder)
        return v.f_bavail * v.f_frsize

    def close(self):
        """Gone, with its image."""
        with contextlib.suppress(RuntimeError):
            self.umount()
        if self.device:
            self.device.close()
            self.device = None
        self.image.unlink(missing_ok=True)

"""Everything that differs between Linux, macOS and Windows, with a portable twin."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

NETWORK_FILE_SYSTEMS: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "afpfs", "9p", "ncpfs", "ceph", "glusterfs", "lustre",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "webdav", "davfs", "beegfs", "gpfs",
    "ocfs2",
})  # fmt: skip


def boot_id() -> str:
    """A name for this run of the machine: another one means that every process of the former is dead."""
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        found = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        )
        if found.stdout.strip():
            return found.stdout.strip()
    # The instant of the boot, to the minute: it does not move while the machine runs, unless its clock is set.
    return f"boot-{round((time.time() - time.monotonic()) / 60)}"


def file_system(path: Path) -> str:
    """The type of the file system that holds a path, "" where it cannot be told."""
    if sys.platform != "linux":
        return ""
    target, best = path.resolve(), ("", "")
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        mount = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        if target.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, fields[fields.index("-") + 1])
    return best[1]


if sys.platform == "win32":
    import msvcrt

    def lock_byte(fd: int, byte: int, *, wait: bool = True) -> bool:
        while True:
            os.lseek(fd, byte, os.SEEK_SET)
            try:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            except OSError:
                if not wait:
                    return False
                time.sleep(0.001)
            else:
                return True

    def unlock_byte(fd: int, byte: int) -> None:
        os.lseek(fd, byte, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def lock_holder(fd: int, byte: int) -> int | None:  # noqa: ARG001 - Windows does not say
        return None

    def end_process(pid: int) -> None:
        os.kill(pid, signal.SIGTERM)

    HAS_DATAGRAMS: Final = False

    def datagram_socket() -> socket.socket:
        raise OSError("Windows has no unix datagrams: processes look at the file instead")
else:
    import fcntl

    # Record locks, not flock: gone with their process, and not inherited by its children.
    def lock_byte(fd: int, byte: int, *, wait: bool = True) -> bool:
        """Lock one byte of a file; False if it is taken and we would not wait."""
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
            except (BlockingIOError, PermissionError):  # two spellings of "taken"
                return False
            except OSError as trouble:
                # The kernel sees processes, not threads: two of them with two files each may look like a deadlock.
                if trouble.errno != errno.EDEADLK:
                    raise
                time.sleep(0.001)
            else:
                return True

    def unlock_byte(fd: int, byte: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)

    _FLOCK: Final = "hhqqi4x" if sys.platform == "linux" else "qqihh"

    def lock_holder(fd: int, byte: int) -> int | None:
        """The process that holds a byte's lock, as far as the system tells."""
        if sys.platform == "linux":
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        else:
            asked = struct.pack(_FLOCK, byte, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    def end_process(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    HAS_DATAGRAMS: Final = True

    def datagram_socket() -> socket.socket:
        """A socket by which processes of one machine wake one another; it never blocks."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.setblocking(False)
        return made


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP, Ctrl-Z) rather than slow, or held by a debugger."""
    try:
        if sys.platform == "linux":
            about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            return about.rpartition(")")[2].split()[0] == "T"
        if sys.platform == "darwin":
            command = ["/bin/ps", "-o", "state=", "-p", str(pid)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a number of ours
            return found.stdout.strip().startswith("T")
    except OSError:
        return False
    return False

"""Everything that differs between Linux, macOS and Windows, with a portable twin."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import functools
import getpass
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import IO, Final, NamedTuple

NETWORK_FILE_SYSTEMS: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "afpfs", "9p", "ncpfs", "ceph", "glusterfs", "lustre",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "webdav", "davfs", "beegfs", "gpfs",
    "ocfs2",
})  # fmt: skip


def whoami() -> str:
    """Who makes a change, as it is written with it: `user@machine`, the same from Python and from the shell."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in many containers
        user = f"user {os.getuid()}" if hasattr(os, "getuid") else "someone"
    name = f"{user}@{socket.gethostname()}"
    # It is shown on terminals, which control characters would steer.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)[:200]


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
            except OSError as error:
                # The kernel sees processes, not threads: two of them with two files each may look like a deadlock.
                if error.errno != errno.EDEADLK:
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


# -- children ----------------------------------------------------------------------------------------------------------


def start_child(
    code: str, talk: socket.socket, memory: IO[bytes], stack: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start Python with a socket and files of ours, as `inherited` finds them; in a session of its own, so that a
    terminal's Ctrl-C reaches only its supervisor, and ending it ends what it started."""
    command = [sys.executable, "-c", code]
    if sys.platform == "win32":
        child = subprocess.Popen([*command, memory.name], stdin=subprocess.PIPE, creationflags=_NEW_GROUP)  # noqa: S603
        assert child.stdin is not None
        child.stdin.write(talk.share(child.pid))
        child.stdin.close()
        return child
    fds = [file.fileno() for file in (talk, memory, stack) if file is not None]
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        [*command, *map(str, fds)], stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True
    )


def inherited(argv: list[str]) -> tuple[socket.socket, int, int | None]:
    """The socket, the memory, and the file for its stack, if any, that `start_child` passed on."""
    if sys.platform == "win32":
        return socket.fromshare(sys.stdin.buffer.read()), os.open(argv[1], os.O_RDWR), None
    talk, memory, *stack = map(int, argv[1:])
    for fd in (talk, memory, *stack):
        os.set_inheritable(fd, False)
    return socket.socket(fileno=talk), memory, stack[0] if stack else None


def end_family(child: subprocess.Popen[bytes]) -> None:
    """End a child and what it started, at once; on Linux in whatever session or group that is."""
    if sys.platform == "win32":
        if child.poll() is None:
            child.kill()
    else:
        # Once it was waited for, its number may be another's.
        family = ProcessScan().family(child.pid, {}) if SEES_DEEDS and child.returncode is None else {}
        try:
            os.killpg(child.pid, signal.SIGKILL)  # also of a leader that is dead: its number is its group's meanwhile
        except (ProcessLookupError, PermissionError):
            if child.poll() is None:
                child.kill()
        for pid, began in family:
            # It may have ended since, and its number be another's.
            with contextlib.suppress(OSError, ValueError, IndexError):
                if pid != child.pid and began == int(_stat(f"/proc/{pid}")[19]):
                    os.kill(pid, signal.SIGKILL)


def die_with_parent() -> None:
    """From now on this process is ended when the one that started it dies, also in the midst of a computation."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes = import_module("ctypes")
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)


def follows_parent() -> Callable[[], None] | None:
    """For a command's preexec: it is ended when the process that started it dies. None where there is no such thing."""
    if sys.platform != "linux":
        return None
    prctl = import_module("ctypes").CDLL(None).prctl  # looked up now: between fork and exec nothing may be
    return lambda: prctl(1, signal.SIGKILL, 0, 0, 0)


def as_command() -> Callable[[], None] | None:
    """For a command's preexec, from any thread: it starts with default signals, whatever this process ignores, and on
    Linux it is ended when the process that started it dies. None on Windows."""
    if sys.platform == "win32":
        return None
    ctypes = import_module("ctypes")
    libc = ctypes.CDLL(None)  # all is looked up now: between fork and exec nothing may be
    default, numbers = libc.signal, [*_DEFAULT_IN_CHILDREN, signal.SIGHUP]
    default.argtypes, default.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    prctl = libc.prctl if sys.platform == "linux" else None

    def prepare() -> None:
        for number in numbers:
            default(number, None)  # SIG_DFL
        if prctl is not None:
            prctl(1, signal.SIGKILL, 0, 0, 0)

    return prepare


# Python itself ignores SIGPIPE; a shell starts what it puts into the background with SIGINT and SIGQUIT ignored. SIGHUP
# is left as it is: who ignores it was started by nohup, and so was the command.
_DEFAULT_IN_CHILDREN: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD")
    if hasattr(signal, name)
)


@contextlib.contextmanager
def default_signals_for_children() -> Iterator[None]:
    """A block in which commands start with the default answer to signals that this process ignores. In the main thread.

    A signal that is caught is set to its default by exec itself, so nothing has to run between fork and exec."""
    ignored = [number for number in _DEFAULT_IN_CHILDREN if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Stands for SIG_IGN."""


def memory_of(pid: int) -> int | None:
    """The bytes of memory a process takes, None where the system does not say."""
    try:
        if sys.platform == "linux":
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        if sys.platform == "darwin":
            command = ["/bin/ps", "-o", "rss=", "-p", str(pid)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a number of ours
            return int(found.stdout) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


# -- what processes do -------------------------------------------------------------------------------------------------


class ProcessActivity(NamedTuple):
    """What a process or a thread has done so far: seconds of CPU, and bytes that it read and wrote, in files, pipes and
    terminals. What goes over sockets the kernel does not count. `waited`: seconds that each thread stood in line
    for a core, where that is known."""

    cpu: float = 0.0
    moved: int = 0
    waited: Mapping[int, float] = MappingProxyType({})


Doers = dict[tuple[int, int], ProcessActivity]  # by number and start: numbers are used again
SEES_DEEDS: Final = sys.platform == "linux"
if sys.platform == "win32":
    _TICKS = 1
else:
    _TICKS = os.sysconf("SC_CLK_TCK")
_HAS_CHILDREN: Final = SEES_DEEDS and Path(f"/proc/self/task/{os.getpid()}/children").exists()


class ProcessScan:
    """One look at the processes of this machine, for all whose families are asked for. Only where deeds are seen."""

    @functools.cached_property
    def _everyone(self) -> list[tuple[int, int, int, int]]:
        """Number, parent, group and session of each process: dear where there are many."""
        found = []
        for name in _names("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                    fields = _stat(f"/proc/{name}")
                    found.append((int(name), int(fields[1]), int(fields[2]), int(fields[3])))
        return found

    def family(self, root: int, known: Doers, *, thorough: bool = False) -> Doers:
        """A process, all that descend from it, and those `known` that live, whoever their parent is now. A thorough
        look also finds those that nobody has seen before their parent left them: by their group and session."""
        found: Doers = {}
        unasked: list[tuple[int, int | None]] = [*known]
        if thorough:
            unasked += [(pid, None) for pid, _, group, session in self._everyone if root in {group, session}]
        unasked.append((root, None))
        while unasked:
            pid, start = unasked.pop()
            if (pid, start) in found:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                threads = _threads(pid)
                began, deeds = _deeds(f"/proc/{pid}", threads, times=4)
                if (pid, began) not in found and start in {None, began}:  # else its number is another's now
                    found[pid, began] = deeds
                    unasked += [(child, None) for child in self._children_of(pid, threads)]
        return found

    def _children_of(self, pid: int, threads: dict[int, str]) -> list[int]:
        if not _HAS_CHILDREN:
            return [one for one, parent, _, _ in self._everyone if parent == pid]
        found: list[int] = []
        for place in threads.values():
            with contextlib.suppress(OSError):
                found += map(int, _read(f"{place}/children").split())
        return found


def deeds_of_thread(pid: int, thread: int) -> Doers:
    """Its own, without those of other threads; nothing where it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        place = f"/proc/{pid}/task/{thread}"
        start, deeds = _deeds(place, {thread: place}, times=2)
        return {(thread, start): deeds}
    return {}


def threads_of_this_process() -> list[int]:
    return [int(name) for name in _names("/proc/self/task")] if SEES_DEEDS else []


def _deeds(folder: str, threads: dict[int, str], times: int) -> tuple[int, ProcessActivity]:
    """When it started, and what it did: two times are its own, user and system, and four count children with it that
    were waited for."""
    fields = _stat(folder)
    cpu = sum(map(int, fields[11 : 11 + times])) / _TICKS
    moved = 0
    with contextlib.suppress(OSError):  # another user's, as of a command that became root
        about = dict(line.split(": ") for line in _read(f"{folder}/io").splitlines())
        moved = int(about["rchar"]) + int(about["wchar"])
    waited = {}
    for thread, place in threads.items():
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended, or the kernel does not count it
            waited[thread] = int(_read(f"{place}/schedstat").split()[1]) / 1e9
    return int(fields[19]), ProcessActivity(cpu, moved, waited)


def _threads(pid: int) -> dict[int, str]:
    """The threads of a process, and where each is found."""
    with contextlib.suppress(OSError):
        return {int(name): f"/proc/{pid}/task/{name}" for name in _names(f"/proc/{pid}/task")}
    return {}


def _names(folder: str) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 - names are what is wanted


def _stat(folder: str) -> list[str]:
    return _read(f"{folder}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - hundreds of them in one look
        return file.read()


# What asks a child for its stack where its interpreter cannot answer. Real-time signals are hardly used by anyone.
if sys.platform == "linux":
    STACK_SIGNAL: int | None = signal.SIGRTMIN + 7
else:
    STACK_SIGNAL = None


def tell_stack_on_signal(file: int) -> None:
    """From now on a signal writes this process's stack into an open file, whatever its interpreter is at."""
    if STACK_SIGNAL is not None and sys.platform != "win32":
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)


def ask_stack(pid: int) -> bool:
    if STACK_SIGNAL is None:
        return False
    os.kill(pid, STACK_SIGNAL)
    return True


_NEW_GROUP: Final = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


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


# -- terminals ---------------------------------------------------------------------------------------------------------


HAS_PROCESS_GROUPS: Final = sys.platform != "win32"


def signal_group(leader: int, number: int) -> None:
    """To all processes of a group; ProcessLookupError if there is none left."""
    if sys.platform != "win32":
        os.killpg(leader, number)


def is_in_foreground() -> bool:
    """Whether a terminal sends Ctrl-C to this process and its children by itself, as to all in the foreground."""
    if sys.platform == "win32":
        return True
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal, or no stdin at all
        return False

"""Everything that differs between Linux, macOS and Windows, each with a portable fallback."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import functools
import getpass
import os
import re
import shlex
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
    """The author of changes, `user@machine`: the same from Python and from the shell."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user has no name, as in many containers
        user = f"user {os.getuid()}" if hasattr(os, "getuid") else "someone"
    name = f"{user}@{socket.gethostname()}"
    # The name is shown on terminals, so control characters must not reach them.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)[:200]


def boot_id() -> str:
    """An id of the current boot of this machine: if it changes, all earlier processes are dead."""
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        found = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        )
        if found.stdout.strip():
            return found.stdout.strip()
    # The time of the boot, in minutes: it changes only if the clock is set.
    return f"boot-{round((time.time() - time.monotonic()) / 60)}"


def file_system(path: Path) -> str:
    """The type of the file system that holds a path, or "" if it is unknown."""
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

    def lock_holder(fd: int, byte: int) -> int | None:  # noqa: ARG001 - Windows does not report it
        return None

    def end_process(pid: int) -> None:
        os.kill(pid, signal.SIGTERM)

    HAS_DATAGRAMS: Final = False

    def datagram_socket() -> socket.socket:
        raise OSError("Windows has no unix datagram sockets: processes poll the file instead")
else:
    import fcntl

    # Record locks, not flock: they end with their process, and its children do not inherit them.
    def lock_byte(fd: int, byte: int, *, wait: bool = True) -> bool:
        """Lock one byte of a file. Without `wait`, returns False if another process holds the lock."""
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
            except (BlockingIOError, PermissionError):  # EAGAIN and EACCES both mean that the lock is held
                return False
            except OSError as error:
                # The kernel knows processes, not threads: two processes with two files each can look like a deadlock.
                if error.errno != errno.EDEADLK:
                    raise
                time.sleep(0.001)
            else:
                return True

    def unlock_byte(fd: int, byte: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)

    _FLOCK: Final = "hhqqi4x" if sys.platform == "linux" else "qqihh"

    def lock_holder(fd: int, byte: int) -> int | None:
        """The id of the process that holds the lock of a byte; None if it is free or the system does not say."""
        if sys.platform == "linux":
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, request))
        else:
            request = struct.pack(_FLOCK, byte, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, request))
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    def end_process(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    HAS_DATAGRAMS: Final = True

    def datagram_socket() -> socket.socket:
        """A non-blocking socket by which the processes of one machine wake one another."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.setblocking(False)
        return made


# -- children ----------------------------------------------------------------------------------------------------------


def start_child(
    code: str, talk: socket.socket, memory: IO[bytes], stack: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a Python child that inherits our socket and files; `inherited` finds them there. The child has its own
    session, so that Ctrl-C in a terminal reaches only the supervisor, and ending the child ends what it started."""
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
    """In a child: the socket, the shared memory, and the file for its stack, if any, from `start_child`."""
    if sys.platform == "win32":
        return socket.fromshare(sys.stdin.buffer.read()), os.open(argv[1], os.O_RDWR), None
    talk, memory, *stack = map(int, argv[1:])
    for fd in (talk, memory, *stack):
        os.set_inheritable(fd, False)
    return socket.socket(fileno=talk), memory, stack[0] if stack else None


def end_family(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and all processes that it started; on Linux also those in other sessions or groups."""
    if sys.platform == "win32":
        if child.poll() is None:
            child.kill()
    else:
        # After the child was waited for, its pid may belong to another process.
        family = ProcessScan().family(child.pid, {}) if SEES_ACTIVITY and child.returncode is None else {}
        try:
            os.killpg(child.pid, signal.SIGKILL)  # works also if the leader is dead: the group keeps the pid reserved
        except (ProcessLookupError, PermissionError):
            if child.poll() is None:
                child.kill()
        for pid, began in family:
            # The process may have ended meanwhile, and its pid may belong to another one.
            with contextlib.suppress(OSError, ValueError, IndexError):
                if pid != child.pid and began == int(_stat(f"/proc/{pid}")[19]):
                    os.kill(pid, signal.SIGKILL)


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent dies, even during a computation. Linux only."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes = import_module("ctypes")
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # the parent died before the request took effect
            os._exit(1)


def follows_parent() -> Callable[[], None] | None:
    """A `preexec_fn` for a command that is killed when its parent dies; None where the system does not support that."""
    if sys.platform != "linux":
        return None
    prctl = import_module("ctypes").CDLL(None).prctl  # looked up now: not safe between fork and exec
    return lambda: prctl(1, signal.SIGKILL, 0, 0, 0)


def as_command() -> Callable[[], None] | None:
    """A `preexec_fn` for a command, usable from any thread: the command starts with default signal handlers, even for
    signals that this process ignores, and on Linux it is killed when its parent dies. None on Windows."""
    if sys.platform == "win32":
        return None
    ctypes = import_module("ctypes")
    libc = ctypes.CDLL(None)  # everything is looked up now: not safe between fork and exec
    default, numbers = libc.signal, [*_DEFAULT_IN_CHILDREN, signal.SIGHUP]
    default.argtypes, default.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    prctl = libc.prctl if sys.platform == "linux" else None

    def prepare() -> None:
        for number in numbers:
            default(number, None)  # SIG_DFL
        if prctl is not None:
            prctl(1, signal.SIGKILL, 0, 0, 0)

    return prepare


# A shell starts background jobs with SIGINT and SIGQUIT ignored, and Python itself ignores SIGPIPE. SIGHUP stays as it
# is: a process that ignores it was started by nohup, and that should hold for the command too.
_DEFAULT_IN_CHILDREN: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD")
    if hasattr(signal, name)
)


@contextlib.contextmanager
def default_signals_for_children() -> Iterator[None]:
    """A block in which commands start with the default handlers of signals that this process ignores. Main thread only.

    exec itself resets a caught signal to its default, so that nothing has to run between fork and exec."""
    ignored = [number for number in _DEFAULT_IN_CHILDREN if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """A handler in place of SIG_IGN."""


MEMORY_IS_CHEAP: Final = sys.platform == "linux"  # elsewhere reading it starts a program, or is not possible


def memory_of(pid: int) -> int | None:
    """The resident memory of a process in bytes; None if the system does not report it."""
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


# -- the activity of processes -----------------------------------------------------------------------------------------


class ProcessActivity(NamedTuple):
    """The activity of a process or thread so far: seconds of CPU time (`cpu`), and bytes that it `moved`, that is, read
    and wrote in files, pipes and terminals; the kernel does not count sockets. `waited` is how many seconds each thread
    was runnable but waited for a core, where that is known."""

    cpu: float = 0.0
    moved: int = 0
    waited: Mapping[int, float] = MappingProxyType({})


Activities = dict[tuple[int, int], ProcessActivity]  # by pid and start time, because pids are used again
SEES_ACTIVITY: Final = sys.platform == "linux"
if sys.platform == "win32":
    _TICKS = 1
else:
    _TICKS = os.sysconf("SC_CLK_TCK")
_HAS_CHILDREN: Final = SEES_ACTIVITY and Path(f"/proc/self/task/{os.getpid()}/children").exists()


class ProcessScan:
    """One scan of the processes of this machine, shared by all calls of `family`. Only where SEES_ACTIVITY."""

    @functools.cached_property
    def _everyone(self) -> list[tuple[int, int, int, int]]:
        """The pid, parent, group and session of each process. Expensive if there are many."""
        found = []
        for name in _names("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                    fields = _stat(f"/proc/{name}")
                    found.append((int(name), int(fields[1]), int(fields[2]), int(fields[3])))
        return found

    def family(self, root: int, known: Activities, *, thorough: bool = False) -> Activities:
        """A process, all its descendants, and the `known` ones that are alive, whoever their parent is now. A thorough
        scan also finds descendants whose parent ended before they were ever seen, by their group and session."""
        found: Activities = {}
        pending: list[tuple[int, int | None]] = [*known]
        if thorough:
            pending += [(pid, None) for pid, _, group, session in self._everyone if root in {group, session}]
        pending.append((root, None))
        while pending:
            pid, start = pending.pop()
            if (pid, start) in found:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                threads = _threads(pid)
                began, activity = _activity(f"/proc/{pid}", threads, times=4)
                if (pid, began) not in found and start in {None, began}:  # otherwise the pid was used again
                    found[pid, began] = activity
                    pending += [(child, None) for child in self._children_of(pid, threads)]
        return found

    def _children_of(self, pid: int, threads: dict[int, str]) -> list[int]:
        if not _HAS_CHILDREN:
            return [one for one, parent, _, _ in self._everyone if parent == pid]
        found: list[int] = []
        for folder in threads.values():
            with contextlib.suppress(OSError):
                found += map(int, _read(f"{folder}/children").split())
        return found


def processes_below(root: int, limit: int) -> list[tuple[int, str]]:
    """The processes that a process and its descendants have started, the oldest first, each with its command line;
    empty where the system does not report them."""
    if not SEES_ACTIVITY:
        return []
    family = sorted(ProcessScan().family(root, {}), key=lambda process: process[1])
    found = []
    for pid in [pid for pid, _ in family if pid != root][:limit]:
        with contextlib.suppress(OSError):  # it has just ended
            parts = _read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
            found.append((pid, shlex.join(parts)))
    return found


def activity_of_thread(pid: int, thread: int) -> Activities:
    """The activity of one thread alone; empty if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        folder = f"/proc/{pid}/task/{thread}"
        start, activity = _activity(folder, {thread: folder}, times=2)
        return {(thread, start): activity}
    return {}


def threads_of_this_process() -> list[int]:
    """The ids of the threads of this process; empty where the system does not report them."""
    return [int(name) for name in _names("/proc/self/task")] if SEES_ACTIVITY else []


def _activity(folder: str, threads: dict[int, str], times: int) -> tuple[int, ProcessActivity]:
    """The start time and the activity. With two `times`, CPU is the user and system time of the process itself; with
    four, it includes that of children that were waited for."""
    fields = _stat(folder)
    cpu = sum(map(int, fields[11 : 11 + times])) / _TICKS
    moved = 0
    with contextlib.suppress(OSError):  # the process of another user, such as a command that became root
        counters = dict(line.split(": ") for line in _read(f"{folder}/io").splitlines())
        moved = int(counters["rchar"]) + int(counters["wchar"])
    waited = {}
    for thread, of_thread in threads.items():
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended, or the kernel does not count it
            waited[thread] = int(_read(f"{of_thread}/schedstat").split()[1]) / 1e9
    return int(fields[19]), ProcessActivity(cpu, moved, waited)


def _threads(pid: int) -> dict[int, str]:
    """The threads of a process, each with its folder in /proc."""
    with contextlib.suppress(OSError):
        return {int(name): f"/proc/{pid}/task/{name}" for name in _names(f"/proc/{pid}/task")}
    return {}


def _names(folder: str) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 - names are what is wanted


def _stat(folder: str) -> list[str]:
    return _read(f"{folder}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - faster; one scan reads hundreds
        return file.read()


# The signal that makes a child write its stack even if its interpreter is blocked. Few programs use real-time signals.
if sys.platform == "linux":
    STACK_SIGNAL: int | None = signal.SIGRTMIN + 7
else:
    STACK_SIGNAL = None


def write_stack_on_signal(file: int) -> None:
    """Have STACK_SIGNAL write the stack of this process into an open file, even if the interpreter is blocked."""
    if STACK_SIGNAL is not None and sys.platform != "win32":
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)


def request_stack(pid: int) -> bool:
    """Have a child write its stack; False where the system does not support that."""
    if STACK_SIGNAL is None:
        return False
    os.kill(pid, STACK_SIGNAL)
    return True


_NEW_GROUP: Final = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by SIGSTOP or Ctrl-Z, and not only slow or held by a debugger."""
    try:
        if sys.platform == "linux":
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            return status.rpartition(")")[2].split()[0] == "T"
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
    """Send a signal to all processes of a group. Raises ProcessLookupError if none is left."""
    if sys.platform != "win32":
        os.killpg(leader, number)


def is_in_foreground() -> bool:
    """Whether the terminal itself sends Ctrl-C to this process and its children, because they are in the foreground."""
    if sys.platform == "win32":
        return True
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal, or no stdin at all
        return False

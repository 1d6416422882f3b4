"""Runs code of strangers in bubblewrap: as a user of its own, without network, files of the host, or the environment.

What a run may use is bounded from the first instruction on: the limits are set before the code is started, and nothing
in the sandbox can raise them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from execution_queue.control_groups import control_group
from execution_queue.system_calls import filter_of

FIRST_USER: Final = 300_000_000  # user ids that no account has; each run at the same time has one of its own
USERS: Final = 1_000_000
READ_BYTES: Final = 16 * 1024
SAFE_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
ENDS_WITHIN: Final = 2.0  # seconds that bwrap has to notice that its sandbox is dead
STARTS_WITHIN: Final = 60.0  # seconds that the first sandbox has, on a machine that is busy
OLDEST: Final = "0.8"  # bubblewrap with --disable-userns
MIB: Final = 1024 * 1024

Stream = Literal["stdout", "stderr"]
Told = Callable[[Stream, bytes], Awaitable[None]]
Ending = Literal["exited", "timeout", "output", "memory"]


class Limits(Struct, frozen=True, kw_only=True):
    """What one run may use. `memory` and `processes` are for all its processes together where there are cgroups;
    elsewhere `memory` is for each process. `disk` is what its folders may hold, which is memory too."""

    seconds: float = 10.0
    memory: int = 256 * MIB
    processes: int = 32
    disk: int = 32 * MIB
    output: int = 64 * 1024
    files: int = 64


class Finished(Struct, frozen=True, kw_only=True):
    """How a run ended. `exit_code` is negative if a signal ended it, or if the code says so as a shell does: 137 is
    SIGKILL. `ending` says whether it ended by itself, or which limit it reached."""

    exit_code: int
    ending: Ending
    seconds: float
    stdout: str = ""
    stderr: str = ""


class Language(Struct, frozen=True):
    program: str
    file: str


LANGUAGES: Final = {
    "python": Language("/usr/bin/python3", "main.py"),
    "bash": Language("/usr/bin/bash", "main.sh"),
    "node": Language("/usr/bin/node", "main.js"),
    "ruby": Language("/usr/bin/ruby", "main.rb"),
}


class NoSandbox(Exception):
    """Code cannot be contained on this machine, or not in this language; the text says what is missing."""


def languages() -> list[str]:
    """The languages whose interpreter this machine has."""
    return [name for name, language in LANGUAGES.items() if Path(language.program).exists()]


def check_machine() -> None:
    """Raise NoSandbox if this machine lacks a program, or does not allow a sandbox. Code never runs without one."""
    if sys.platform != "linux":
        raise NoSandbox("the sandbox needs Linux")
    for program, package in (("bwrap", "bubblewrap"), ("prlimit", "util-linux"), ("setpriv", "util-linux")):
        if shutil.which(program, path=SAFE_PATH) is None:
            raise NoSandbox(f"{program} is not installed: apt-get install {package}")
    with _descriptors(b"exit 0", is_counted=False) as files:
        ended = subprocess.run(  # noqa: S603
            command_of("bash", files, Limits(), _user(), is_counted=False), stdin=subprocess.DEVNULL,
            capture_output=True, env={"PATH": SAFE_PATH}, cwd="/", pass_fds=files.all(), timeout=STARTS_WITHIN,
            check=False,
        )  # fmt: skip
    if ended.returncode != 0:
        raise NoSandbox(
            f"bubblewrap cannot make a sandbox here: {ended.stderr.decode('utf-8', 'replace').strip()}\n"
            f"It needs version {OLDEST} or newer, and a kernel, or a container, that allows user namespaces"
        )


# -- the command -------------------------------------------------------------------------------------------------------


class Descriptors(Struct, frozen=True):
    """What bwrap gets as open files, so that it needs no place on a disk: the code, the filter of system calls (none on
    some machines), and where it writes what became of the sandbox."""

    script: int
    rules: int | None
    status: int

    def all(self) -> list[int]:
        return [self.script, self.status] + ([] if self.rules is None else [self.rules])


@contextlib.contextmanager
def _descriptors(code: bytes, *, is_counted: bool) -> Iterator[Descriptors]:
    rules = filter_of(is_counted=is_counted)
    files = Descriptors(
        _in_memory("script", code), _in_memory("rules", rules) if rules else None, _in_memory("status", b"")
    )
    try:
        yield files
    finally:
        for file in files.all():
            os.close(file)


def _in_memory(name: str, content: bytes) -> int:
    file = os.memfd_create(name)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def command_of(language: str, files: Descriptors, limits: Limits, user: int | None, *, is_counted: bool) -> list[str]:
    """The command line of a run. `user` is the user of the host as which it runs, if we may choose one; `is_counted`
    says that a cgroup counts its memory."""
    found = LANGUAGES[language]
    command = []
    if user is not None:
        command += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--"]
    command += ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--json-status-fd", str(files.status)]
    if files.rules is not None:
        command += ["--seccomp", str(files.rules)]
    command += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--clearenv"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/code", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    for name, value in environment.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if (Path("/") / name).is_symlink():
            command += ["--symlink", f"usr/{name}", f"/{name}"]
        elif (Path("/") / name).exists():
            command += ["--ro-bind", f"/{name}", f"/{name}"]
    if Path("/etc/alternatives").exists():
        command += ["--ro-bind", "/etc/alternatives", "/etc/alternatives"]
    half = str(limits.disk // 2)
    command += ["--proc", "/proc", "--dev", "/dev", "--size", half, "--tmpfs", "/tmp"]  # noqa: S108 - of the sandbox
    command += ["--size", half, "--tmpfs", "/code", "--size", "65536", "--tmpfs", "/dev/shm"]  # noqa: S108
    command += ["--ro-bind-data", str(files.script), f"/code/{found.file}", "--remount-ro", "/", "--remount-ro", "/dev"]
    command += ["--chdir", "/code", "--"]
    return [*command, *_limited(limits, is_counted=is_counted), found.program, f"/code/{found.file}"]


def _limited(limits: Limits, *, is_counted: bool) -> list[str]:
    """A program that sets the limits, hard ones, on itself, and then becomes the code. It runs inside of the sandbox:
    there the number of processes counts those of the sandbox alone."""
    # A net under the time limit, which ends the run: threads on several processors use more of this time than passes.
    seconds = (int(limits.seconds) + 1) * (os.cpu_count() or 1)
    # Runtimes reserve much more address space than they use. Where no cgroup counts memory, this bounds what is shared.
    space = "unlimited" if is_counted else str(max(limits.memory * 4, 1024 * MIB))
    return [
        "/usr/bin/prlimit", f"--nproc={limits.processes}", f"--as={space}", f"--data={limits.memory}",
        f"--fsize={limits.disk}", f"--cpu={seconds}", f"--nofile={limits.files}",
        "--core=0", "--memlock=0", "--msgqueue=0", "--",
    ]  # fmt: skip


# -- a run -------------------------------------------------------------------------------------------------------------

_users = itertools.count(secrets.randbelow(USERS))


async def run(language: str, code: str, limits: Limits, told: Told | None = None) -> Finished:
    """Run code, and return how it ended. `told` gets its output while it runs. However this call ends, cancelled
    included, every process of the run is dead then. Raises NoSandbox if the code could not be started."""
    _check_language(language)
    with control_group(limits.memory, limits.processes) as group:
        is_counted = group is not None
        with _descriptors(code.encode("utf-8", "surrogateescape"), is_counted=is_counted) as files:
            command = command_of(language, files, limits, _user(), is_counted=is_counted)
            ended = await _run(group.entering(command) if group else command, files, limits, told)
        if group is not None and ended.exit_code == -signal.SIGKILL and ended.ending == "exited":
            return replace(ended, ending="memory") if group.has_run_out_of_memory() else ended
        return ended


def _check_language(language: str) -> None:
    if language not in languages():
        raise NoSandbox(f"{LANGUAGES[language].program} is not installed on this machine")


def _user() -> int | None:
    """The user of the host as which the next run runs; None if we may not choose one."""
    return FIRST_USER + next(_users) % USERS if os.geteuid() == 0 and has_users() else None


def has_users(uid_map: Path = Path("/proc/self/uid_map")) -> bool:
    """Whether the users for runs exist in our user namespace. The root of a container without root has few users."""
    ranges = [[int(word) for word in line.split()] for line in uid_map.read_text(encoding="ascii").splitlines()]
    return any(first <= FIRST_USER and first + n >= FIRST_USER + USERS for first, _, n in ranges)


async def _run(command: list[str], files: Descriptors, limits: Limits, told: Told | None) -> Finished:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": SAFE_PATH},  # all that bwrap's own first process shows in /proc/1/environ
        cwd="/",
        pass_fds=files.all(),
        start_new_session=True,
    )
    output = _Output(limits.output, told)
    assert process.stdout is not None
    assert process.stderr is not None
    ending: Ending = "exited"
    reading = [
        asyncio.create_task(output.read("stdout", process.stdout)),
        asyncio.create_task(output.read("stderr", process.stderr)),
    ]
    done = asyncio.gather(*reading, process.wait())
    full = asyncio.create_task(output.is_full.wait())
    try:
        finished, _ = await asyncio.wait((done, full), timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if full in finished:
            ending = "output"
        elif not finished:
            ending = "timeout"
    finally:
        # Its output is read to the end: otherwise asyncio would not notice that it ended.
        await asyncio.shield(_kill(process))
        full.cancel()
        await asyncio.shield(asyncio.gather(done, full, return_exceptions=True))
    done.result()
    code = process.returncode or 0
    if ending == "exited" and code > 0 and not _has_begun(files.status):
        raise NoSandbox(f"the sandbox did not start: {output.text('stderr').strip()}")
    return Finished(
        exit_code=exit_code_of(code),
        ending=ending,
        seconds=time.monotonic() - began,
        stdout=output.text("stdout"),
        stderr=output.text("stderr"),
    )


def _has_begun(status: int) -> bool:
    """Whether bwrap reported that the code ended, so that it had begun."""
    return b'"exit-code"' in os.pread(status, os.fstat(status).st_size, 0)


def exit_code_of(code: int) -> int:
    """The exit code of bwrap, which reports a signal as a shell does, with the signal as a negative number."""
    return 128 - code if code - 128 in set(signal.valid_signals()) else code


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the first process of the sandbox, and everything in the sandbox with it. bwrap itself ends then, and takes
    the exit code away; if it does not, or has not made the sandbox yet, it is killed too."""
    if process.returncode is not None:
        return
    with contextlib.suppress(OSError):
        children = _children_of(process.pid)
        for child in children:
            os.kill(child, signal.SIGKILL)
        if children:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), ENDS_WITHIN)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


class _Output:
    """What a run printed, up to a limit for both streams together."""

    def __init__(self, limit: int, told: Told | None) -> None:
        self._left = limit
        self._told = told
        self._parts: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.is_full = asyncio.Event()

    async def read(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while part := await reader.read(READ_BYTES):
            kept = part[: self._left]
            self._left -= len(kept)
            self._parts[stream] += kept
            if len(kept) < len(part):
                self.is_full.set()
            if kept and self._told is not None:
                await self._told(stream, kept)

    def text(self, stream: Stream) -> str:
        return self._parts[stream].decode("utf-8", "replace")

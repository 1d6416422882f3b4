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
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

CGROUPS: Final = Path("/sys/fs/cgroup")
GROUPS: Final = "daybreak-sandbox-"
FIRST_USER: Final = 300_000_000  # user ids that no account has; each run at the same time has one of its own
USERS: Final = 1_000_000
READ_BYTES: Final = 16 * 1024
SAFE_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
ENDS_WITHIN: Final = 2.0  # seconds that bwrap has to notice that its sandbox is dead
MIB: Final = 1024 * 1024

Stream = Literal["stdout", "stderr"]
Told = Callable[[Stream, bytes], Awaitable[None]]
Ending = Literal["exited", "timeout", "output"]


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
    """How a run ended. `exit_code` is negative if a signal ended it. `ending` says whether it ended by itself."""

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
    """Code cannot be contained on this machine; the text says what is missing."""


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


# -- the command -------------------------------------------------------------------------------------------------------


def command_of(language: str, script: int, limits: Limits, user: int | None) -> list[str]:
    """The command line of a run. `script` is a file that holds the code, by its descriptor: so it needs no place on the
    disk. `user` is the user of the host as which it runs, if we may choose one."""
    found = LANGUAGES[language]
    command = []
    if user is not None:
        command += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--"]
    command += ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL"]
    command += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--clearenv"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/work", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
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
    command += ["--size", half, "--tmpfs", "/work", "--size", "65536", "--tmpfs", "/dev/shm"]  # noqa: S108
    command += ["--ro-bind-data", str(script), f"/work/{found.file}", "--remount-ro", "/", "--remount-ro", "/dev"]
    command += ["--chdir", "/work", "--"]
    return [*command, *_limited(limits), found.program, f"/work/{found.file}"]


def _limited(limits: Limits) -> list[str]:
    """A program that sets the limits, hard ones, on itself, and then becomes the code. It runs inside of the sandbox:
    there the number of processes counts those of the sandbox alone."""
    seconds = int(limits.seconds) + 1  # of computing: a net under the time limit
    return [
        "/usr/bin/prlimit", f"--nproc={limits.processes}", f"--as={max(limits.memory * 4, 1024 * MIB)}",
        f"--data={limits.memory}", f"--fsize={limits.disk}", f"--cpu={seconds}", f"--nofile={limits.files}",
        "--core=0", "--memlock=0", "--msgqueue=0", "--",
    ]  # fmt: skip


# -- a run -------------------------------------------------------------------------------------------------------------

_users = itertools.count(secrets.randbelow(USERS))


async def run(language: str, code: str, limits: Limits, told: Told | None = None) -> Finished:
    """Run code, and return how it ended. `told` gets its output while it runs. However this call ends, cancelled
    included, every process of the run is dead then."""
    script = os.memfd_create("script")
    try:
        with os.fdopen(os.dup(script), "wb") as file:
            file.write(code.encode("utf-8", "surrogateescape"))
        os.lseek(script, 0, os.SEEK_SET)
        user = FIRST_USER + next(_users) % USERS if os.geteuid() == 0 else None
        command = command_of(language, script, limits, user)
        with _control_group(limits) as group:
            return await _run(group.entering(command) if group else command, script, limits, told)
    finally:
        os.close(script)


async def _run(command: list[str], script: int, limits: Limits, told: Told | None) -> Finished:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": SAFE_PATH},  # all that bwrap's own first process shows in /proc/1/environ
        cwd="/",
        pass_fds=[script],
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
    return Finished(
        exit_code=code if code <= 128 else 128 - code,  # bwrap reports a signal as a shell does
        ending=ending,
        seconds=time.monotonic() - began,
        stdout=output.text("stdout"),
        stderr=output.text("stderr"),
    )


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


# -- cgroups -----------------------------------------------------------------------------------------------------------


class ControlGroup:
    """A cgroup for one run: its folders, one per controller with cgroup v1, one alone with v2."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    def entering(self, command: list[str]) -> list[str]:
        """The command, run in this cgroup from its first instruction on."""
        script = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
        return ["/bin/sh", "-ec", script, "sh", *(str(folder / "cgroup.procs") for folder in self._folders),
                "--", *command]  # fmt: skip

    def remove(self) -> None:
        """Remove the cgroup. Its processes are being killed: that may take a moment."""
        for folder in self._folders:
            for _ in range(200):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break


@contextlib.contextmanager
def _control_group(limits: Limits) -> Iterator[ControlGroup | None]:
    """A cgroup with these limits, or None if this process may not make one."""
    group = make_control_group(limits)
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


def make_control_group(limits: Limits, root: Path = CGROUPS) -> ControlGroup | None:
    """A new cgroup with the limits of memory and processes; None if this process may not make one."""
    name = f"{GROUPS}{secrets.token_hex(8)}"
    if (root / "cgroup.controllers").exists():
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+memory +pids")
        wanted = {
            root / name: {"memory.max": limits.memory, "memory.swap.max": 0, "pids.max": limits.processes + 4},
        }  # fmt: skip
    else:
        wanted = {
            root / "memory" / name: {"memory.limit_in_bytes": limits.memory},
            root / "pids" / name: {"pids.max": limits.processes + 4},  # bwrap and its like count too
        }
    made: list[Path] = []
    try:
        for folder, values in wanted.items():
            folder.mkdir()
            made.append(folder)
            for file, value in values.items():
                if file != "memory.swap.max" or (folder / file).exists():
                    (folder / file).write_text(str(value))
    except OSError:
        ControlGroup(made).remove()
        return None
    return ControlGroup(made)


def remove_stale_groups(root: Path = CGROUPS) -> None:
    """Remove the cgroups of pod workers that were killed. One with processes in it stays."""
    for folder in [*root.glob(f"{GROUPS}*"), *root.glob(f"*/{GROUPS}*")]:
        with contextlib.suppress(OSError):
            folder.rmdir()

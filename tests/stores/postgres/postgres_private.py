"""A private server, which a test may kill."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from postgres_servers import refuse

FLAGS = "-c fsync=off -c unix_socket_directories= -c listen_addresses=127.0.0.1 -c max_connections=40"


def binaries() -> Path:
    found = shutil.which("postgres")
    places = sorted(glob.glob("/usr/lib/postgresql/*/bin"))  # noqa: PTH207
    if not found and not places:
        refuse("no PostgreSQL binaries are installed: a private server cannot be started")
    return Path(found).parent if found else Path(places[-1])


def children_of(parent: int) -> list[int]:
    found = []
    for about in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, _, rest = about.read_text().partition(" ")
            if int(rest.rpartition(")")[2].split()[1]) == parent:
                found.append(int(pid))
    return found


class Server:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = binaries()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _as_user(self, *command: str) -> list[str]:
        if os.geteuid() != 0:
            return list(command)
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            refuse("initdb may not run as root, and there is no user postgres")
        os.chown(self._folder, user.pw_uid, user.pw_gid)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]

    def create(self) -> None:
        command = (str(self._bin / "initdb"), "-D", str(self._folder / "data"), "-U", "postgres", "-A", "trust", "-N")
        subprocess.run(self._as_user(*command), check=True, capture_output=True, cwd=self._folder)

    def start(self) -> None:
        command = (str(self._bin / "postgres"), "-D", str(self._folder / "data"), "-p", str(self.port), *FLAGS.split())
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(
            self._as_user(*command),
            stdout=log, stderr=log, cwd=self._folder, start_new_session=True,
        )  # fmt: skip
        log.close()
        until = time.monotonic() + 20
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise AssertionError((self._folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """Kill all processes at once, as a power cut does."""
        if self._process is not None:
            for pid in [self._process.pid, *children_of(self._process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            for left in (self._folder / "data").glob("postmaster.pid"):
                left.unlink()

    def restart(self) -> None:
        self.kill()
        time.sleep(0.2)
        self.start()


@contextlib.contextmanager
def private_server():
    folder = Path(tempfile.mkdtemp(prefix="daybreak-pg-"))
    server = Server(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)

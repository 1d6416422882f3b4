"""Private servers, one for each case: the same binaries and the same durable settings for everyone, on a free port.

PostgreSQL is as `initdb` makes it (fsync, synchronous_commit and full_page_writes on), made once a run and copied;
Redis appends to its file (`appendonly yes`), synced each second, or at each commit where a row says so."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.processes import Process, free_port
from benchmarks.starts import wait_until

RUN = "DAYBREAK_BENCH_RUN"  # the environment variable that names the run's directory
USER = DATABASE = "bench"
STARTED_WITHIN = 60


class Server(Protocol):
    url: str
    pid: int | None  # None: there is no server

    def facts(self) -> dict[str, str]:
        """Its settings as it tells them."""
        ...

    def counts(self) -> dict[str, int]:
        """What it was asked so far, of those that were started to count."""
        ...


def binary(name: str) -> str | None:
    """Where a program of the server is; PostgreSQL's are seldom on the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: place.parent.name.zfill(4))
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, reversed(places))]))


def versions() -> dict[str, str]:
    """As the installed binaries tell it."""
    return {program: _version(program) for program in ("postgres", "redis-server", "node")}


def _version(program: str) -> str:
    if (found := binary(program)) is None:
        return "missing"
    told = subprocess.run([found, "--version"], capture_output=True, check=True, text=True).stdout
    number = re.search(r"\d+(\.\d+)+", told)
    return number.group() if number else "unknown"


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


STATEMENTS = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
TRANSACTIONS = "SELECT coalesce(sum(xact_commit + xact_rollback), 0) FROM pg_stat_database d"
# Tables that a crash of the server empties; whoever keeps jobs in one is not durable.
UNLOGGED = "SELECT string_agg(oid::regclass::text, ' ') FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'"
SETTINGS = ("fsync", "synchronous_commit", "full_page_writes")


class Postgres:
    """`counting` also loads pg_stat_statements, where it is installed."""

    def __init__(self, port: int, pid: int, *, counting: bool) -> None:
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"
        self.pid = pid
        self._admin = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        self._asked = {"queries": TRANSACTIONS, "transactions": TRANSACTIONS}
        if counting and _has_statements():
            self._asked["queries"] = STATEMENTS

    def ask(self, sql: str, url: str = "") -> str:
        """From another database than that of the jobs, so that it is not counted with them."""
        command = [_postgres("psql"), "-X", "-At", "-d", url or self._admin, "-c", sql]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()

    def create(self) -> None:
        if STATEMENTS in self._asked.values():
            self.ask("CREATE EXTENSION pg_stat_statements")
        self.ask(f"CREATE DATABASE {DATABASE}")

    def is_ready(self) -> bool:
        command = [_postgres("pg_isready"), "-q", "-t", "1", "-d", self._admin]
        return subprocess.run(command, check=False).returncode == 0

    def facts(self) -> dict[str, str]:
        shown = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
        *told, unlogged = self.ask(f"SELECT {shown}, ({UNLOGGED})", self.url).split("|")
        settings = ", ".join(f"{name} {value}" for name, value in zip(SETTINGS, told, strict=True))
        return {"store": settings + (f", unlogged {unlogged}" if unlogged else "")}

    def counts(self) -> dict[str, int]:
        """Statements, BEGIN and SET among them; where those are not told, transactions stand for them."""
        return {kind: int(self.ask(f"{sql} WHERE d.datname = '{DATABASE}'")) for kind, sql in self._asked.items()}


@contextmanager
def postgres(place: Path, *, counting: bool = False) -> Iterator[Postgres]:
    data = place / "postgres"
    subprocess.run(["cp", "-a", str(_cluster(Path(os.environ.get(RUN, place)))), str(data)], check=True)
    _open_the_way(place)
    os.sync()  # or the copy would be written out while the case is timed
    port = free_port()
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories="]
    settings += ["shared_preload_libraries=pg_stat_statements"] if counting and _has_statements() else []
    words = ["-D", str(data), "-p", str(port), *(word for setting in settings for word in ("-c", setting))]
    # Told to leave at once (SIGQUIT): what it would still write is thrown away with it.
    with Process(_unprivileged([_postgres("postgres"), *words]), place, "postgres", stop=signal.SIGQUIT) as process:
        server = Postgres(port, process.pid, counting=counting)
        wait_until(lambda: process.check() and server.is_ready(), "the start of PostgreSQL", within=STARTED_WITHIN)
        server.create()
        yield server


def _cluster(run: Path) -> Path:
    """A cluster as `initdb` makes it, once a run."""
    made = run / "cluster"
    if not made.exists():
        making = run / "cluster-in-the-making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        if user := _user():
            os.chown(making, user.pw_uid, user.pw_gid)
        _open_the_way(run)
        command = [_postgres("initdb"), "-D", str(making), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        made_it = subprocess.run(_unprivileged(command), cwd=run, capture_output=True, check=False, text=True)
        if made_it.returncode:
            raise RuntimeError(f"initdb failed: {made_it.stderr.strip().splitlines()[-1:]}")
        making.rename(made)
    return made


def _postgres(name: str) -> str:
    found = binary(name)
    assert found, f"there is no {name}"
    return found


def _has_statements() -> bool:
    library = Path(_postgres("postgres")).resolve().parent.parent / "lib" / "pg_stat_statements.so"
    return library.exists()


def _user() -> pwd.struct_passwd | None:
    """Who a server that refuses root runs as; None for whoever is not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _unprivileged(command: Sequence[str]) -> list[str]:
    if (user := _user()) is None:
        return list(command)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]


def _open_the_way(place: Path) -> None:
    """The user that the server runs as must be able to walk there; temporary directories are closed to others."""
    if _user() is not None:
        for folder in (place, *place.parents):
            if folder.name.startswith(("daybreak-", "bench-")):
                folder.chmod(folder.stat().st_mode | 0o011)


# -- Redis -------------------------------------------------------------------------------------------------------------


class Redis:
    def __init__(self, port: int, pid: int, *, counting: bool) -> None:
        self.url = f"redis://127.0.0.1:{port}"
        self.pid = pid
        self._port = port
        self._monitor = Monitor(port) if counting else None

    def ask(self, words: str) -> list[str]:
        """The lines of the answer."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as sock, sock.makefile("rb") as answer:
            sock.sendall(f"{words}\r\n".encode())
            kind = answer.readline().decode()
            if kind[0] == "$":
                return answer.read(int(kind[1:])).decode().splitlines()
            if kind[0] == "*":
                return [answer.read(int(answer.readline()[1:]) + 2).decode().strip() for _ in range(int(kind[1:]))]
            return [kind[1:].strip()]

    def facts(self) -> dict[str, str]:
        told = [self.ask(f"CONFIG GET {name}") for name in ("appendonly", "appendfsync")]
        return {"store": ", ".join(" ".join(pair) for pair in told)}

    def counts(self) -> dict[str, int]:
        """What clients sent, and besides what the server counts, which has every command that a script gives too."""
        assert self._monitor is not None, "this server was not started to count"
        commands = sum(int(line.split("calls=")[1].split(",")[0]) for line in self.ask("INFO commandstats")[1:] if line)
        return {"queries": self._monitor.sent, "commands": commands}


class Monitor:
    """What MONITOR tells: commands of clients, and not those that scripts give on their behalf."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.sendall(b"MONITOR\r\n")
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with self._sock.makefile("rb") as lines:
            for line in lines:
                self.sent += is_sent(line)


def is_sent(line: bytes) -> bool:
    """Whether a client sent it: not a script, and not this benchmark, which asks for INFO."""
    source = line.partition(b"[")[2].partition(b"]")[0]
    is_ours = line.partition(b'] "')[2].lower().startswith((b"info", b"config"))
    return bool(source) and not source.endswith(b" lua") and not is_ours


@contextmanager
def redis(place: Path, *, fsync: str = "everysec", counting: bool = False) -> Iterator[Redis]:
    data = place / "redis"
    data.mkdir()
    port = free_port()
    program = binary("redis-server")
    assert program, "there is no redis-server"
    words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), "--save", ""]
    words += ["--appendonly", "yes", "--appendfsync", fsync]
    with Process([program, *words], place, "redis", stop=signal.SIGKILL) as process:
        wait_until(lambda: process.check() and _is_open(port), "the start of Redis", within=STARTED_WITHIN)
        yield Redis(port, process.pid, counting=counting)


def _is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0

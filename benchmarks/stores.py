"""Where the jobs of a case are: a file in its directory, or a server of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import servers

URL = "DAYBREAK_BENCH_URL"  # the environment variable that names the store to peers
STORES = ("sqlite", "postgres", "redis", "memory")


@dataclass
class Local:
    """SQLite and memory: no server, so nothing to ask one."""

    url: str
    pid: int | None = None

    def facts(self) -> dict[str, str]:
        return {}

    def counts(self) -> dict[str, int]:
        return {}


@contextmanager
def opened(store: str, place: Path, *, counting: bool = False) -> Iterator[servers.Server]:
    """An empty store; `redis-always` is a Redis that syncs each commit. `counting` counts what it is asked."""
    match store:
        case "memory":
            yield _known(Local("memory://"))
        case "sqlite":
            yield _known(Local(f"sqlite:///{place / 'daybreak.db'}"))
        case "postgres":
            with servers.postgres(place, counting=counting) as postgres:
                yield _known(postgres)
        case "redis" | "redis-always":
            fsync = "always" if store == "redis-always" else "everysec"
            with servers.redis(place, fsync=fsync, counting=counting) as redis:
                yield _known(redis)
        case _:
            raise ValueError(f"no store is called {store!r}")


def _known(server: servers.Server) -> servers.Server:
    """Processes that are started from now on find it."""
    os.environ[URL] = os.environ["DAYBREAK_URL"] = server.url
    return server

"""The stores that can be simulated: each name gives a fresh one for every seed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from daybreak.store.protocol import Store
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.system.ports import World
from harness.site import StoreFactory

SHM: Final = Path("/dev/shm")  # noqa: S108 - nothing here must outlive the seed
NAMES: Final = ("memory", "sqlite")


@contextmanager
def fresh(name: str) -> Iterator[StoreFactory]:
    if name == "memory":
        yield MemoryStore
        return
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as folder:
        path = Path(folder) / "jobs.db"

        def opened(world: World) -> Store:
            return SqliteStore(path, world=world, threaded=False, boot="simulated")

        yield opened

"""A store that stands between a worker and its real store: it fails or waits as a test says, and passes on the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

from daybreak import Daybreak
from daybreak.api.store_sessions import Sessions
from daybreak.stores.sqlite import SqliteStore

OPERATIONS = (
    "insert", "exchange", "extend", "reap", "advance", "amend", "get", "find", "count", "position", "events", "history",
    "known_keys", "purge", "pack", "adopt", "put", "records", "totals",
)  # fmt: skip
Meddle = Callable[..., Awaitable[Any]]


class Meddled:
    """`before(name, request)` may raise or wait. So may `after(name, answer)`, when the operation has already
    happened."""

    def __init__(self, path: Path) -> None:
        self.meddled_with = SqliteStore(path)
        self.before: Meddle | None = None
        self.after: Meddle | None = None

    @property
    def traits(self) -> Any:
        return self.meddled_with.traits

    def watch(self, topics: Any) -> Any:
        return self.meddled_with.watch(topics)

    async def open(self) -> Self:
        await self.meddled_with.open()
        return self

    async def close(self) -> None:
        await self.meddled_with.close()

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(name)
        operation = getattr(self.meddled_with, name)

        async def meddled(*args: Any, **kwargs: Any) -> Any:
            if self.before is not None:
                await self.before(name, *args)
            answer = await operation(*args, **kwargs)
            if self.after is not None:
                await self.after(name, answer)
            return answer

        return meddled


@contextlib.contextmanager
def meddled(app: Daybreak, path: Path) -> Iterator[Meddled]:
    """Let this process use the app's store through a store that the test controls."""
    store = Meddled(path)
    app.close()
    app._open_sessions = Sessions(lambda: store, app.world, app.by)
    try:
        yield store
    finally:
        app.close()
        app._open_sessions = None

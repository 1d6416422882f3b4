"""Where jobs are kept. Stores are strangers to one another; only `store_for` knows which there are."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from daybreak.core.errors import Unsupported
from daybreak.store.protocol import ConnectLimit, Store

__all__ = ["store_for"]


def store_for(url: str, connect_limit: ConnectLimit | None = None) -> Store:
    """The store that a URL in full names (as settings give it), not yet open. `connect_limit` is for those that have a
    server; without one their base holds."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/"):
        from daybreak.stores.sqlite import SqliteStore  # noqa: PLC0415 - only the library of the store in use is loaded

        return SqliteStore(Path(unquote(rest[1:])))
    if url == "memory://":
        from daybreak.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore()
    if scheme == "postgresql":
        from daybreak.stores.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(url, connect_limit=connect_limit)
    if scheme in ("redis", "rediss", "redis+unix"):
        from daybreak.stores.redis import RedisStore  # noqa: PLC0415

        return RedisStore(url, connect_limit=connect_limit)
    raise Unsupported(
        f"there is no store for {scheme}:// in this version; there are sqlite:///jobs.db, postgresql://, redis:// and "
        "memory://"
    )

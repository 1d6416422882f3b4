"""The stores: memory, SQLite, PostgreSQL, Redis, directory. The directory store builds on the memory store; no other
store imports another, and only `store_for` knows all of them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from daybreak.core.errors import Unsupported
from daybreak.store.protocol import ConnectLimit, Store

__all__ = ["store_for"]


def store_for(url: str, connect_limit: ConnectLimit | None = None) -> Store:
    """The store for a complete URL (as the settings give it), not yet open. `connect_limit` sets how long a store with
    a server may take to connect; without it, the URL's fixed limit applies."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/"):
        from daybreak.stores.sqlite import SqliteStore  # noqa: PLC0415 - load only the library of the store in use

        return SqliteStore(Path(unquote(rest[1:])))
    if url == "memory://":
        from daybreak.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore()
    if scheme == "dir":
        from daybreak.stores.directory import DirectoryStore  # noqa: PLC0415

        return DirectoryStore.of_url(url)
    if scheme == "postgresql":
        from daybreak.stores.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(url, connect_limit=connect_limit)
    if scheme in ("redis", "rediss", "redis+unix"):
        from daybreak.stores.redis import RedisStore  # noqa: PLC0415

        return RedisStore(url, connect_limit=connect_limit)
    if scheme == "sqs":
        raise Unsupported(
            "sqs:// is not a store: jobs are kept in a ledger, such as postgresql://host/database, and `daybreak "
            "dispatch` sends them; only `daybreak worker --url sqs://region/prefix` takes this address"
        )
    raise Unsupported(
        f"this version has no store for {scheme}://; use sqlite:///jobs.db, postgresql://, redis://, dir://jobs or "
        "memory://"
    )

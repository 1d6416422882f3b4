"""Submits jobs in the caller's own transaction: the jobs exist if and only if it commits.

They are only appended to the table `incoming`, so a long transaction blocks nobody. After the commit the next claim or
advance accepts them, with rank, keys and unique names (outbox.py). The commit itself wakes waiting workers. It is one
statement with text parameters only, so that every driver can run it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from daybreak.core.errors import BadInput
from daybreak.core.model import JobSpec
from daybreak.core.units import MAX_DURATION
from daybreak.store.protocol import work_topic
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.event_lines import SEPARATOR
from daybreak.stores.postgres.outbox import encode
from daybreak.stores.postgres.rows import check_resource
from daybreak.stores.postgres.statements import Statements

TEXT_FIELDS: Final = (
    "id",
    "task",
    "queue",
    "by",
    "key",
    "digest",
    "unique",
    "run",
    "owner",
    "batch",
    "flight",
    "holder",
    "trace",
)
MAX_NAME_LENGTH: Final = 600  # characters: an index entry has up to 2,700 bytes
SUPPORTED: Final = (
    "psycopg (Connection, AsyncConnection), asyncpg, SQLAlchemy (Session, Connection and their async forms), "
    "Django (django.db.connection)"
)


def insert_within(address: Address, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
    """Submit on the caller's connection; returns the ids of the jobs that will exist after its commit."""
    if not specs:
        return []
    statement, params = _statement(address, specs)
    match _library(connection):
        case "sqlalchemy" if not _is_async(connection):
            connection.execute(*_for_sqlalchemy(statement, params))
        case "psycopg" | "psycopg2" | "django" if not _is_async(connection):
            with connection.cursor() as cursor:
                cursor.execute(statement.format("%s", "%s", "%s"), params)
        case _:
            raise _unsupported(connection, "insert_within_async")
    return [spec.id for spec in specs]


async def insert_within_async(address: Address, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
    """As `insert_within`, for connections whose calls are awaited."""
    if not specs:
        return []
    statement, params = _statement(address, specs)
    match _library(connection):
        case "asyncpg":
            await connection.execute(statement.format("$1", "$2", "$3"), *params)
        case "sqlalchemy" if _is_async(connection):
            await connection.execute(*_for_sqlalchemy(statement, params))
        case "psycopg" if _is_async(connection):
            await connection.execute(statement.format("%s", "%s", "%s"), params)
        case _:
            raise _unsupported(connection, "insert_within")
    return [spec.id for spec in specs]


def _statement(address: Address, specs: Sequence[JobSpec]) -> tuple[str, tuple[str, str, str]]:
    for spec in specs:
        check(spec)
    topics = SEPARATOR.join(sorted({work_topic(spec.queue) for spec in specs}))
    packed = ",".join(encode(spec).hex() for spec in specs)
    return Statements("sql", address.schema).append_incoming, (packed, channel_of(address), topics)


def channel_of(address: Address) -> str:
    """The NOTIFY channel of this store."""
    return f"daybreak_{address.schema}".encode()[:63].decode(errors="ignore")


def check(spec: JobSpec) -> None:
    """Refuse now what could not be stored later: it would block all jobs after it in the outbox."""
    for name in TEXT_FIELDS:
        value = getattr(spec, name)
        if value is not None and ("\0" in value or not _is_valid_text(value)):
            raise BadInput(f"job {spec.id!r}: {name} has a character that PostgreSQL cannot store")
    for need in spec.options.resources:
        check_resource(need.resource)
    if SEPARATOR in spec.id:
        raise BadInput(f"job {spec.id!r}: an id must not contain character 31 (unit separator)")
    if not 0 <= spec.priority <= 10 or not 0 <= spec.version < 1 << 31:
        raise BadInput(f"job {spec.id!r}: priority or version is out of range")
    if any(len(getattr(spec, name) or "") > MAX_NAME_LENGTH for name in TEXT_FIELDS):
        raise BadInput(f"job {spec.id!r}: a name has more than {MAX_NAME_LENGTH} characters")
    if spec.run_at is not None and spec.run_at.tzinfo is None:
        raise BadInput(f"job {spec.id!r}: run_at has no time zone; use datetime.now(UTC) or another aware datetime")
    for wait in (spec.delay, spec.options.expires_in):
        if wait is not None and wait > MAX_DURATION:
            raise BadInput(f"job {spec.id!r}: a delay or expiry is longer than 100 years")


def _is_valid_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _library(connection: Any) -> str:
    for kind in type(connection).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django"):
            return root
    return ""


def _is_async(connection: Any) -> bool:
    return any(kind.__name__.startswith("Async") or "async_" in kind.__name__ for kind in type(connection).__mro__)


def _for_sqlalchemy(statement: str, params: tuple[str, str, str]) -> tuple[Any, dict[str, str]]:
    text = import_module("sqlalchemy").text  # it is installed, since the caller has such a connection
    return text(statement.format(":packed", ":channel", ":topics")), dict(
        zip(("packed", "channel", "topics"), params, strict=True)
    )


def _unsupported(connection: Any, other: str) -> BadInput:
    kind = type(connection)
    if _library(connection):
        return BadInput(f"a {kind.__module__}.{kind.__qualname__} must be passed to {other}()")
    return BadInput(f"{kind.__module__}.{kind.__qualname__} is not a supported connection; supported are {SUPPORTED}")

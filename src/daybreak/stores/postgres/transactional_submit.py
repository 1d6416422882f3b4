"""Submitting in someone else's transaction: the jobs are there if it commits, and never were if it does not.

They are only appended to a table of their own, so that a long transaction blocks nobody; accepted, with rank, keys and
unique names, they are after the commit, by whoever claims or advances next (incoming.py). The commit itself wakes those
who wait. One statement with two texts for parameters, so every driver can carry it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from daybreak.core.errors import BadInput
from daybreak.core.model import JobSpec
from daybreak.core.units import LONGEST
from daybreak.store.protocol import work_topic
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.event_lines import SEPARATOR
from daybreak.stores.postgres.outbox import encode
from daybreak.stores.postgres.rows import check_resource
from daybreak.stores.postgres.statements import Statements

NAMES: Final = ("id", "task", "queue", "by", "key", "digest", "unique", "run", "owner", "batch", "flight", "holder")
LONGEST_NAME: Final = 600  # characters: an index keeps up to 2,700 bytes
ACCEPTED: Final = (
    "psycopg (Connection, AsyncConnection), asyncpg, SQLAlchemy (Session, Connection and their async forms), "
    "Django (django.db.connection)"
)


def insert_within(place: Address, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
    """Submit on the caller's connection; the ids of what will be there after its commit."""
    if not specs:
        return []
    statement, params = _statement(place, specs)
    match _library(connection):
        case "sqlalchemy" if not _is_async(connection):
            connection.execute(*_for_sqlalchemy(statement, params))
        case "psycopg" | "psycopg2" | "django" if not _is_async(connection):
            with connection.cursor() as cursor:
                cursor.execute(statement.format("%s", "%s", "%s"), params)
        case _:
            raise _unknown(connection, "insert_within_async")
    return [spec.id for spec in specs]


async def insert_within_async(place: Address, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
    """As `insert_within`, for connections whose calls are awaited."""
    if not specs:
        return []
    statement, params = _statement(place, specs)
    match _library(connection):
        case "asyncpg":
            await connection.execute(statement.format("$1", "$2", "$3"), *params)
        case "sqlalchemy" if _is_async(connection):
            await connection.execute(*_for_sqlalchemy(statement, params))
        case "psycopg" if _is_async(connection):
            await connection.execute(statement.format("%s", "%s", "%s"), params)
        case _:
            raise _unknown(connection, "insert_within")
    return [spec.id for spec in specs]


def _statement(place: Address, specs: Sequence[JobSpec]) -> tuple[str, tuple[str, str, str]]:
    for spec in specs:
        check(spec)
    topics = SEPARATOR.join(sorted({work_topic(spec.queue) for spec in specs}))
    packed = ",".join(encode(spec).hex() for spec in specs)
    return Statements("sql", place.schema).append_incoming, (packed, channel_of(place), topics)


def channel_of(place: Address) -> str:
    """On which those of this store are woken."""
    return f"daybreak_{place.schema}".encode()[:63].decode(errors="ignore")


def check(spec: JobSpec) -> None:
    """What is refused later would stand in the way of everything behind it."""
    for name in NAMES:
        value = getattr(spec, name)
        if value is not None and ("\0" in value or not _is_sound(value)):
            raise BadInput(f"job {spec.id!r}: {name} has a character that PostgreSQL cannot keep")
    for need in spec.options.resources:
        check_resource(need.resource)
    if SEPARATOR in spec.id:
        raise BadInput(f"job {spec.id!r}: an id cannot hold the character 31 (unit separator)")
    if not 0 <= spec.priority <= 10 or not 0 <= spec.version < 1 << 31 or not 0 <= spec.fence < 1 << 30:
        raise BadInput(f"job {spec.id!r}: priority, version or fence is out of range")
    if any(len(getattr(spec, name) or "") > LONGEST_NAME for name in NAMES):
        raise BadInput(f"job {spec.id!r}: a name of more than {LONGEST_NAME} characters")
    if spec.run_at is not None and spec.run_at.tzinfo is None:
        raise BadInput(f"job {spec.id!r}: run_at has no time zone; use datetime.now(UTC) or another with tzinfo")
    for wait in (spec.delay, spec.options.expires_in):
        if wait is not None and wait > LONGEST:
            raise BadInput(f"job {spec.id!r}: a wait of more than 100 years")


def _is_sound(text: str) -> bool:
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
    text = import_module("sqlalchemy").text  # whoever brings such a connection has it
    return text(statement.format(":packed", ":channel", ":topics")), dict(
        zip(("packed", "channel", "topics"), params, strict=True)
    )


def _unknown(connection: Any, other: str) -> BadInput:
    kind = type(connection)
    if _library(connection):
        return BadInput(f"a {kind.__module__}.{kind.__qualname__} is used by {other}()")
    return BadInput(f"{kind.__module__}.{kind.__qualname__} is no connection that can be submitted on: {ACCEPTED}")

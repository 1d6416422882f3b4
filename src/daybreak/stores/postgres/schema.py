"""Opens a database: checks the server, and creates or migrates the schema. Processes that do so at once wait for each
other."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from daybreak.core.errors import StoreError, StoreReadOnly, StoreUnsuitable
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.connection import Connection
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.session import Answer
from daybreak.stores.postgres.statements import Statements, named, quoted, spelt
from daybreak.system import patience

MIN_SERVER_VERSION: Final = 130_000
MIGRATION_LOCK: Final = 0x44415942  # "DAYB"


class OpenedSchema(NamedTuple):
    """What opening has read. `version` is 0 if the schema does not exist; the rest is empty if it must be migrated.
    `has_foreign_feed`: the feed has transaction ids that this server has not assigned yet, because it was restored from
    another server with higher ids. No cursor would ever reach its end."""

    version: int
    has_foreign_feed: bool = False
    lanes: Sequence[tuple[int, str, str, int]] = ()


def prepare(connection: Connection, address: Address) -> OpenedSchema:
    """Refuse a server that is too old and a schema that is too new; migrate the schema to this version, in one
    transaction. If there is nothing to migrate, this takes one round trip beside those of connecting."""
    opened = _read_schema(connection, address)
    if opened.version < address.known.number:
        # A migration of large tables takes long: each statement has its own timeout, and the caller's patience does not
        # apply.
        with patience.ending_at(None):
            connection.transaction(lambda _: _migrate(connection, address))
            opened = _read_schema(connection, address)  # another process, perhaps a newer version, may have been first
    if opened.has_foreign_feed:
        with contextlib.suppress(StoreReadOnly):  # `doctor` reports it
            connection.transaction(lambda _: _take_over_feed(connection, address))
    return opened


def _read_schema(connection: Connection, address: Address) -> OpenedSchema:
    """A role that may only use the tables can read all of this, too."""
    sql = Statements("sql", address.schema)
    statements = (sql.has_meta, sql.read_clock, sql.is_foreign_feed, sql.newest_lanes)
    answers, sent_at = connection.query_together(statements)
    _check_server(connection, address)
    rows = (_rows(answer, address) for answer in answers)  # checked one by one: the first failure is the last answer
    [(has_meta,)] = next(rows)
    if not has_meta:
        return OpenedSchema(0)
    [(time, offset, version, needs)] = next(rows)
    if version is None:
        raise StoreUnsuitable(
            f"{address.name}: the schema {spelt(address.schema)} belongs to another program: choose another name by "
            "?schema="
        )
    if version > address.known.number and (needs or version) > address.known.number:
        raise faults.too_new(address.name, version, address.known.number)
    connection.note_clock(time, sent_at, offset)
    if version < address.known.number:
        return OpenedSchema(version)
    [(has_foreign_feed,)] = next(rows)
    return OpenedSchema(version, has_foreign_feed, next(rows))


def _check_server(connection: Connection, address: Address) -> None:
    server = connection.server_version
    if server < MIN_SERVER_VERSION:
        raise StoreUnsuitable(
            f"{address.name} is PostgreSQL {server // 10_000}: Daybreak needs 13 or newer; upgrade the server"
        )


def _rows(answer: Answer, address: Address) -> list[Any]:
    if not isinstance(answer, psycopg.Error):
        return answer
    if faults.is_retryable(answer):
        raise answer
    raise faults.call_error(address.name, answer, sent=False, lost=False)


def _migrate(connection: Connection, address: Address) -> None:
    sql = Statements("sql", address.schema)
    connection.renew_timeout()  # another process may be migrating: wait as long as the lock timeout allows
    connection.rows("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    try:
        [(has_schema, has_meta)] = connection.rows(sql.has_schema, (address.schema,))
        current = int(connection.rows(sql.seen)[0][0]) if has_meta else 0
        if current >= address.known.number:
            return
        scripts = [named(script, address.schema) for script in itertools.chain(*address.known.scripts[current:])]
        if not has_schema:
            scripts.insert(0, f"CREATE SCHEMA {quoted(address.schema)}")
        scripts.append(sql.set_version.format(version=address.known.number, needs=address.known.needs))
        # On empty tables all scripts together take no time: they are sent at once.
        for script in scripts if current else ["\n;\n".join(scripts)]:
            connection.renew_timeout()
            connection.run(script)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _missing_permission(address, error) from None


def _take_over_feed(connection: Connection, address: Address) -> None:
    """Give rows with ids from the other server the id of this transaction. Cursors from there start over at the oldest
    event."""
    connection.rows("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    sql = Statements("sql", address.schema)
    for statement in (sql.own_feed, sql.own_purged):
        connection.run(statement)


def _missing_permission(address: Address, error: Any) -> StoreError:
    message = faults.without_password(str(error))
    return StoreUnsuitable(
        f"{address.name}: this user may not create the schema {quoted(address.schema)} ({message}); let an "
        f"administrator run CREATE SCHEMA {quoted(address.schema)} AUTHORIZATION this_user; once, or name "
        "another by ?schema="
    )

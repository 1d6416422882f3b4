"""Opens a database: checks the server, and creates or migrates the schema. Processes that do so at once wait for each
other."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from daybreak.core.errors import StoreError, StoreReadOnly, StoreUnsuitable
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.connection import Connection
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.statements import Statements, named, quoted, spelt
from daybreak.system import patience

MIN_SERVER_VERSION: Final = 130_000
MIGRATION_LOCK: Final = 0x44415942  # "DAYB"


def prepare(connection: Connection, address: Address) -> None:
    """Refuse a server that is too old and a schema that is too new; migrate the schema to this version, in one
    transaction."""
    server = connection.server_version
    if server < MIN_SERVER_VERSION:
        raise StoreUnsuitable(
            f"{address.name} is PostgreSQL {server // 10_000}: Daybreak needs 13 or newer; upgrade the server"
        )
    if _version(connection, address) < address.known.number:
        # A migration of large tables takes long: each statement has its own timeout, and the caller's patience does not
        # apply.
        with patience.ending_at(None):
            connection.transaction(lambda _: _migrate(connection, address))
            _version(connection, address)  # another process, perhaps a newer version, may have been first
            _repair_foreign_feed(connection, address)
    else:
        _repair_foreign_feed(connection, address)


def _repair_foreign_feed(connection: Connection, address: Address) -> None:
    if has_foreign_feed(connection, address):
        with contextlib.suppress(StoreReadOnly):  # `doctor` reports it
            connection.transaction(lambda _: _take_over_feed(connection, address))


def _version(connection: Connection, address: Address) -> int:
    """The version of the schema, 0 if it does not exist. A role that may only use the tables can read it, too."""
    name = spelt(address.schema)
    if connection.query("SELECT to_regclass(%s) IS NULL", (f"{name}.meta",)) == [(True,)]:
        return 0
    text = Statements("sql", address.schema)
    [(version, needs)] = connection.query(text.seen)
    if version is None:
        raise StoreUnsuitable(
            f"{address.name}: the schema {name} belongs to another program: choose another name by ?schema="
        )
    if version > address.known.number and (needs or version) > address.known.number:
        raise faults.too_new(address.name, version, address.known.number)
    return int(version)


def _migrate(connection: Connection, address: Address) -> None:
    connection.renew_timeout()  # another process may be migrating: wait as long as the lock timeout allows
    connection.rows("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    try:
        [(exists,)] = connection.rows(
            "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s)", (address.schema,)
        )
        if not exists:
            connection.run(f"CREATE SCHEMA {quoted(address.schema)}")
        [(is_missing,)] = connection.rows("SELECT to_regclass(%s) IS NULL", (f"{spelt(address.schema)}.meta",))
        current = 0 if is_missing else int(connection.rows(Statements("sql", address.schema).seen)[0][0])
        for scripts in address.known.scripts[current:]:
            for script in scripts:
                connection.renew_timeout()
                connection.run(named(script, address.schema))
        if current < address.known.number:
            _write_version(connection, address)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _missing_permission(address, error) from None


def has_foreign_feed(connection: Connection, address: Address) -> bool:
    """Whether the feed has transaction ids that this server has not assigned yet: it was restored from another server
    with higher ids. No cursor would ever reach its end."""
    return bool(connection.query(Statements("sql", address.schema).is_foreign_feed)[0][0])


def _take_over_feed(connection: Connection, address: Address) -> None:
    """Give rows with ids from the other server the id of this transaction. Cursors from there start over at the oldest
    event."""
    connection.rows("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    sql = Statements("sql", address.schema)
    for statement in (sql.own_feed, sql.own_purged):
        connection.run(statement)


def _write_version(connection: Connection, address: Address) -> None:
    statement = Statements("sql", address.schema).set_meta
    for item, value in (("version", address.known.number), ("needs", address.known.needs)):
        connection.run(statement, (item, str(value)))


def _missing_permission(address: Address, error: Any) -> StoreError:
    message = faults.without_password(str(error))
    return StoreUnsuitable(
        f"{address.name}: this user may not create the schema {quoted(address.schema)} ({message}); let an "
        f"administrator run CREATE SCHEMA {quoted(address.schema)} AUTHORIZATION this_user; once, or name "
        "another by ?schema="
    )

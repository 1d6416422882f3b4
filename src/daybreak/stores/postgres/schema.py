"""Opening a database: what it must be, what it becomes. Two who start at once wait for each other."""

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

OLDEST_SERVER: Final = 130_000
LOCK: Final = 0x44415942  # "DAYB"


def prepare(link: Connection, place: Address) -> None:
    """Refuse what is too old or too new; bring the schema to our version, in one transaction."""
    server = link.server_version
    if server < OLDEST_SERVER:
        raise StoreUnsuitable(
            f"{place.name} is PostgreSQL {server // 10_000}: Daybreak needs 13 or newer; upgrade the server"
        )
    if _version(link, place) < place.known.number:
        # Large tables take their time: from here on each question has its own, and the caller's patience ends nothing.
        with patience.ending_at(None):
            link.transaction(lambda _: _migrate(link, place))
            _version(link, place)  # another program, perhaps a newer one, may have been first
            _take_feed_over(link, place)
    else:
        _take_feed_over(link, place)


def _take_feed_over(link: Connection, place: Address) -> None:
    if has_foreign_feed(link, place):
        with contextlib.suppress(StoreReadOnly):  # doctor says it
            link.transaction(lambda _: _make_feed_ours(link, place))


def _version(link: Connection, place: Address) -> int:
    """Which version of ours is there, 0 if none is. A role that may only use the tables can ask this, too."""
    name = spelt(place.schema)
    if link.query("SELECT to_regclass(%s) IS NULL", (f"{name}.meta",)) == [(True,)]:
        return 0
    text = Statements("sql", place.schema)
    [(version, needs)] = link.query(text.seen)
    if version is None:
        raise StoreUnsuitable(f"{place.name}: the schema {name} belongs to another program: choose another name")
    if version > place.known.number and (needs or version) > place.known.number:
        raise faults.too_new(place.name, version, place.known.number)
    return int(version)


def _migrate(link: Connection, place: Address) -> None:
    link.renew_timeout()  # another one may be at it, for as long as the server lets us wait for a lock
    link.rows("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
    try:
        [(exists,)] = link.rows("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s)", (place.schema,))
        if not exists:
            link.run(f"CREATE SCHEMA {quoted(place.schema)}")
        [(is_empty,)] = link.rows("SELECT to_regclass(%s) IS NULL", (f"{spelt(place.schema)}.meta",))
        before = 0 if is_empty else int(link.rows(Statements("sql", place.schema).seen)[0][0])
        for scripts in place.known.scripts[before:]:
            for script in scripts:
                link.renew_timeout()
                link.run(named(script, place.schema))
        if before < place.known.number:
            _set(link, place)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _no_right(place, error) from None


def has_foreign_feed(link: Connection, place: Address) -> bool:
    """Whether the feed tells of transactions that this server has yet to begin: it was dumped from another one, which
    was older. No cursor would ever come to its end."""
    return bool(link.query(Statements("sql", place.schema).is_foreign_feed)[0][0])


def _make_feed_ours(link: Connection, place: Address) -> None:
    """What came later than anything here was told just now; who followed there begins anew with the oldest."""
    link.rows("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
    sql = Statements("sql", place.schema)
    for statement in (sql.own_feed, sql.own_purged):
        link.run(statement)


def _set(link: Connection, place: Address) -> None:
    statement = Statements("sql", place.schema).set_meta
    for item, value in (("version", place.known.number), ("needs", place.known.needs)):
        link.run(statement, (item, str(value)))


def _no_right(place: Address, error: Any) -> StoreError:
    told = faults.without_password(str(error))
    return StoreUnsuitable(
        f"{place.name}: this user may not create the schema {quoted(place.schema)} ({told}); let one who may run "
        f"CREATE SCHEMA {quoted(place.schema)} AUTHORIZATION this_user; once, or name another by ?schema="
    )

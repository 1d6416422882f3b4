"""`doctor` for a PostgreSQL server: what it could lose, what slows it down, what to change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from daybreak.core.units import counted, moment
from daybreak.store.protocol import Finding
from daybreak.stores.postgres.connection import Connection
from daybreak.stores.postgres.statements import Statements

MAX_SNAPSHOT_AGE = 60  # seconds
MAX_DEAD_ROWS = 200_000  # rows
MAX_CLOCK_DIFFERENCE = 5_000_000  # microseconds


def examine(connection: Connection, listens: bool | None) -> list[Finding]:
    sql = Statements("sql", connection.address.schema)

    def do(_: int) -> list[Finding]:
        return list(_findings(connection, sql, listens))

    return connection.reading(do)


def _findings(connection: Connection, sql: Statements, listens: bool | None) -> Iterator[Finding]:
    yield Finding(f"PostgreSQL {_version(connection)} at {connection.address.name}", is_well=True)
    settings = dict(connection.rows(sql.examine_settings))
    yield from _durability(settings)
    yield from _old_snapshots(connection.rows(sql.examine_snapshots, (float(MAX_SNAPSHOT_AGE),)))
    yield from _dead_rows(connection.rows(sql.examine_dead, (connection.address.schema, MAX_DEAD_ROWS)))
    yield from _rejected(connection.rows(sql.examine_aside)[0], connection.address.schema)
    yield from _connections(connection.rows(sql.examine_connections)[0])
    yield _waking(connection, listens)
    if not connection.is_read_committed:
        yield _isolation(settings["default_transaction_isolation"])
    yield from _encoding(settings["server_encoding"])
    yield from _foreign_feed(connection.rows(sql.is_foreign_feed)[0][0])
    yield from _clock(connection.rows(sql.examine_clock)[0][0])
    yield from _jumps(connection.rows(sql.read_clock)[0][1])


def _version(connection: Connection) -> str:
    number = connection.server_version
    return f"{number // 10_000}.{number % 10_000}"


def _durability(settings: dict[str, str]) -> Iterator[Finding]:
    values = ", ".join(f"{name} {settings[name]}" for name in ("fsync", "full_page_writes", "synchronous_commit"))
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        yield Finding(
            f"a power cut can destroy the database ({values})",
            cure="set fsync = on and full_page_writes = on in postgresql.conf and restart the server",
        )
    elif settings["synchronous_commit"] == "off":
        yield Finding(
            f"a power cut loses up to the last second of accepted jobs ({values})",
            cure="set synchronous_commit = on, or ALTER ROLE ... SET synchronous_commit = on for this user",
        )
    else:
        yield Finding(f"every commit is synced to disk ({values})", is_well=True)


def _old_snapshots(rows: list[Any]) -> Iterator[Finding]:
    for pid, application, state, since, seconds in rows:
        yield Finding(
            f"{application or 'a program'} (pid {pid}, {state}) holds a snapshot since {moment(since):%H:%M:%S} UTC, "
            f"for {int(seconds)} s: dead rows cannot be vacuumed meanwhile, and claims become slower",
            cure=f"end its transaction, or: SELECT pg_terminate_backend({pid})",
        )
    if not rows:
        yield Finding(f"no snapshot is held for longer than {MAX_SNAPSHOT_AGE} s", is_well=True)


def _dead_rows(rows: list[Any]) -> Iterator[Finding]:
    for table, dead, live, vacuumed_at in rows:
        when = "never" if vacuumed_at is None else f"last at {moment(vacuumed_at):%Y-%m-%d %H:%M} UTC"
        yield Finding(
            f"table {table} has {dead:,} dead rows beside {live:,} ({when} vacuumed)",
            cure=f"end the old snapshots (above), then run: VACUUM {table}",
        )
    if not rows:
        yield Finding("the tables are vacuumed often enough", is_well=True)


def _rejected(row: Any, schema: str) -> Iterator[Finding]:
    count, reason = row
    if count:
        yield Finding(
            f"{counted(count, 'job')} submitted within transactions could not be accepted: {reason}",
            cure=f"submit them again; the originals are kept in {schema}.aside",
        )


def _connections(row: Any) -> Iterator[Finding]:
    used, maximum = row
    left = maximum - used
    what = f"{used} of {maximum} connections are in use"
    if left < max(5, maximum // 10):
        yield Finding(what, cure="raise max_connections, run fewer processes, or put PgBouncer in front of the server")
    else:
        yield Finding(what, is_well=True)


def _waking(connection: Connection, listens: bool | None) -> Finding:
    if listens is False or (listens is None and connection.has_pooler):
        return Finding(
            "LISTEN does not work here (a pooler in transaction mode): waiting processes poll 7 times a second",
            is_well=True,
        )
    return Finding("workers are woken by LISTEN and NOTIFY", is_well=True)


def _isolation(isolation: str) -> Finding:
    return Finding(
        f"behind this pooler transactions are {isolation} by default, so every single statement must be wrapped in a "
        "READ COMMITTED transaction: three round trips instead of one",
        cure="ALTER ROLE this_user SET default_transaction_isolation = 'read committed', and reconnect the pooler",
    )


def _encoding(encoding: str) -> Iterator[Finding]:
    if encoding not in ("UTF8", "SQL_ASCII"):  # SQL_ASCII stores bytes unchanged, and gets UTF-8
        yield Finding(
            f"the database's encoding is {encoding}: ids, names and keys with other characters are refused",
            cure="use a database created with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )


def _foreign_feed(is_foreign: bool) -> Iterator[Finding]:
    if is_foreign:
        yield Finding(
            "the event feed was restored from another server and its cursors do not work here: hooks miss events",
            cure="open the store once as a user who may change its tables: that repairs the feed",
        )


def _jumps(offset: int) -> Iterator[Finding]:
    if offset:
        yield Finding(
            f"the server's clock has jumped, by {offset / 1e6:.0f} s in total; delays and expiry were not affected",
            is_well=True,
        )


def _clock(server: int) -> Iterator[Finding]:
    difference = server - time.time_ns() // 1000
    what = f"the server's clock and this machine's differ by {abs(difference) / 1e6:.1f} s"
    if abs(difference) > MAX_CLOCK_DIFFERENCE:
        yield Finding(what, cure="synchronise both with NTP; jobs with a run_at follow the server's clock")
    else:
        yield Finding(what, is_well=True)

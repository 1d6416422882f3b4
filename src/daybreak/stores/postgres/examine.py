"""What the server says of itself: what it would lose, what slows it down, what should be changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from daybreak.core.units import counted, moment
from daybreak.store.protocol import Finding
from daybreak.stores.postgres.link import Link
from daybreak.stores.postgres.statements import Statements

OLD_SNAPSHOT = 60  # seconds
MANY_DEAD = 200_000  # rows
FAR = 5_000_000  # microseconds between two clocks


def examine(link: Link, listens: bool | None) -> list[Finding]:
    sql = Statements("sql", link.place.schema)

    def do(_: int) -> list[Finding]:
        return list(_findings(link, sql, listens))

    return link.reading(do)


def _findings(link: Link, sql: Statements, listens: bool | None) -> Iterator[Finding]:
    yield Finding(f"PostgreSQL {_version(link)} at {link.place.name}", is_well=True)
    settings = dict(link.rows(sql.examine_settings))
    yield from _durability(settings)
    yield from _old_snapshots(link.rows(sql.examine_snapshots, (float(OLD_SNAPSHOT),)))
    yield from _dead_rows(link.rows(sql.examine_dead, (link.place.schema, MANY_DEAD)))
    yield from _aside(link.rows(sql.examine_aside)[0], link.place.schema)
    yield from _connections(link.rows(sql.examine_connections)[0])
    yield _waking(link, listens)
    if not link.is_level:
        yield _level(settings["default_transaction_isolation"])
    yield from _encoding(settings["server_encoding"])
    yield from _foreign_feed(link.rows(sql.is_foreign_feed)[0][0])
    yield from _clock(link.rows(sql.examine_clock)[0][0])
    yield from _jumps(link.rows(sql.read_clock)[0][1])


def _version(link: Link) -> str:
    number = link.server_version
    return f"{number // 10_000}.{number % 10_000}"


def _durability(settings: dict[str, str]) -> Iterator[Finding]:
    told = ", ".join(f"{name} {settings[name]}" for name in ("fsync", "full_page_writes", "synchronous_commit"))
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        yield Finding(
            f"a power cut can destroy the database ({told})",
            cure="set fsync = on and full_page_writes = on in postgresql.conf and restart the server",
        )
    elif settings["synchronous_commit"] == "off":
        yield Finding(
            f"a power cut loses up to the last second of accepted jobs ({told})",
            cure="set synchronous_commit = on, or ALTER ROLE ... SET synchronous_commit = on for this user",
        )
    else:
        yield Finding(f"every commit is synced to disk ({told})", is_well=True)


def _old_snapshots(rows: list[Any]) -> Iterator[Finding]:
    for pid, application, state, since, seconds in rows:
        yield Finding(
            f"{application or 'a program'} (pid {pid}, {state}) holds a snapshot since {moment(since):%H:%M:%S} UTC, "
            f"for {int(seconds)} s: no dead row can be swept meanwhile, and claims grow slower",
            cure=f"end its transaction, or: SELECT pg_terminate_backend({pid})",
        )
    if not rows:
        yield Finding(f"no snapshot is held for longer than {OLD_SNAPSHOT} s", is_well=True)


def _dead_rows(rows: list[Any]) -> Iterator[Finding]:
    for table, dead, live, swept in rows:
        when = "never" if swept is None else f"last at {moment(swept):%Y-%m-%d %H:%M} UTC"
        yield Finding(
            f"table {table} has {dead:,} dead rows beside {live:,} ({when} swept)",
            cure=f"look for an old snapshot (above); then: VACUUM {table}",
        )
    if not rows:
        yield Finding("the tables are swept often enough", is_well=True)


def _aside(row: Any, schema: str) -> Iterator[Finding]:
    count, why = row
    if count:
        yield Finding(
            f"{counted(count, 'job')} submitted within transactions could not be accepted: {why}",
            cure=f"submit again; what was submitted is kept in {schema}.aside",
        )


def _connections(row: Any) -> Iterator[Finding]:
    used, most = row
    left = most - used
    what = f"{used} of {most} connections are in use"
    if left < max(5, most // 10):
        yield Finding(what, cure="raise max_connections, run fewer processes, or put PgBouncer before the server")
    else:
        yield Finding(what, is_well=True)


def _waking(link: Link, listens: bool | None) -> Finding:
    if listens is False or (listens is None and link.has_pooler):
        return Finding(
            "LISTEN does not work here (a pooler in transaction mode): who waits looks 7 times a second",
            is_well=True,
        )
    return Finding("workers are woken by LISTEN and NOTIFY", is_well=True)


def _level(level: str) -> Finding:
    return Finding(
        f"behind this pooler transactions are {level} by default, and ours must say each time that they are not: "
        "what would be one question is three",
        cure="ALTER ROLE this_user SET default_transaction_isolation = 'read committed', and reconnect the pooler",
    )


def _encoding(encoding: str) -> Iterator[Finding]:
    if encoding not in ("UTF8", "SQL_ASCII"):  # the latter keeps whatever it is given, and is given UTF-8
        yield Finding(
            f"the database keeps {encoding}: ids, names and keys with other characters are refused",
            cure="use a database that was made by CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )


def _foreign_feed(is_foreign: bool) -> Iterator[Finding]:
    if is_foreign:
        yield Finding(
            "the feed of events was dumped from another server and its cursors do not work here: hooks miss events",
            cure="open the store once as a user who may change its tables: that makes the feed this server's own",
        )


def _jumps(offset: int) -> Iterator[Finding]:
    if offset:
        yield Finding(
            f"the server's clock has jumped, by {offset / 1e6:.0f} s in all; delays and expiry did not follow",
            is_well=True,
        )


def _clock(server: int) -> Iterator[Finding]:
    apart = server - time.time_ns() // 1000
    what = f"the server's clock and this machine's are {abs(apart) / 1e6:.1f} s apart"
    if abs(apart) > FAR:
        yield Finding(what, cure="set both by NTP; jobs scheduled for an instant go by the server's clock")
    else:
        yield Finding(what, is_well=True)

"""Where the store is: what a URL says, read strictly, and how it is spoken of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from daybreak.errors import BadInput
from daybreak.store import ConnectLimit, FixedLimit
from daybreak.units import ZERO, duration

SCHEMES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class Place:
    """`conninfo` is for libpq and may hold a password; `name` is for people and never does."""

    conninfo: str = field(repr=False)
    name: str
    schema: str = "daybreak"
    connections: int = 4
    answer_within: timedelta = timedelta(seconds=60)
    connect_within: timedelta = timedelta(seconds=5)
    connect_limit: ConnectLimit = field(default_factory=FixedLimit, repr=False, compare=False)


def place_of(
    url: str,
    *,
    schema: str | None = None,
    connections: int | None = None,
    answer_within: timedelta | None = None,
    connect_within: timedelta | None = None,
    connect_limit: ConnectLimit | None = None,
) -> Place:
    """`schema`, `connections`, `answer_within` and `connect_within` of the URL are ours, everything else is libpq's."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise BadInput(f"{parts.scheme or url!r} is no PostgreSQL URL: write postgresql://user@host/database")
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("schema", "connections", "answer_within", "connect_within"):
            ours[name] = value
        else:
            theirs.append((name, value))
    named = schema or ours.get("schema") or "daybreak"
    if "\0" in named or len(named.encode()) > 63:
        raise BadInput(f"schema: {named!r} is no name of a schema; PostgreSQL takes up to 63 characters")
    if connections is None:
        connections = _number(ours["connections"]) if "connections" in ours else 4
    if connections < 1:
        raise BadInput("connections: at least one is needed")
    if answer_within is None:
        answer_within = duration(ours.get("answer_within", "60s"), "answer_within")
    if connect_within is None:
        connect_within = duration(ours.get("connect_within", "5s"), "connect_within")
    if connect_within <= ZERO:
        raise BadInput("connect_within must be longer than nothing")
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(theirs, quote_via=quote), ""))
    host = parts.netloc.rpartition("@")[2] or "local"
    name = f"postgresql://{host}{unquote(parts.path) or '/'}" + (f"?schema={named}" if named != "daybreak" else "")
    limit = connect_limit or FixedLimit()
    return Place(conninfo, name, named, connections, answer_within, connect_within, limit)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"connections: {text!r} is no number") from None

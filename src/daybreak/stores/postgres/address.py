"""Where the store is: what a URL says, read strictly, and how it is spoken of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from daybreak.core.errors import BadInput
from daybreak.core.units import ZERO, duration
from daybreak.store.protocol import ConnectLimit, FixedLimit

SCHEMES = ("postgresql", "postgres")
_FREE = ("user", "password", "sslpassword", "passfile", "options", "application_name")  # an @ here is just an @
_HALF_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")


@dataclass(frozen=True, slots=True)
class Address:
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
) -> Address:
    """`schema`, `connections`, `answer_within` and `connect_within` of the URL are ours, everything else is libpq's."""
    parts = _split(url)
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    # To libpq, unlike to a web form, + is no space: it may stand in a password.
    for name, value in parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True):
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
    # Put together by hand: urlunsplit drops the slashes before an empty host, and libpq wants them.
    conninfo = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(theirs, quote_via=quote)}" if theirs else "")
    host = parts.netloc.rpartition("@")[2] or "local"
    name = f"postgresql://{host}{unquote(parts.path) or '/'}" + (f"?schema={named}" if named != "daybreak" else "")
    limit = connect_limit or FixedLimit()
    return Address(conninfo, name, named, connections, answer_within, connect_within, limit)


def _split(url: str) -> SplitResult:
    """The parts of a URL that libpq reads as we do. Others are refused here, and not repeated: what libpq takes for a
    host or a token, and tells everyone, may be a piece of the password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unclear() from None
    if parts.scheme not in SCHEMES:
        what = repr(parts.scheme) if parts.scheme else "what has no scheme"
        raise BadInput(f"{what} is no PostgreSQL URL: write postgresql://user@host/database")
    after = [parts.path, *(item for item in parts.query.split("&") if item.partition("=")[0] not in _FREE)]
    if (
        parts.netloc.count("@") > 1
        or "#" in url
        or ("@" not in parts.netloc and any("@" in part for part in after))
        or _HALF_ENCODED.search(parts.netloc + parts.path)
    ):
        raise _unclear()
    return parts


def _unclear() -> BadInput:
    return BadInput(
        "postgresql://: the URL cannot be understood; percent-encode @ and % in the password (%40, %25), and also "
        "/ ? # [ ] (%2F, %3F, %23, %5B, %5D)"
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"connections: {text!r} is no number") from None

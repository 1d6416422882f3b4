"""The address of the store: a URL, parsed strictly, and its name for messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from daybreak.core.errors import BadInput
from daybreak.core.units import ZERO, duration
from daybreak.store.protocol import ConnectLimit, FixedLimit
from daybreak.stores.postgres.schema_version import CURRENT, SchemaVersion

SCHEMES = ("postgresql", "postgres")
_MAY_CONTAIN_AT = (
    "user",
    "password",
    "sslpassword",
    "passfile",
    "options",
    "application_name",
)  # options in which an @ is allowed
_HALF_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")


@dataclass(frozen=True, slots=True)
class Address:
    """`conninfo` is for libpq and may contain a password; `name` is for messages and never does."""

    conninfo: str = field(repr=False)
    name: str
    schema: str = "daybreak"
    connections: int = 4
    answer_within: timedelta = timedelta(seconds=60)
    connect_within: timedelta = timedelta(seconds=5)
    connect_limit: ConnectLimit = field(default_factory=FixedLimit, repr=False, compare=False)
    known: SchemaVersion = field(default=CURRENT, repr=False)


def parse_address(
    url: str,
    *,
    schema: str | None = None,
    connections: int | None = None,
    answer_within: timedelta | None = None,
    connect_within: timedelta | None = None,
    connect_limit: ConnectLimit | None = None,
) -> Address:
    """Parse a URL. `schema`, `connections`, `answer_within` and `connect_within` are Daybreak's; all else is
    libpq's."""
    parts = _split(url)
    own_options: dict[str, str] = {}
    libpq_options: list[tuple[str, str]] = []
    # For libpq a + is not a space, unlike in a web form: it may be part of a password.
    for name, value in parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True):
        if name in ("schema", "connections", "answer_within", "connect_within"):
            own_options[name] = value
        else:
            libpq_options.append((name, value))
    schema_name = schema or own_options.get("schema") or "daybreak"
    if "\0" in schema_name or len(schema_name.encode()) > 63:
        raise BadInput(f"schema: {schema_name!r} is not a schema name; PostgreSQL allows up to 63 bytes")
    if connections is None:
        connections = _number(own_options["connections"]) if "connections" in own_options else 4
    if connections < 1:
        raise BadInput("connections: at least one is needed")
    if answer_within is None:
        answer_within = duration(own_options.get("answer_within", "60s"), "answer_within")
    if connect_within is None:
        connect_within = duration(own_options.get("connect_within", "5s"), "connect_within")
    if connect_within <= ZERO:
        raise BadInput("connect_within must be longer than 0 s")
    # Not urlunsplit: it drops the slashes before an empty host, which libpq requires.
    conninfo = f"postgresql://{parts.netloc}{parts.path}" + (
        f"?{urlencode(libpq_options, quote_via=quote)}" if libpq_options else ""
    )
    host = parts.netloc.rpartition("@")[2] or "local"
    name = f"postgresql://{host}{unquote(parts.path) or '/'}" + (
        f"?schema={schema_name}" if schema_name != "daybreak" else ""
    )
    limit = connect_limit or FixedLimit()
    return Address(conninfo, name, schema_name, connections, answer_within, connect_within, limit)


def _split(url: str) -> SplitResult:
    """The parts of a URL, if libpq parses it in the same way. Other URLs are refused here, without repeating them: what
    libpq takes for a host or an option, and prints, may be a part of the password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad_url() from None
    if parts.scheme not in SCHEMES:
        scheme = repr(parts.scheme) if parts.scheme else "a URL without a scheme"
        raise BadInput(f"{scheme} is not a PostgreSQL URL: write postgresql://user@host/database")
    other_parts = [
        parts.path,
        *(item for item in parts.query.split("&") if item.partition("=")[0] not in _MAY_CONTAIN_AT),
    ]
    if (
        parts.netloc.count("@") > 1
        or "#" in url
        or ("@" not in parts.netloc and any("@" in part for part in other_parts))
        or _HALF_ENCODED.search(parts.netloc + parts.path)
    ):
        raise _bad_url()
    return parts


def _bad_url() -> BadInput:
    return BadInput(
        "postgresql://: the URL cannot be understood; percent-encode @ and % in the password (%40, %25), and also "
        "/ ? # [ ] (%2F, %3F, %23, %5B, %5D)"
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"connections: {text!r} is not a number") from None

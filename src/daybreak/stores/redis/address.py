"""The address of the server: a URL, parsed strictly, and shown without its password."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.units import ZERO, duration

SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix")
_SECURE = ("rediss", "valkeys")
_OPTIONS = ("namespace", "db", "connect_within", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")


class Address(Struct, frozen=True, kw_only=True):
    """`path` is that of a unix socket; `secure` asks for TLS."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    namespace: str | None = None
    secure: bool = False
    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verified: bool = True
    connect_within: timedelta = timedelta(seconds=5)

    def __str__(self) -> str:
        where = (
            f"unix://{self.path}"
            if self.path
            else f"{'rediss' if self.secure else 'redis'}://{_host(self.host)}:{self.port}"
        )
        return f"{where}/{self.db}" if self.db and not self.path else where

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def context(self) -> ssl.SSLContext | None:
        """How the server's certificate is checked; None without TLS."""
        if not self.secure:
            return None
        context = ssl.create_default_context(cafile=self.ca_certs)
        if not self.verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certfile:
            context.load_cert_chain(self.certfile, self.keyfile)
        return context


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def parse(url: str) -> Address:
    """redis://, rediss:// (TLS), valkey:// or unix://, e.g. redis://:password@host:6379/0?namespace=mail."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad_url() from None
    if parts.scheme not in SCHEMES:
        raise BadInput(f"a Redis URL must begin with redis://, rediss://, valkey:// or unix://, not {parts.scheme}://")
    _check_url(url, parts)
    options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise BadInput(f"{unknown[0]!r} is not an option of a Redis URL; the options are {', '.join(_OPTIONS)}")
    try:
        port = parts.port or 6379
    except ValueError:
        raise BadInput("the port of a Redis URL must be a number from 1 to 65535") from None
    values: dict[str, Any] = {
        "host": unquote(parts.hostname or "localhost"),
        "port": port,
        "secure": parts.scheme in _SECURE,
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "namespace": options.get("namespace") or None,
        "ca_certs": options.get("ssl_ca_certs"),
        "certfile": options.get("ssl_certfile"),
        "keyfile": options.get("ssl_keyfile"),
        "connect_within": _connect_within(options.get("connect_within", "5s")),
        "verified": options.get("ssl_cert_reqs", "required") != "none",
    }
    if "unix" in parts.scheme:
        values["path"] = unquote(parts.path)
        return Address(db=_number(options.get("db", "0")), **values)
    return Address(db=_number(options.get("db") or parts.path.strip("/") or "0"), **values)


def _check_url(url: str, parts: SplitResult) -> None:
    """Refuse a URL in which a part of an unencoded password would be shown as a host, a database or an option."""
    path = "" if "unix" in parts.scheme else parts.path
    other_parts = [path, *(item for item in parts.query.split("&") if item.partition("=")[0] not in _OPTIONS)]
    if "#" in url or ("@" not in parts.netloc and any("@" in part for part in other_parts)):
        raise _bad_url()


def _bad_url() -> BadInput:
    return BadInput(
        "redis://: the URL cannot be understood; percent-encode special characters of the password, such as %40 for "
        "@, %2F for /, %3F for ? and %23 for #"
    )


def _connect_within(text: str) -> timedelta:
    if (within := duration(text, "connect_within")) <= ZERO:
        raise BadInput("connect_within must be longer than 0 s")
    return within


def _number(text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"{text!r} is not a database of a Redis server: use a number, as in redis://host:6379/0")
    return int(text)

"""The address of a broker: a URL, parsed strictly, and shown without its password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.units import duration

# The options that Daybreak itself reads, by the kind of broker. Options of Kafka with a dot are those of librdkafka.
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "nats": ("ack_wait",),
    "kafka": (),
    "rabbitmq": ("exchange",),
    "redis": ("claim_after", "maxlen"),
}
_DURATIONS: Final = ("ack_wait", "claim_after")
_PASSED_ON: Final = frozenset({"rabbitmq", "redis"})  # their libraries read options of the URL, too
_KINDS: Final = {
    "nats": "nats", "tls": "nats", "kafka": "kafka", "amqp": "rabbitmq", "amqps": "rabbitmq",
    "redis": "redis", "rediss": "redis", "valkey": "redis", "valkeys": "redis",
}  # fmt: skip
_EXAMPLES: Final = "nats://host:4222, kafka://host:9092, amqp://user:password@host:5672/ or redis://host:6379"


class BrokerAddress(Struct, frozen=True, kw_only=True):
    """Which broker, and how it is used. `url` is the part that its library understands."""

    kind: str
    url: str
    hosts: str
    username: str | None = None
    password: str | None = None
    options: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{urlsplit(self.url).scheme}://{self.hosts}"

    def __repr__(self) -> str:
        return f"<BrokerAddress {self}>"


def parse_broker(url: object) -> BrokerAddress:
    """The address in a URL. Errors show the right spelling, and never the password."""
    if not isinstance(url, str) or "://" not in url:
        raise BadInput(f"bridge: write the URL of a broker, such as {_EXAMPLES}")
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadInput(
            "bridge: the URL cannot be understood; percent-encode special characters of the password, such as %40 for @"
        ) from None
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        raise BadInput(f"bridge: {parts.scheme}:// is no broker that Daybreak knows; write {_EXAMPLES}")
    own = {name: value for name, value in given.items() if name in _OPTIONS[kind] or (kind == "kafka" and "." in name)}
    rest = {name: value for name, value in given.items() if name not in own}
    if rest and kind not in _PASSED_ON:
        known = ", ".join(_OPTIONS[kind]) or "those of librdkafka, such as session.timeout.ms"
        raise BadInput(f"bridge: {next(iter(rest))!r} is not an option of {parts.scheme}://; the options are {known}")
    user, _, hosts = parts.netloc.rpartition("@")
    if not hosts:
        raise BadInput(f"bridge: the URL names no host; write {_EXAMPLES}")
    _check_ports(hosts)
    _check_options(own)
    name, _, password = user.partition(":")
    return BrokerAddress(
        kind=kind, url=urlunsplit(parts._replace(query=urlencode(rest), fragment="")), hosts=hosts,
        username=unquote(name) or None, password=unquote(password) or None, options=own,
    )  # fmt: skip


def _check_ports(hosts: str) -> None:
    for host in hosts.split(","):
        try:
            _ = urlsplit(f"//{host}").port
        except ValueError:
            raise BadInput(f"bridge: {host!r:.60} has no valid port; a port is a number up to 65535") from None


def _check_options(options: Mapping[str, str]) -> None:
    """Here, and not when the channel is made: a wrong option of a bridge that is running would be tried forever."""
    for name in _DURATIONS:
        if name in options:
            duration(options[name], f"bridge: {name}")
    if "maxlen" in options and not (options["maxlen"].isdecimal() and int(options["maxlen"]) > 0):
        raise BadInput(
            f"bridge: maxlen={options['maxlen']!r:.40}: write how many entries a stream keeps, such as 100000"
        )

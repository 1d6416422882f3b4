"""HTTP POST to an address that a setting names, without reaching into the private network.

The host is resolved once, every address is checked, and the connection goes to the very address that was checked: a
name that answers otherwise the second time gains nothing. Redirects are not followed."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

TIMEOUT: Final = 10.0  # seconds, for each step

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: _Address) -> bool:
    """Whether an address is one of the public internet, also behind the forms that carry an IPv4 address in IPv6."""
    inner = _inner(address)
    if inner is not None and not is_public(inner):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner(address: _Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool = False) -> str:
    """POST a body. Returns why it failed, or nothing; a reason that begins with `refused` is final."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        return f"refused: {url!r} is no valid address ({error})"
    if parts.scheme not in ("http", "https") or not host:
        return f"refused: {url!r} is no address that begins with https:// or http://"
    if parts.username is not None:
        return "refused: the address holds a user name; send a signature instead (alerts.webhook_secret_env)"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"{host} cannot be resolved: {error}"
    for _, _, _, _, sockaddr in found:
        address = ipaddress.ip_address(str(sockaddr[0]).partition("%")[0])
        if not allow_private and not is_public(address):
            return f"refused: {host} is {address}, which is not on the public internet (alerts.allow_private_webhooks)"
    path = parts.path or "/"
    if parts.query:
        path += f"?{parts.query}"
    return _post_to(found, parts.scheme, host, port, path, body, headers)


def _post_to(
    found: Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]],
    scheme: str,
    host: str,
    port: int,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
) -> str:
    error: Exception | None = None
    for family, kind, protocol, _, sockaddr in found:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            sock = socket.socket(family, kind, protocol)
            sock.settimeout(TIMEOUT)
            connection.sock = sock
            sock.connect(sockaddr)
            if scheme == "https":
                connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            answer.read(1000)
        except (OSError, http.client.HTTPException) as failure:
            error = failure
        else:
            return _judged(answer)
        finally:
            connection.close()
    return f"{host} cannot be reached: {error}"


def _judged(answer: http.client.HTTPResponse) -> str:
    if 200 <= answer.status < 300:
        return ""
    if 300 <= answer.status < 400:
        return f"refused: the server redirects ({answer.status}), and redirects are not followed"
    return f"the server answers {answer.status} {answer.reason}"

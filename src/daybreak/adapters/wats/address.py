"""The address and the token of a server, checked before anything is sent."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from daybreak.core.errors import BadInput
from daybreak.values.secret import Secret

EXAMPLE: Final = "https://factory.wats.com"
MAX_TOKEN_CHARS: Final = 4096


def check_url(url: object) -> str:
    """The address of the server, without a slash at its end. Paths begin behind it."""
    try:
        parts = urlsplit(str(url))
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not isinstance(url, str) or not host or parts.scheme not in ("http", "https"):
        raise BadInput(f"WATS address {url!r:.80}: write the address of the server, such as {EXAMPLE}")
    if parts.username is not None or parts.password is not None:
        raise BadInput(f"WATS address of {host}: it contains a user name or a password; pass the token with token=...")
    if parts.query or parts.fragment or not url.isascii() or any(char.isspace() for char in url):
        raise BadInput(f"WATS address {url!r:.80}: write it without a query, such as {EXAMPLE}")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the server is on this machine, where no proxy leads."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_token(token: object) -> Secret[str]:
    """The token as WATS gives it. No error shows any part of it."""
    text = token.reveal() if isinstance(token, Secret) else token
    if not isinstance(text, str) or not text:
        raise BadInput(
            "the token of WATS is missing: make one in its control panel, and pass it with token=Secret(...)"
        )
    if len(text) > MAX_TOKEN_CHARS or not text.isascii() or not text.isprintable() or " " in text:
        raise BadInput(
            "the token of WATS has characters that a header cannot carry: pass the token alone, without 'Basic'"
        )
    return Secret(text)

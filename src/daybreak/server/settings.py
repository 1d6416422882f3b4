"""What a server allows, and how much of it."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct


class ServerSettings(Struct, frozen=True, kw_only=True):
    """How a server checks and limits requests. The defaults fit an application that is mounted in another one.

    `hosts` are the names that a Host header may have, in lower case and without a port; None allows every name.
    `anonymous_reads` lets callers without a token read: only for a server that no other machine can reach.
    `secure_cookies` is for servers that browsers reach by https. `max_body` is in bytes. Each caller may send
    `requests_per_second` on average, and up to `request_burst` at once. `max_answers` bounds how many answers to
    `POST /jobs` one server keeps under idempotency keys in 24 hours. `max_listeners` bounds the clients of
    the live feed."""

    hosts: frozenset[str] | None = None
    anonymous_reads: bool = False
    secure_cookies: bool = False
    max_body: int = 1024 * 1024
    requests_per_second: float = 1000.0
    request_burst: int = 2000
    session_for: timedelta = timedelta(hours=12)
    sign_in_for: timedelta = timedelta(hours=1)
    max_answers: int = 1_000_000
    metric_names: tuple[str, ...] = ()
    max_listeners: int = 1000

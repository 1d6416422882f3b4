"""Translates errors of the server and the network into errors that say what to do. None contains a password."""

from __future__ import annotations

import re

from daybreak.core.errors import (
    BadInput,
    DaybreakError,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    StoreUnsuitable,
)
from daybreak.stores.postgres.driver import psycopg

RETRYABLE = frozenset({
    "40001",  # serialization failure
    "40P01",  # deadlock detected
    "23505",  # unique violation: another transaction took the name after this one looked; the next attempt sees it
    "55P03",  # lock timeout
    "DBQ01",  # raised by the SQL function `exchange`
})  # fmt: skip


class ConnectionCut(StoreUnavailable):
    """The server accepted the connection and then dropped it before it could be used."""


class NeedsResourceLock(Exception):
    """Not an error: a transaction finds out that it concerns resources, whose lock must be taken before every other. It
    starts over."""


def is_retryable(error: BaseException) -> bool:
    """Nothing was written, and a retry may succeed."""
    return isinstance(error, NeedsResourceLock) or (isinstance(error, psycopg.Error) and error.sqlstate in RETRYABLE)


def is_lost(error: BaseException) -> bool:
    """The connection, the server or its disk is at fault, not the request."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else ""
    return state is None or state.startswith(("08", "53", "57", "58"))


def connect_error(server: str, error: Exception) -> StoreError:
    """The error for a failed attempt to connect."""
    message, state = without_password(str(error)), getattr(error, "sqlstate", None)
    text = message.lower()
    if (why := _why_refused(message, state)) is not None:
        return StoreUnsuitable(f"{server} {why}")
    if state == "53300" or "too many clients" in text or "remaining connection slots" in text:
        return StoreUnavailable(
            f"{server} has no connection left: raise max_connections, use fewer workers, or put PgBouncer in front of "
            "it"
        )
    if "closed the connection unexpectedly" in text or "connection reset" in text or "eof detected" in text:
        return ConnectionCut(f"{server}: the connection was lost while it was being made; retry ({message})")
    if "timeout" in text or "timed out" in text:
        return StoreUnavailable(f"{server} does not answer: check that the server runs and can be reached from here")
    if state == "57P03" or "starting up" in text or "shutting down" in text:
        return StoreUnavailable(f"{server} is starting up or shutting down; retry in a moment")
    if "invalid connection option" in text or "invalid uri" in text or "invalid integer value" in text:
        return StoreUnsuitable(f"{server}: the URL cannot be understood ({message})")
    return StoreUnavailable(
        f"{server} cannot be reached: check that the server runs and that the URL is right ({message})"
    )


def _why_refused(message: str, state: str | None) -> str | None:
    """Why a reachable server refuses the connection; None if it does not. Most errors while connecting have no code
    (SQLSTATE), only a text."""
    if match := re.search(r'password authentication failed for user "([^"]*)"', message):
        return f'refuses this password for user "{match[1]}": check both in the URL, PGPASSWORD or the password file'
    if "no password supplied" in message:
        return "asks for a password and was given none: put it into the URL, PGPASSWORD or the password file"
    if match := re.search(r'role "([^"]*)" does not exist', message):
        return f'knows no user "{match[1]}": check the user in the URL, or create it (CREATE ROLE ... LOGIN)'
    if match := re.search(r'database "([^"]*)" does not exist', message):
        return f'has no database "{match[1]}": it does not exist; create it (createdb), or correct the URL'
    if match := re.search(r'permission denied for database "([^"]*)"', message):
        return f'does not let this user into database "{match[1]}": grant CONNECT on it, or check the user in the URL'
    if "no pg_hba.conf entry" in message:
        return f"does not let this user in from here: its pg_hba.conf has no entry that permits it ({message})"
    if state in ("28P01", "28000") or "authentication failed" in message or "is not permitted to log in" in message:
        return f"refuses this user: check user and password in the URL ({message})"
    if state == "3D000":
        return f"has no such database: create it (createdb), or correct the URL ({message})"
    return None


def unsent_error(server: str) -> StoreUnavailable:
    """The error for a caller whose patience ended before there was a connection."""
    return StoreUnavailable(f"{server} cannot be reached: no connection in time, so nothing was sent; retry later")


def call_error(server: str, error: Exception, *, sent: bool, lost: bool, late: float | None = None) -> Exception:
    """The error for a failed call. `lost`: the connection is lost; `sent`: the call may have been committed; `late`: it
    timed out after so many seconds."""
    if isinstance(error, DaybreakError) or not isinstance(error, psycopg.Error):
        return error
    message, state = without_password(str(error)), error.sqlstate or ""
    if lost and late is not None:
        if sent:
            return OutcomeUnknown(
                f"{server}: no answer within {late:.3g} s, so this may or may not have happened; retry, which is safe"
            )
        return StoreUnavailable(f"{server}: no answer within {late:.3g} s, nothing was written; retry")
    if lost:
        if sent:
            return OutcomeUnknown(
                f"{server}: the connection was lost before the answer came, so this may or may not have happened; "
                f"retry, which is safe ({message})"
            )
        return StoreUnavailable(f"{server}: the connection was lost, nothing was written; retry ({message})")
    match state[:2], state:
        case _, "53200":
            return StoreUnavailable(
                f"{server} has no memory left for this now, nothing was written; retry. If that happens often, raise "
                f"max_locks_per_transaction, or submit fewer jobs at once ({message})"
            )
        case _, "53100":
            return StoreFull(f"{server} has no space left, nothing was written; free some space and retry")
        case _, "25006":
            return StoreReadOnly(f"{server} is a standby or read-only: use the URL of the primary server")
        case _, "42501":
            return StoreReadOnly(
                f"{server}: this user lacks a permission; grant it the rights on the schema ({message})"
            )
        case _, "42P01" | "42883" | "3F000":
            return StoreUnavailable(f"{server}: the tables of the store do not exist; open the store again ({message})")
        case "22", _:
            return BadInput(f"{server} cannot store this value: {message}")
        case (("53" | "57" | "58" | "40" | "55"), _):
            return StoreUnavailable(f"{server} could not do this now, nothing was written; retry ({message})")
        case "XX", _:
            return StoreCorrupt(f"{server} is damaged ({message}): check the server's log and restore from a backup")
        case _ if isinstance(error, psycopg.DataError):
            return BadInput(f"{server} cannot store this value: {message}")
        case _:
            return StoreError(f"{server}: PostgreSQL reported an error ({message})")


def too_new(server: str, version: int, known: int) -> StoreTooNew:
    return StoreTooNew(
        f"{server} was written by a newer Daybreak (schema {version}, this one knows {known}): "
        "upgrade this installation; nothing was changed"
    )


def without_password(text: str) -> str:
    """The message of the server or libpq in one line, without passwords. address.py refuses a URL of which libpq might
    print a part of the password; this removes what looks like one all the same."""
    text = re.sub(r"(?i)(password\s*=\s*)('[^']*'|\S+)", r"\1***", text)
    text = re.sub(r"(://[^/\s:@]*):\S*@", r"\1:***@", text)
    text = re.sub(r"(?i)(percent-encoded (?:token|value): )\".*\"", r'\1"***"', text)
    text = re.sub(r"(host(?: name)? ['\"])[^'\"]*@", r"\1***@", text)
    return " ".join(text.split())

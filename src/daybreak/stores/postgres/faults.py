"""Faults of the server and of the way to it, as errors that say what to do. No password is ever part of one."""

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

RETRIED = frozenset({
    "40001",  # serialization failure
    "40P01",  # deadlock detected
    "23505",  # a name that someone else took between the look and the write: the next look sees it
    "55P03",  # a lock that was not to be had in time
    "DBQ01",  # see exchange_2.sql
})  # fmt: skip


class Cut(StoreUnavailable):
    """The server took the connection and then dropped it, before it could be used."""


class MustBeAlone(Exception):
    """No error: a transaction found only now that it is about resources, whose lock comes before every other. It begins
    again."""


def is_passing(error: BaseException) -> bool:
    """Nothing was written, and to ask again may help."""
    return isinstance(error, MustBeAlone) or (isinstance(error, psycopg.Error) and error.sqlstate in RETRIED)


def is_lost(error: BaseException) -> bool:
    """The connection, the server or its disk is at fault, not what was asked."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else ""
    return state is None or state.startswith(("08", "53", "57", "58"))


def connecting(place: str, error: Exception) -> StoreError:
    """Why there is no connection."""
    told, state = without_password(str(error)), getattr(error, "sqlstate", None)
    text = told.lower()
    if (why := _why_refused(told, state)) is not None:
        return StoreUnsuitable(f"{place} {why}")
    if state == "53300" or "too many clients" in text or "remaining connection slots" in text:
        return StoreUnavailable(
            f"{place} has no connection left: raise max_connections, use fewer workers, or put PgBouncer before it"
        )
    if "closed the connection unexpectedly" in text or "connection reset" in text or "eof detected" in text:
        return Cut(f"{place}: the connection was lost while it was made; ask again ({told})")
    if "timeout" in text or "timed out" in text:
        return StoreUnavailable(f"{place} does not answer: check that the server runs and can be reached from here")
    if state == "57P03" or "starting up" in text or "shutting down" in text:
        return StoreUnavailable(f"{place} is starting up or shutting down; ask again in a moment")
    if "invalid connection option" in text or "invalid uri" in text or "invalid integer value" in text:
        return StoreUnsuitable(f"{place}: the URL cannot be understood ({told})")
    return StoreUnavailable(f"{place} cannot be reached: check that the server runs and where ({told})")


def _why_refused(told: str, state: str | None) -> str | None:
    """What the server, which can be reached, does not accept; None if that is not the trouble. Most of what goes wrong
    while connecting has no code (SQLSTATE), only a text."""
    if found := re.search(r'password authentication failed for user "([^"]*)"', told):
        return f'refuses this password for user "{found[1]}": check both in the URL, PGPASSWORD or the password file'
    if "no password supplied" in told:
        return "asks for a password and was given none: put it into the URL, PGPASSWORD or the password file"
    if found := re.search(r'role "([^"]*)" does not exist', told):
        return f'knows no user "{found[1]}": check the user in the URL, or create it (CREATE ROLE ... LOGIN)'
    if found := re.search(r'database "([^"]*)" does not exist', told):
        return f'has no database "{found[1]}": it does not exist; create it (createdb), or correct the URL'
    if found := re.search(r'permission denied for database "([^"]*)"', told):
        return f'does not let this user into database "{found[1]}": grant CONNECT on it, or check the user in the URL'
    if "no pg_hba.conf entry" in told:
        return f"does not let this user in from here: its pg_hba.conf has no line that permits it ({told})"
    if state in ("28P01", "28000") or "authentication failed" in told or "is not permitted to log in" in told:
        return f"refuses this user: check user and password in the URL ({told})"
    if state == "3D000":
        return f"has no such database: create it (createdb), or correct the URL ({told})"
    return None


def unsent(place: str) -> StoreUnavailable:
    """The caller's patience ended before there was a connection to ask it over."""
    return StoreUnavailable(f"{place} cannot be reached: no connection in time, so nothing was sent; ask again later")


def working(place: str, error: Exception, *, sent: bool, lost: bool, late: float | None = None) -> Exception:
    """What went wrong with a question: `lost` is the connection, `sent` is what may have been committed. `late`: it was
    given up after so many seconds."""
    if isinstance(error, DaybreakError) or not isinstance(error, psycopg.Error):
        return error
    told, state = without_password(str(error)), error.sqlstate or ""
    if lost and late is not None:
        if sent:
            return OutcomeUnknown(
                f"{place}: no answer within {late:.3g} s, so this may or may not have happened; ask again, to "
                "repeat is safe"
            )
        return StoreUnavailable(f"{place}: no answer within {late:.3g} s, nothing of this was written; ask again")
    if lost:
        if sent:
            return OutcomeUnknown(
                f"{place}: the connection was lost before the answer came, so this may or may not have happened; "
                f"ask again, to repeat is safe ({told})"
            )
        return StoreUnavailable(f"{place}: the connection was lost, nothing of this was written; ask again ({told})")
    match state[:2], state:
        case _, "53100" | "53200":
            return StoreFull(f"{place} has no space left, nothing of this was written; free some and ask again")
        case _, "25006":
            return StoreReadOnly(f"{place} is a standby or read-only: use the URL of the primary server")
        case _, "42501":
            return StoreReadOnly(f"{place}: this user may not do that; grant it the rights on the schema ({told})")
        case _, "42P01" | "42883" | "3F000":
            return StoreUnavailable(f"{place}: the tables of the store are not there; open the store anew ({told})")
        case "22", _:
            return BadInput(f"{place} cannot keep this value: {told}")
        case (("53" | "57" | "58" | "40" | "55"), _):
            return StoreUnavailable(f"{place} could not do it now, nothing of this was written; ask again ({told})")
        case "XX", _:
            return StoreCorrupt(f"{place} is damaged ({told}): look into the server's log, restore from a backup")
        case _ if isinstance(error, psycopg.DataError):
            return BadInput(f"{place} cannot keep this value: {told}")
        case _:
            return StoreError(f"{place}: PostgreSQL could not do it ({told})")


def too_new(place: str, version: int, known: int) -> StoreTooNew:
    return StoreTooNew(
        f"{place} was written by a newer Daybreak (schema {version}, this one knows {known}): "
        "upgrade this installation; nothing was changed"
    )


def without_password(text: str) -> str:
    """One line of what the server or libpq said. A URL of which libpq might tell a piece of the password is refused
    before (place.py); what looks like one goes here all the same."""
    text = re.sub(r"(?i)(password\s*=\s*)('[^']*'|\S+)", r"\1***", text)
    text = re.sub(r"(://[^/\s:@]*):\S*@", r"\1:***@", text)
    text = re.sub(r"(?i)(percent-encoded (?:token|value): )\".*\"", r'\1"***"', text)
    text = re.sub(r"(host(?: name)? ['\"])[^'\"]*@", r"\1***@", text)
    return " ".join(text.split())

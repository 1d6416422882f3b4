"""A new session with the server: how it is opened, and what it leads to."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute

from daybreak.core.errors import StoreUnsuitable
from daybreak.stores.postgres import arrays, faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.clock import SERVER_TIME
from daybreak.stores.postgres.driver import psycopg
from daybreak.system import patience

MIN_CONNECT_TIMEOUT: Final = 2  # seconds; libpq takes whole seconds only, and none shorter

# With these libpq gives up on a network that drops every packet. The URL overrides them.
DEFAULT_PARAMS: Final = {
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "daybreak",
}
# These override the URL and the environment: texts are packed as UTF-8, and the server converts them.
FIXED_PARAMS: Final = {"client_encoding": "UTF8", "autocommit": True}
READ_COMMITTED: Final = "ISOLATION LEVEL READ COMMITTED"
IDENTIFY: Final = f"SELECT pg_backend_pid(), current_setting('default_transaction_isolation'), ({SERVER_TIME})"

Answer = list[Any] | psycopg.Error  # the rows of one statement, or why it failed


def connect(address: Address, **more: Any) -> psycopg.Connection[Any]:
    """Open a connection, or raise an error that says what is wrong."""
    try:
        url_params = psycopg.conninfo.conninfo_to_dict(address.conninfo)
        if "connect_timeout" in url_params:  # libpq's own option: keep it
            db = _connect_patiently({**DEFAULT_PARAMS, **url_params, **FIXED_PARAMS, **more}, math.inf)
        else:
            db = _connect_within_limit(address, {**DEFAULT_PARAMS, **url_params, **FIXED_PARAMS, **more})
    except psycopg.Error as error:
        if "conversion between" in str(error):
            raise StoreUnsuitable(
                f"{address.name}: the encoding of this database cannot be converted to UTF8: use a database created "
                "with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            ) from None
        raise faults.connect_error(address.name, error) from None
    arrays.register(db.adapters)
    return db


class ServerInfo(NamedTuple):
    """What a new connection leads to. `is_direct`: there is no pooler in between; `is_read_committed`: transactions are
    READ COMMITTED even if they do not ask for it. `time` is the server's."""

    is_direct: bool
    is_read_committed: bool
    time: int


def identify_server(db: psycopg.Connection[Any], also: Sequence[str] = ()) -> tuple[ServerInfo, list[Answer]]:
    """What the connection leads to, and the answers to `also`, which are sent in the same round trip."""
    identity, *answers = query_together(db, (IDENTIFY, *also))
    if isinstance(identity, psycopg.Error):
        raise identity
    [(pid, level, time)] = identity
    is_direct, is_read_committed = pid == db.info.backend_pid, level == "read committed"
    if is_direct and not is_read_committed:
        db.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION {READ_COMMITTED}")
    return ServerInfo(is_direct, is_direct or is_read_committed, time), answers


def query_together(db: psycopg.Connection[Any], statements: Sequence[str]) -> list[Answer]:
    """Run statements without parameters in one round trip and one transaction. If one fails, nothing is written; its
    answer is the error, and the statements after it have no answer, because they were not run."""
    db.pgconn.send_query("\n;\n".join(statements).encode())
    answers: list[Answer] = []
    for result in db.wait(execute(db.pgconn)):
        if result.status in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK):
            transformer = Transformer(db)
            transformer.set_pgresult(result)
            answers.append(transformer.load_rows(0, result.ntuples, tuple))
        else:
            answers.append(error_from_result(result, db.info.encoding))
    return answers


def _connect_within_limit(address: Address, params: dict[str, Any]) -> psycopg.Connection[Any]:
    limit, base = address.connect_limit, address.connect_within
    within, began = max(math.ceil(limit.seconds(base)), MIN_CONNECT_TIMEOUT), monotonic()
    try:
        db = _connect_patiently({**params, "connect_timeout": within}, within)
    except _PatienceOver:  # before the limit, so it tells nothing about the limit
        raise
    except psycopg.errors.ConnectionTimeout:
        limit.took(base, within, late=True)
        raise
    # libpq grants this time to each host of the URL. If one of them timed out, the sum says nothing about the others.
    if (took := monotonic() - began) <= within:
        limit.took(base, took)
    return db


class _PatienceOver(psycopg.errors.ConnectionTimeout):
    """The caller's patience ended before the connection timeout."""


def _connect_patiently(params: dict[str, Any], longest: float) -> psycopg.Connection[Any]:
    """Connect, but not beyond the caller's patience. libpq cannot be interrupted while it connects, for up to `longest`
    seconds. Where that is too long it connects in a thread, which is abandoned when the patience ends."""
    left = patience.left()
    if longest <= left:
        return psycopg.connect(**params)
    outcomes: list[psycopg.Connection[Any] | psycopg.Error] = []
    lock, done = threading.Lock(), threading.Event()
    is_abandoned = False

    def run() -> None:
        outcome: psycopg.Connection[Any] | psycopg.Error
        try:
            outcome = psycopg.connect(**params)
        except psycopg.Error as error:
            outcome = error
        with lock:
            outcomes.append(outcome)
            if is_abandoned and not isinstance(outcome, psycopg.Error):
                outcome.close()
        done.set()

    threading.Thread(target=run, name="daybreak-pg-connect", daemon=True).start()
    try:
        done.wait(max(left, 0))
    finally:
        with lock:
            is_abandoned = not outcomes
    if is_abandoned:
        raise _PatienceOver("connection timeout expired")
    [outcome] = outcomes
    if isinstance(outcome, psycopg.Error):
        raise outcome
    return outcome

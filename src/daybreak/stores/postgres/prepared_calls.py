"""The most frequent calls, in libpq's own terms: prepared once per connection, packed parameters, binary results.

psycopg works out the types for every query again, which takes as long as many queries themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from daybreak.stores.postgres.driver import psycopg

Packed = Sequence[bytes | None]

_ERRORS: Final = frozenset({
    psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.NONFATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE,
})  # fmt: skip


class Call(NamedTuple):
    """A statement that casts each parameter, so that its type need not be given."""

    name: bytes
    statement: bytes


def prepare_call(name: str, statement: str) -> Call:
    numbers = count(1)
    return Call(f"daybreak_{name}".encode(), re.sub("%b", lambda _: f"${next(numbers)}", statement).encode())


class Calls:
    """The prepared calls of one connection. Only `prepare` waits for the server."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db
        self._transformer = Transformer(db)
        self._prepared: set[bytes] = set()

    def prepare(self, call: Call) -> None:
        if call.name not in self._prepared:
            self.rows([self._db.pgconn.prepare(call.name, call.statement)])
            self._prepared.add(call.name)

    def forget(self) -> None:
        self._prepared.clear()

    def send(self, call: Call, params: Packed) -> None:
        self._db.pgconn.send_query_prepared(call.name, params, [1] * len(params), result_format=1)

    def send_unprepared(self, call: Call, params: Packed) -> None:
        self._db.pgconn.send_query_params(call.statement, params, None, [1] * len(params), result_format=1)

    def rows(self, results: Sequence[Any]) -> list[Any]:
        for result in results:
            if result.status in _ERRORS:
                raise error_from_result(result, self._db.info.encoding)
        [result] = results
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

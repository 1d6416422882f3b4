"""Calls by which programs live, as libpq takes them: prepared once a connection, parameters packed, answers in binary.

The driver's own way works out for every question anew what it is about, which takes as long as many a question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from daybreak.stores.postgres.driver import psycopg

Packed = Sequence[bytes | None]

_FATAL: Final = frozenset({
    psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.NONFATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE,
})  # fmt: skip


class Call(NamedTuple):
    """A statement that says the type of every parameter itself."""

    name: bytes
    statement: bytes


def call_of(name: str, statement: str) -> Call:
    numbers = count(1)
    return Call(f"daybreak_{name}".encode(), re.sub("%b", lambda _: f"${next(numbers)}", statement).encode())


class Calls:
    """Of one connection; nothing here waits for the server but `prepare`."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db
        self._loading = Transformer(db)
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
            if result.status in _FATAL:
                raise error_from_result(result, self._db.info.encoding)
        [result] = results
        self._loading.set_pgresult(result)
        return self._loading.load_rows(0, result.ntuples, tuple)

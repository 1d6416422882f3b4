"""The most frequent calls, in libpq's own terms: prepared once per connection, packed parameters, binary results.

psycopg works out the types for every query again, which takes as long as many queries themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send

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
    """The prepared calls of one connection. `send` and `rows` do not wait for the server."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db
        self._transformer = Transformer(db)
        self._prepared: set[bytes] = set()

    def run(self, call: Call, params: Packed) -> list[Any]:
        """Send the call and wait for its rows; prepare it first, if that was not done yet."""
        if call.name not in self._prepared:
            if psycopg.Pipeline.is_supported():
                return self._prepare_and_run(call, params)
            self.prepare(call)
        self.send(call, params)
        return self.rows(self._db.wait(execute(self._db.pgconn)))

    def run_unprepared(self, call: Call, params: Packed) -> list[Any]:
        self._db.pgconn.send_query_params(call.statement, params, None, [1] * len(params), result_format=1)
        return self.rows(self._db.wait(execute(self._db.pgconn)))

    def _prepare_and_run(self, call: Call, params: Packed) -> list[Any]:
        """Both in one round trip, in libpq's pipeline mode."""
        pg = self._db.pgconn
        try:
            pg.enter_pipeline_mode()
            pg.send_prepare(call.name, call.statement)
            self.send(call, params)
            pg.pipeline_sync()
            self._db.wait(send(pg))
            preparation, results, _ = [self._db.wait(fetch_many(pg)) for _ in range(3)]
            pg.exit_pipeline_mode()
        except BaseException:
            self._db.close()  # its state is unknown
            raise
        self._check(preparation)
        self._prepared.add(call.name)
        return self.rows(results)

    def prepare(self, call: Call) -> None:
        if call.name not in self._prepared:
            self._check([self._db.pgconn.prepare(call.name, call.statement)])
            self._prepared.add(call.name)

    def forget(self) -> None:
        self._prepared.clear()

    def send(self, call: Call, params: Packed) -> None:
        self._db.pgconn.send_query_prepared(call.name, params, [1] * len(params), result_format=1)

    def rows(self, results: Sequence[Any]) -> list[Any]:
        self._check(results)
        [result] = results
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _check(self, results: Sequence[Any]) -> None:
        for result in results:
            if result.status in _ERRORS:
                raise error_from_result(result, self._db.info.encoding)

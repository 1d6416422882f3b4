"""Group commit for callers without an event loop: one connection, and one of the waiting threads inserts for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import Inserted
from daybreak.stores.group_insert import GroupInsert
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.connection import Connection, closed_error
from daybreak.stores.postgres.connection_threads import run_with_retries
from daybreak.stores.postgres.engine import Engine

MAX_JOBS_PER_COMMIT: Final = 2000


class BlockingInsert:
    """`insert` for threads; calls that arrive at the same time share one commit."""

    def __init__(
        self,
        address: Address,
        take_connection: Callable[[], Connection],
        engine: Callable[[Connection], Engine],
    ) -> None:
        self._address = address
        self._take_connection = take_connection
        self._connection: Connection | None = None
        self._engine = engine
        self._group = GroupInsert(
            self._insert, most=MAX_JOBS_PER_COMMIT, interrupted=self._interrupted, late=self._late
        )
        self._is_closed = False

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        return self._group.insert(specs)

    def _insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        if self._is_closed:
            raise closed_error(self._address)
        if self._connection is None:
            self._connection = self._take_connection()
        answers: list[Inserted] = run_with_retries(
            lambda connection: self._engine(connection).insert(specs, None), self._connection
        )
        return answers

    def _interrupted(self) -> BaseException:
        return OutcomeUnknown(
            f"{self._address.name}: the thread that inserted for this group was interrupted, so this "
            "may or may not have happened; retry, which is safe"
        )

    def _late(self, was_sent: bool) -> StoreUnavailable:
        if not was_sent:
            return faults.unsent_error(self._address.name)
        return OutcomeUnknown(
            f"{self._address.name}: no answer in time, so this may or may not have happened; retry, which is safe"
        )

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.abandon()
            self._connection.close()

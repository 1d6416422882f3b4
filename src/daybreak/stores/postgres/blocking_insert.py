"""Callers without a loop: a connection of their own, over which one of those who wait asks for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import Inserted
from daybreak.stores.group_insert import GroupInsert
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.connection_threads import attempt
from daybreak.stores.postgres.engine import Engine
from daybreak.stores.postgres.link import Link, refused

JOBS_PER_COMMIT: Final = 2000  # jobs in one commit


class BlockingInsert:
    def __init__(self, link: Link, engine: Callable[[Link], Engine]) -> None:
        self._link = link
        self._engine = engine
        self._turns = GroupInsert(self._insert, most=JOBS_PER_COMMIT, interrupted=self._interrupted, late=self._late)
        self._is_closed = False

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        return self._turns.insert(specs)

    def _insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        if self._is_closed:
            raise refused(self._link.place)
        answers: list[Inserted] = attempt(lambda link: self._engine(link).insert(specs, None), self._link)
        return answers

    def _interrupted(self) -> BaseException:
        return OutcomeUnknown(
            f"{self._link.place.name}: the thread that asked for this one was interrupted, so it may or may not have "
            "happened; ask again, to repeat is safe"
        )

    def _late(self, was_sent: bool) -> StoreUnavailable:
        if not was_sent:
            return faults.unsent(self._link.place.name)
        return OutcomeUnknown(
            f"{self._link.place.name}: no answer in time, so this may or may not have happened; ask again, to repeat "
            "is safe"
        )

    def close(self) -> None:
        self._is_closed = True
        self._link.leave()
        self._link.close()

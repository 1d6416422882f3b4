"""Inserts of threads that wait. Whoever finds nobody at it asks the server himself; who comes meanwhile is gathered,
and one of those asks for all of them: one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from daybreak.errors import StoreUnavailable
from daybreak.model import JobSpec
from daybreak.store import Inserted
from daybreak.stores.postgres.crew import attempt
from daybreak.stores.postgres.engine import Engine
from daybreak.stores.postgres.link import Link, refused

MOST = 2000  # jobs in one commit
GLANCE = 0.5  # seconds; where a wait cannot be interrupted by a signal, Ctrl-C is heard this late


class Asked:
    def __init__(self, specs: Sequence[JobSpec]) -> None:
        self.specs = specs
        self.answer: list[Inserted] | BaseException | None = None
        self.changed = threading.Lock()  # let go of when it is answered, or when it is its turn to lead
        self.changed.acquire()


class Together:
    def __init__(self, link: Link, engine: Callable[[Link], Engine]) -> None:
        self._link = link
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: list[Asked] = []
        self._is_led = False
        self._is_closed = False

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        mine = Asked(specs)
        with self._lock:
            if self._is_closed:
                raise refused(self._link.place)
            self._waiting.append(mine)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            self._wait(mine)
        if mine.answer is None:
            self._lead(mine)
        if isinstance(mine.answer, BaseException):
            raise mine.answer
        assert mine.answer is not None
        return mine.answer

    def _wait(self, mine: Asked) -> None:
        try:
            while not mine.changed.acquire(timeout=GLANCE):
                pass
        except BaseException:
            with self._lock:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    raise
            if mine.answer is None and mine.changed.acquire(blocking=False):
                self._pass_on()  # it had become the one to lead
            raise

    def _lead(self, mine: Asked) -> None:
        group = self._gather(mine)
        try:
            self._ask(group)
        except BaseException as trouble:
            for asked in group:
                if asked.answer is None:
                    asked.answer = trouble
            if not isinstance(trouble, Exception):
                raise
        finally:
            self._pass_on()
            for asked in group:
                if asked is not mine:
                    asked.changed.release()

    def _gather(self, mine: Asked) -> list[Asked]:
        with self._lock:
            group, weight = [mine], len(mine.specs)
            self._waiting.remove(mine)
            while self._waiting and weight + len(self._waiting[0].specs) <= MOST:
                weight += len(self._waiting[0].specs)
                group.append(self._waiting.pop(0))
        return group

    def _ask(self, group: list[Asked]) -> None:
        try:
            answers = iter(self._insert([spec for asked in group for spec in asked.specs]))
        except StoreUnavailable:
            raise
        except Exception:
            if len(group) == 1:
                raise
            for asked in group:  # nothing was written; one that cannot be kept sinks itself alone
                asked.answer = self._alone(asked)
        else:
            for asked in group:
                asked.answer = [next(answers) for _ in asked.specs]

    def _alone(self, asked: Asked) -> list[Inserted] | BaseException:
        try:
            return self._insert(asked.specs)
        except Exception as trouble:  # noqa: BLE001 - handed to whoever asked
            return trouble

    def _insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        answers: list[Inserted] = attempt(lambda link: self._engine(link).insert(specs, None), self._link)
        return answers

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting[0].changed.release()
            else:
                self._is_led = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._link.close()

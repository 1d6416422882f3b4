"""Ctrl-C in `insert_now`, at any point: the interrupted thread leaves, and no other thread waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time

import pytest

from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import jobs_of, spec

PATIENCE = 20.0  # seconds


class Thread:
    """A thread that submits one job."""

    def __init__(self, store) -> None:
        self.job = spec()
        self.answers = []
        self._thread = threading.Thread(target=lambda: self.answers.extend(store.insert_now([self.job])), daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it waits for ever"
        assert [answer.job for answer in self.answers] == [self.job.id]


class Scene:
    """A store whose server is frozen, and threads that submit to it. The tests read their state and never guess by
    time."""

    def __init__(self, store, server) -> None:
        self.store = store
        self.server = server
        self.sending = threading.Event()
        self.group = store._blocking_client._group
        self._real_insert, self.group._insert_group = self.group._insert_group, self._insert_group

    def _insert_group(self, group) -> None:
        self.sending.set()
        self._real_insert(group)

    def until_waiting(self, count: int) -> None:
        until = time.monotonic() + PATIENCE
        while len(self.group._waiting) < count or self.group._lock.locked():
            assert time.monotonic() < until
            time.sleep(0.001)

    def submit(self) -> Thread:
        return Thread(self.store)


@pytest.fixture
def scene(freezing):
    with asyncio.Runner() as runner:
        store = runner.run(RedisStore(freezing.url).open())
        store.insert_now([spec(queue="first")])  # so that it is connected
        freezing.freeze()
        scene = Scene(store, freezing)
        scene.jobs = lambda: {job.id for job in runner.run(jobs_of(store)) if job.spec.queue != "first"}
        try:
            yield scene
        finally:
            freezing.thaw()
            runner.run(store.close())


@contextlib.contextmanager
def ctrl_c(when, first=lambda: None):
    """Ctrl-C in the main thread as soon as `when` returns; its handler does something first."""
    ready = threading.Thread(target=lambda: (when(), signal.pthread_kill(main, signal.SIGINT)))
    main = threading.main_thread().ident

    def handle(*_) -> None:
        first()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        ready.start()
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
        ready.join(PATIENCE)


def test_an_interrupted_thread_that_waits_in_the_group(scene):
    leader, behind = scene.submit(), []
    assert scene.sending.wait(PATIENCE)

    def when() -> None:
        scene.until_waiting(1)
        behind.append(scene.submit())
        scene.until_waiting(2)

    with ctrl_c(when):
        scene.store.insert_now([spec()])
    scene.server.thaw()
    threads = [leader, *behind, scene.submit()]
    for thread in threads:
        thread.join()
    assert scene.jobs() == {thread.job.id for thread in threads}


def test_an_interrupted_thread_that_has_just_become_the_leader(scene):
    leader = scene.submit()
    assert scene.sending.wait(PATIENCE)

    def first() -> None:
        scene.server.thaw()
        leader.join()  # and has passed on the lead

    with ctrl_c(lambda: scene.until_waiting(1), first):
        scene.store.insert_now([spec()])
    later = scene.submit()
    later.join()
    assert scene.jobs() == {leader.job.id, later.job.id}


def test_an_interrupted_leader(scene):
    behind = []

    def when() -> None:
        assert scene.sending.wait(PATIENCE)
        behind.append(scene.submit())
        scene.until_waiting(1)

    with ctrl_c(when):
        scene.store.insert_now([spec()])
    scene.server.thaw()
    for thread in [*behind, scene.submit()]:
        thread.join()

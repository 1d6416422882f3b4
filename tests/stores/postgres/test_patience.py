"""A stopped server: calls end with the caller's patience, and a late answer is never taken for that of another call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from datetime import timedelta

import pytest
from postgres_private import children_of, private_server

from daybreak.client.client import Client
from daybreak.core.errors import OutcomeUnknown, StoreUnavailable, StoreUnsuitable
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.faults import connect_error
from daybreak.system import patience
from daybreak.testing.contract.builders import spec

SHORT = timedelta(milliseconds=500)
FAR = 20  # seconds; less than the answer timeout of 60 s


class Stopping:
    def __init__(self, server) -> None:
        self.url = server.url
        self._server = server

    def _tell(self, number: int) -> None:
        leader = self._server._process.pid
        for pid in (leader, *children_of(leader)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def freeze(self) -> None:
        self._tell(signal.SIGSTOP)

    def thaw(self) -> None:
        self._tell(signal.SIGCONT)


@pytest.fixture(scope="module")
def freezing():
    with private_server() as server:
        stopping = Stopping(server)
        yield stopping
        stopping.thaw()


async def test_every_call_ends_with_the_callers_patience(freezing):
    async with PostgresStore(freezing.url) as store:
        client = Client(store, patience=SHORT)
        job = await Client(store).submit("t")
        try:
            freezing.freeze()
            began = time.monotonic()
            with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.\d+ s"):
                await client.submit("t")
            for ask in (lambda: client.cancel(job), client.find, lambda: client.get(job)):
                with pytest.raises(StoreUnavailable):
                    await ask()
            assert time.monotonic() - began < FAR
        finally:
            freezing.thaw()
        assert (await Client(store).get(job)).id == job


async def test_a_thread_gives_up_as_well_and_goes_on_at_once_afterwards(freezing):
    async with PostgresStore(freezing.url) as store:
        await asyncio.to_thread(store.insert_now, [spec()])

        def insert():
            with patience.within(SHORT.total_seconds()):
                return store.insert_now([spec()])

        try:
            freezing.freeze()
            with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.\d+ s"):
                await asyncio.to_thread(insert)
            with pytest.raises(StoreUnavailable) as raised:
                await asyncio.to_thread(insert)
            assert not isinstance(raised.value, OutcomeUnknown), "there was no connection to send it over"
        finally:
            freezing.thaw()
        late = spec()
        [answer] = await asyncio.to_thread(store.insert_now, [late])
        assert answer.job == late.id


async def test_a_call_that_finds_all_connections_busy_reports_that_nothing_was_sent(store):
    free = threading.Event()
    busy = [store._opened._threads.submit(lambda _: free.wait(60)) for _ in range(store.address.connections)]
    with pytest.raises(StoreUnavailable, match="nothing was sent"):
        await Client(store, patience=SHORT).get("a job")
    free.set()
    await asyncio.gather(*busy)


async def test_opening_is_repeated_when_its_answer_is_cut(proxy):
    proxy.cut_replies.set()
    opening = asyncio.create_task(PostgresStore(proxy.url).open())
    while proxy.cut < 2:  # noqa: ASYNC110 - what is counted rings no bell
        await asyncio.sleep(0.01)
    proxy.cut_replies.clear()
    await (await opening).close()


@pytest.mark.parametrize(
    ("server_message", "says"),
    [
        ('FATAL: password authentication failed for user "ann"', 'refuses this password for user "ann"'),
        ("fe_sendauth: no password supplied", "asks for a password and was given none"),
        ('FATAL: role "ann" does not exist', 'knows no user "ann"'),
        ('FATAL: database "jobs" does not exist', 'has no database "jobs"'),
        ('FATAL: no pg_hba.conf entry for host "10.0.0.1"', "does not let this user in from here"),
    ],
)
def test_a_server_that_refuses_is_not_out_of_reach(server_message, says):
    error = connect_error("postgresql://db/jobs", Exception(f'connection to server at "db" failed: {server_message}'))
    assert isinstance(error, StoreUnsuitable)
    assert says in str(error)
    assert "cannot be reached" not in str(error)

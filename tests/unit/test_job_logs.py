"""Output on its way from a child to the store: within its bounds, without a deadlock, and not lost by an outage."""

from __future__ import annotations

import pytest

from daybreak.client.client import Client
from daybreak.client.job_logs import HEAD_BYTES, TAIL_BYTES, log_kind, read_logs
from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import Clock, RealWorld
from daybreak.worker.child.job_output import COLLECT_CHARS, JobOutput, Outputs
from daybreak.worker.supervisor.job_logs import PART_BYTES, JobLogs
from daybreak.worker.wire import Frames, Work, to_supervisor


class Sender:
    """Keeps what is sent. `on_send` runs in the middle of it, as a destructor may."""

    def __init__(self):
        self.sent, self.scheduled, self.on_send = [], [], lambda: None
        self.can_send = True

    def send_output(self, data):
        self.on_send()
        self.sent += Frames(to_supervisor).feed(data)

    def flush_soon(self, flush):
        self.scheduled.append(flush)


def work(args: bytes = b"{}") -> Work:
    return Work(1, "job", "t", 1, args, "default", 5, 1, 1, 1)


async def lease_in(store):
    await Client(store).submit("t")
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
    return lease


def test_a_destructor_may_print_while_output_is_sent():
    sender = Sender()
    outputs = Outputs(sender)
    job = JobOutput(outputs, work())
    sender.on_send = lambda: job.add("by a destructor\n")
    job.add("by the job\n")
    sender.on_send = lambda: None
    assert [one.data for one in sender.sent] == [b"by the job\n"]
    [flush] = sender.scheduled
    flush()
    assert [one.data for one in sender.sent] == [b"by the job\n", b"by a destructor\n"]


def test_a_line_is_sent_whole_and_much_output_is_cut_before_it_is_sent():
    sender = Sender()
    job = JobOutput(Outputs(sender), work())
    job.add("half")
    assert sender.sent == []
    sender.can_send = False
    for _ in range(COLLECT_CHARS // 1000 * 3):
        job.add("x" * 1000)
    sender.scheduled[0]()
    first, last = sender.sent
    assert (len(first.data), len(last.data)) == (HEAD_BYTES, TAIL_BYTES)
    assert last.skipped == 4 + COLLECT_CHARS // 1000 * 3000 - HEAD_BYTES - TAIL_BYTES


async def test_output_that_could_not_be_stored_is_stored_later():
    store = MemoryStore()
    lease = await lease_in(store)

    class Away(MemoryStore):
        def __init__(self):
            self.is_away = True

        async def put(self, puts, **how):
            if self.is_away:
                raise StoreUnavailable("away")
            return await store.put(puts, **how)

    away = Away()
    logs = JobLogs(away, Clock(RealWorld()), lambda: [lease])
    logs.add(lease, b"one\n", 0)
    with pytest.raises(StoreUnavailable):
        await logs.save_before_settling([lease])
    away.is_away = False
    await logs.save_before_settling([lease])
    assert (await read_logs(store, lease.job)).text == "one\n"
    logs.add(lease, b"two\n", 0)
    await logs.save_before_settling([lease])
    assert (await read_logs(store, lease.job)).text == "one\ntwo\n"


async def test_a_job_that_prints_for_ever_keeps_a_bounded_number_of_parts():
    store = MemoryStore()
    lease = await lease_in(store)
    logs = JobLogs(store, Clock(RealWorld()), lambda: [lease])
    total = 0
    for n in range(300):
        logs.add(lease, b"%06d\n" % n * 300, 0)
        total += 2100
        await logs.save_before_settling([lease])
    kept = await store.records(log_kind(lease.job))
    assert sum(len(record.value) for record in kept) <= HEAD_BYTES + TAIL_BYTES + PART_BYTES
    found = await read_logs(store, lease.job)
    assert found.skipped == total - HEAD_BYTES - TAIL_BYTES
    assert found.text.endswith("000299\n")
    assert (await read_logs(store, lease.job, after=found.next)).pieces == []


async def test_a_place_that_is_none_is_refused():
    with pytest.raises(BadInput, match="is no place in a log"):
        await read_logs(MemoryStore(), "job", after="now")

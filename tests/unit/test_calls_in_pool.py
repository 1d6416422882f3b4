"""What a supervisor makes of a batch call: who is charged when its child dies, is killed or is asked to stop. The test
plays the child: it writes the slot table and sends messages as a real one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from daybreak.core.model import Batching, Done, HandedBack, Lease, Lost, Options, TimedOut
from daybreak.store.protocol import Extended
from daybreak.system.ports import Clock, RealWorld
from daybreak.testing.contract.builders import NOON, SECOND, spec
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.supervisor.child import Child, HeldCall, HeldLease
from daybreak.worker.supervisor.pool import Pool
from daybreak.worker.supervisor.quarantine import Probation
from daybreak.worker.wire import (
    Ended,
    Exit,
    Frames,
    Progress,
    Ready,
    Recall,
    Report,
    Returned,
    Run,
    RunCall,
    Stop,
    to_child,
)

TASKS = frozenset({("work", 1)})


def lease(seq: int, *, group: int | None = 1, lost: int = 0, begun: bool = True, **options: Any) -> Lease:
    return Lease(
        seq=seq, spec=spec(task="work", batch="all", options=Options(**options)), fence=1, attempt=1 + lost, priority=5,
        worker="w", until=NOON + SECOND, lease_for=SECOND, started_at=NOON, created_at=NOON, group=group, lost=lost,
        begun=begun,
    )  # fmt: skip


@dataclass
class Played:
    """The handle of a child that the test plays, and what the supervisor has sent it."""

    slot_table: SlotTable
    sent: list[Any] = field(default_factory=list)
    listener: int | None = None
    end_as: str | None = None
    pid: int | None = None

    def __post_init__(self) -> None:
        self._frames = Frames(to_child)

    async def connect(self, on_message: Any, on_disconnect: Any) -> Played:
        self.say, self.hang_up = on_message, on_disconnect
        return self

    def write(self, data: bytes) -> None:
        messages = list(self._frames.feed(data))
        self.sent += messages
        if any(isinstance(message, Exit) for message in messages):
            self.end_as = self.end_as or "it has left"
            asyncio.get_running_loop().call_soon(self.hang_up)

    def close(self) -> None: ...

    def clean_up(self) -> None: ...

    def end(self) -> bool:
        self.end_as = self.end_as or "it was killed"
        return True

    def exit_description(self) -> str | None:
        return self.end_as

    def memory(self) -> int | None:
        return None

    # -- what the child does -------------------------------------------------------------------------------------------

    def begin(self, jobs: int, part: range) -> None:
        self.slot_table.begin_part(self.slot_table.begin(1, jobs=jobs), part)

    def next_part(self, part: range) -> None:
        self.slot_table.begin_part(0, part)

    def report(self, *seqs: int, status: Any = "done") -> None:
        self.say(Report([Ended(seq, 1, status, 0.5, b"1") for seq in seqs]))

    async def die(self, pool: Pool) -> None:
        self.end_as = "it crashed"
        self.hang_up()
        async with asyncio.timeout(10):
            while pool.children.holding:  # noqa: ASYNC110 - it is removed in a task of its own
                await asyncio.sleep(0.001)


class Stage:
    def __init__(self) -> None:
        self.played: list[Played] = []
        self.pool = Pool(
            is_async=False, tasks=TASKS, children=1, slots=1, start=self._start, settings=WorkerSettings(),
            probation=Probation({}), clock=Clock(RealWorld()), batches={("work", 1): Batching(size=8)},
        )  # fmt: skip
        self.pool.children.closing = False

    def _start(self, slots: int) -> Any:
        if self.played:
            raise OSError("one child is enough")
        self.played.append(Played(SlotTable(slots)))
        return self.played[-1]

    @property
    def child(self) -> Played:
        return self.played[0]

    @property
    def outcomes(self) -> dict[int, Any]:
        return {one.seq: outcome for one, outcome in self.pool.ended}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.pool.children.open(made.pool)
    made.child.say(Ready(sorted(TASKS)))
    yield made
    await made.pool.children.close()


def give(stage: Stage, jobs: int, **options: Any) -> None:
    stage.pool.hand_out([lease(seq, **options) for seq in range(1, jobs + 1)])


def charged(stage: Stage) -> dict[int, str]:
    return {seq: type(outcome).__name__ for seq, outcome in sorted(stage.outcomes.items())}


# -- a call is one piece of work ---------------------------------------------------------------------------------------


async def test_a_call_goes_to_one_child_in_one_message_and_takes_one_slot(stage):
    assert stage.pool.capacity.free == 1
    give(stage, 4)
    [message] = stage.child.sent
    assert isinstance(message, RunCall)
    assert [work.seq for work in message.call] == [1, 2, 3, 4]
    assert stage.pool.capacity.free == 0
    assert len(stage.pool.leases()) == 4


async def test_all_outcomes_of_a_call_are_reported_together(stage):
    give(stage, 4)
    stage.child.begin(4, range(2))
    stage.child.report(1, 2)
    assert stage.outcomes == {}
    assert len(stage.pool.leases()) == 4, "they need heartbeats until they are settled"
    stage.child.next_part(range(2, 4))
    stage.child.report(3, 4)
    assert charged(stage) == dict.fromkeys((1, 2, 3, 4), "Done")
    assert stage.pool.held_count == 0


async def test_a_call_without_a_free_slot_goes_back_unused(stage):
    give(stage, 2)
    stage.pool.hand_out([lease(seq, group=11) for seq in (11, 12)])
    assert stage.outcomes == dict.fromkeys((11, 12), HandedBack(unused=True))


async def test_a_pool_with_batch_tasks_claims_nothing_ahead(stage):
    for _ in range(10):
        stage.pool.capacity.forecast.record("work", 0.05)
    give(stage, 1, group=None)
    stage.child.slot_table.begin(1)
    assert stage.pool.capacity.next_claim_in() is None
    assert stage.pool.capacity.room(announced=False) <= 0


async def test_progress_is_that_of_all_jobs_in_the_function(stage):
    told: list[int] = []
    stage.pool.on_progress = lambda found, _: told.append(found.seq)
    give(stage, 4)
    stage.child.begin(4, range(2))
    stage.child.report(1, 2)
    stage.child.next_part(range(2, 4))
    stage.child.say(Progress(3, 1, 0.5, ""))
    assert told == [3, 4]


# -- deaths ------------------------------------------------------------------------------------------------------------


async def die_in_the_second_half(stage: Stage) -> dict[int, str]:
    """Of four jobs two are known, and one of the other two is in the function when the child dies."""
    give(stage, 5)
    stage.child.begin(5, range(5))
    stage.child.next_part(range(2))
    stage.child.report(1, 2)
    stage.child.next_part(range(2, 4))
    await stage.child.die(stage.pool)
    return charged(stage)


RIGHT = {1: "Done", 2: "Done", 3: "Lost", 4: "Lost", 5: "HandedBack"}


async def test_a_death_charges_only_what_was_in_the_function(stage):
    assert await die_in_the_second_half(stage) == RIGHT
    assert not stage.outcomes[3].alone


async def test_the_planted_bug_whole_batch_charged_is_noticed(stage, monkeypatch):
    """The whole call counts as running, whichever part of it is in the function."""

    def all_of_it(_: Child, call: HeldCall) -> list[HeldLease]:
        return [held for held in call.members if held.ended is None]

    monkeypatch.setattr(Child, "_in_function", all_of_it)
    assert await die_in_the_second_half(stage) != RIGHT


async def test_a_job_that_was_alone_in_the_function_is_to_blame(stage):
    give(stage, 3)
    stage.child.begin(3, range(3))
    stage.child.next_part(range(1, 2))
    await stage.child.die(stage.pool)
    assert stage.outcomes[2] == Lost("it crashed", alone=True)
    assert charged(stage) == {1: "HandedBack", 2: "Lost", 3: "HandedBack"}


async def test_a_call_that_had_not_begun_goes_back_when_its_child_dies(stage):
    give(stage, 3)
    await stage.child.die(stage.pool)
    assert charged(stage) == dict.fromkeys((1, 2, 3), "HandedBack")


async def test_a_call_that_ended_without_a_report_is_charged(stage):
    give(stage, 2)
    stage.child.begin(2, range(2))
    stage.child.slot_table.end(0)
    await stage.child.die(stage.pool)
    assert charged(stage) == {1: "Lost", 2: "Lost"}


# -- suspects ----------------------------------------------------------------------------------------------------------


async def test_a_suspect_at_the_head_of_a_call_runs_without_the_others(stage):
    stage.pool._quarantine.record_crash([lease(1)])
    stage.pool.hand_out([lease(1, lost=1), lease(2), lease(3)])
    assert stage.outcomes == dict.fromkeys((2, 3), HandedBack(unused=True))
    assert [one.seq for one in stage.pool._quarantine.leases] == [1]


async def test_a_suspect_in_a_call_is_taken_out_of_it(stage):
    stage.pool._quarantine.record_crash([lease(2)])
    stage.pool.hand_out([lease(1), lease(2, lost=1), lease(3)])
    [message] = stage.child.sent
    assert [work.seq for work in message.call] == [1, 3]
    assert stage.outcomes[2].unused
    assert stage.outcomes[2].delay is not None


# -- limits and requests -----------------------------------------------------------------------------------------------


async def test_a_time_limit_counts_for_each_call_of_the_function_and_for_all_in_it(stage):
    give(stage, 4, timeout=timedelta(milliseconds=1))
    stage.child.begin(4, range(2))
    await asyncio.sleep(0.01)
    await stage.pool.check()
    await stage.pool.check()
    assert stage.child.end_as == "it was killed"
    await stage.child.die(stage.pool)
    assert charged(stage) == {1: "TimedOut", 2: "TimedOut", 3: "HandedBack", 4: "HandedBack"}
    assert isinstance(stage.outcomes[1], TimedOut)


async def test_the_longest_limit_in_the_call_counts_and_none_means_none(stage):
    short = [lease(seq, timeout=timedelta(milliseconds=1)) for seq in (1, 2)]
    stage.pool.hand_out([*short, lease(3)])
    stage.child.begin(3, range(3))
    await asyncio.sleep(0.01)
    await stage.pool.check()
    assert stage.child.end_as is None


async def test_a_job_that_is_cancelled_does_not_stop_the_others_and_all_together_do(stage):
    give(stage, 2)
    stage.child.begin(2, range(2))
    stage.pool._cancel_grace = 0.0
    stage.pool.on_heartbeat(lease(1), Extended(held=True, cancel=True))
    await asyncio.sleep(0.01)
    await stage.pool.check()
    assert stage.child.end_as is None
    stage.pool.on_heartbeat(lease(2), Extended(held=True, cancel=True))
    await asyncio.sleep(0.01)
    await stage.pool.check()
    assert stage.child.end_as == "it was killed"
    assert [message.seq for message in stage.child.sent if isinstance(message, Stop)] == [1, 2]
    await stage.child.die(stage.pool)
    assert charged(stage) == {1: "Cancelled", 2: "Cancelled"}


async def test_a_call_that_waits_in_its_child_comes_back_when_one_of_its_jobs_is_cancelled(stage):
    give(stage, 3)
    stage.pool.on_heartbeat(lease(2), Extended(held=True, cancel=True))
    assert any(isinstance(message, Recall) for message in stage.child.sent)
    stage.child.say(Returned([(1, 1), (2, 1), (3, 1)]))
    assert charged(stage) == {1: "HandedBack", 2: "Cancelled", 3: "HandedBack"}
    assert stage.pool.capacity.free == 1


async def test_an_outcome_under_a_lost_lease_is_not_reported(stage):
    give(stage, 3)
    stage.child.begin(3, range(3))
    stage.pool.on_heartbeat(lease(2), Extended(held=False))
    stage.child.report(1, 2, 3)
    assert charged(stage) == {1: "Done", 3: "Done"}
    assert isinstance(stage.outcomes[1], Done)


async def test_a_job_that_was_claimed_again_while_its_call_ran_is_told_apart(stage):
    """Its older run does not keep the call from ending, and its outcome is dropped."""
    give(stage, 2)
    stage.child.begin(2, range(2))
    stage.pool.on_heartbeat(lease(2), Extended(held=False))
    child = next(iter(stage.pool.children))
    newer = lease(2, group=None)
    newer = type(newer)(**{name: getattr(newer, name) for name in newer.__struct_fields__} | {"fence": 3})
    stage.pool._stop_older_run(newer)
    child.give([newer])
    stage.child.report(1, 2)
    assert charged(stage) == {1: "Done"}
    assert list(child.held) == [2]
    assert child.calls == {}


async def test_a_call_is_not_recalled_because_some_of_its_jobs_are_known(stage):
    give(stage, 4)
    stage.child.begin(4, range(2))
    stage.child.report(1, 2)
    stage.child.next_part(range(2, 4))
    next(iter(stage.pool.children)).reported_at -= 1
    await stage.pool.check()
    assert not any(isinstance(message, Recall) for message in stage.child.sent)


async def test_one_lease_of_a_batch_task_is_plain_work(stage):
    give(stage, 1)
    assert isinstance(stage.child.sent[0], Run)

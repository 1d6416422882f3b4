"""The parts of a worker that need no process: slot table, queue, probation, frames, failures, targets, sizes."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest

from daybreak import Daybreak
from daybreak.core.errors import BadInput, CalledDuringImport, StoreUnavailable, TargetNotFound, Transient
from daybreak.core.model import DEFAULT_OPTIONS, Done, HandedBack, JobSpec, Lease, Options
from daybreak.core.units import micros, span
from daybreak.stores.memory import MemoryStore
from daybreak.system.code_digest import source_digest
from daybreak.system.ports import Clock, RealWorld
from daybreak.tasks.import_guard import importing
from daybreak.tasks.registry import Definition, Program
from daybreak.worker.child.failures import failure_of
from daybreak.worker.child.work_queue import WorkQueue
from daybreak.worker.launcher import ChildHandle, ChildThread
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.supervisor import worker_record
from daybreak.worker.supervisor.batch_size import MAX_LIMIT, MIN_LIMIT, TARGET_SECONDS, URGENT_EXCHANGES, BatchSize
from daybreak.worker.supervisor.child import HeldLease
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult
from daybreak.worker.supervisor.orphaned_leases import MAX_DELAY, OrphanedLeases
from daybreak.worker.supervisor.outcome_signals import MIN_REMEMBERED, ReportedLeases
from daybreak.worker.supervisor.pool import Pool
from daybreak.worker.supervisor.prefetch import MAX_LATENESS, MAX_WAIT, SAMPLES, DurationForecast, PrefetchedLeases
from daybreak.worker.supervisor.quarantine import FIRST_PROBATION, PROBATION_GROWTH, Probation, probation_seconds
from daybreak.worker.target import load, target_of
from daybreak.worker.wire import (
    CheckpointSaved,
    Ended,
    Frames,
    Hello,
    Progress,
    Report,
    Returned,
    SaveCheckpoint,
    Stop,
    Work,
    frame,
    to_child,
    to_supervisor,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def lease(seq: int, lost: int = 1, priority: int = 5, options: Options = DEFAULT_OPTIONS) -> Lease:
    return Lease(
        seq=seq, spec=JobSpec(id=str(seq), task="t", options=options), fence=1, attempt=1, priority=priority,
        worker="w", until=NOON, lease_for=timedelta(seconds=7), started_at=NOON, created_at=NOON, lost=lost,
    )  # fmt: skip


def work(seq: int, priority: int = 5) -> Work:
    return Work(seq, str(seq), "t", 1, b"{}", "default", priority, 1, 3, 1)


class TestSlotTable:
    def test_shows_which_jobs_run_and_since_when(self):
        table = SlotTable(3)
        first, second = table.begin(7), table.begin(9)
        assert set(table.running()) == {7, 9}
        assert table.running()[7] <= table.running()[9]
        table.end(first)
        assert set(table.running()) == {9}
        table.end(second)
        assert table.running() == {}

    def test_a_slot_is_reused(self):
        table = SlotTable(1)
        for seq in range(1, 100):
            table.end(table.begin(seq))
        table.begin(100)
        assert set(table.running()) == {100}

    def test_a_job_that_ended_is_known_until_its_slot_is_reused(self):
        table = SlotTable(1)
        table.end(table.begin(7))
        assert table.ended() == {7}
        table.begin(8)
        assert table.ended() == set()


class TestWorkQueue:
    def test_work_comes_by_priority_then_by_arrival(self):
        queue = WorkQueue()
        queue.add([work(1), work(2)])
        queue.add([work(3, 1), work(4)])
        queue.add([work(5, 0)])
        assert [queue.pop().seq for _ in range(5)] == [5, 3, 1, 2, 4]
        assert queue.pop() is None

    def test_recalled_work_is_not_started(self):
        queue = WorkQueue()
        queue.add([work(1), work(2)])
        assert queue.pop().seq == 1
        assert queue.clear() == [(2, 1)]
        assert queue.pop() is None


class TestProbation:
    def test_one_at_a_time(self):
        probation = Probation({})
        probation.reserve(1)
        assert not probation.is_free
        probation.begin(1, 5.0)
        assert not probation.is_free
        probation.end(1)
        assert probation.is_free

    def test_one_at_a_time_in_all_pools_of_a_worker(self):
        on: dict[int, float] = {}
        one, other = Probation(on), Probation(on)
        one.reserve(1)
        assert not other.is_free
        other.end(1)  # not a job of this pool
        assert not one.is_free

    def test_a_job_that_survives_its_probation_lets_the_next_begin(self):
        probation = Probation({})
        probation.begin(1, 5.0)
        assert probation.take_survivors(4.9) == []
        assert probation.take_survivors(5.0) == [1]
        assert probation.is_free

    def test_a_reserved_probation_does_not_end_by_time(self):
        probation = Probation({})
        probation.reserve(1)
        assert probation.take_survivors(1e9) == []

    def test_a_survivor_is_reported_to_its_own_pool_only(self):
        on: dict[int, float] = {}
        one, other = Probation(on), Probation(on)
        other.begin(2, 5.0)
        assert one.take_survivors(5.0) == []
        assert other.take_survivors(5.0) == [2]

    def test_probation_begins_at_three_crashes_and_grows_with_each_further_one(self):
        assert [probation_seconds(lease(1, lost=lost)) for lost in (0, 1, 2)] == [0.0, 0.0, 0.0]
        times = [FIRST_PROBATION, FIRST_PROBATION * PROBATION_GROWTH, FIRST_PROBATION * PROBATION_GROWTH**2]
        assert [probation_seconds(lease(1, lost=lost)) for lost in (3, 4, 5)] == times
        assert probation_seconds(lease(1, lost=1000)) < float("inf")

    def test_a_job_that_allows_fewer_crashes_is_on_probation_sooner(self):
        strict = Options(deaths=1)
        assert [probation_seconds(lease(1, lost=lost, options=strict)) for lost in (0, 1, 2)] == [
            0.0,
            FIRST_PROBATION,
            FIRST_PROBATION * PROBATION_GROWTH,
        ]


class TestFrames:
    def test_any_split_of_the_stream_gives_the_same_messages(self):
        said = [Progress(1, 1, 0.5, "half"), Progress(2, 1, 1.0, "x" * 1000)]
        stream = b"".join(frame(message) for message in said)
        for size in (1, 2, 3, 7, 100, len(stream)):
            frames = Frames(to_supervisor)
            heard = [m for at in range(0, len(stream), size) for m in frames.feed(stream[at : at + size])]
            assert heard == said

    def test_both_directions_have_their_own_messages(self):
        assert list(Frames(to_child).feed(frame(Stop(3, 1, "cancel")))) == [Stop(3, 1, "cancel")]


class TestFailures:
    def test_an_error_whose_text_fails_is_still_reported(self):
        class Rude(Exception):
            def __str__(self):
                raise RuntimeError("no")

        assert "cannot be shown" in failure_of(Rude()).message

    def test_kinds_lead_from_the_class_to_its_bases(self):
        assert failure_of(ConnectionResetError("x")).kinds == (
            "ConnectionResetError",
            "ConnectionError",
            "OSError",
            "Exception",
        )

    def test_status_and_retry_after_of_a_client_library(self):
        class Response:
            status_code = 429
            headers = {"Retry-After": "7"}  # noqa: RUF012

        class HTTPError(Exception):
            response = Response()

        failure = failure_of(HTTPError("slow down"))
        assert (failure.status, failure.retry_after) == (429, timedelta(seconds=7))

    def test_retry_after_may_be_text(self):
        class Busy(Exception):
            retry_after = "3s"

        assert failure_of(Busy()).retry_after == timedelta(seconds=3)
        assert failure_of(Transient("busy", retry_after="3s")).retry_after == timedelta(seconds=3)
        unread = failure_of(Transient("busy", retry_after="soon"))
        assert (unread.kind, unread.verdict, unread.retry_after) == ("BadInput", None, None)
        Busy.retry_after = "soon"
        assert failure_of(Busy()).retry_after is None

    def test_half_a_surrogate_pair_is_escaped(self):
        assert failure_of(ValueError("\udcff")).message == "\\udcff"

    def test_a_long_message_and_a_deep_recursion_stay_bounded(self):
        def deep(n):
            return deep(n + 1)

        with pytest.raises(RecursionError) as caught:
            deep(0)
        assert len(failure_of(caught.value).traceback) < 20_000
        assert len(failure_of(ValueError("x" * 100_000)).message) < 5_000


class TestTarget:
    def test_a_file_with_one_app(self, tmp_path):
        (tmp_path / "one.py").write_text("from daybreak import Daybreak\nmine = Daybreak('memory://')\n")
        assert isinstance(load(str(tmp_path / "one.py")), Daybreak)

    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("nowhere.py", "no file"),
            ("no_such_module_x:app", "no module"),
            ("daybreak:nothing", "no 'nothing'"),
            ("daybreak:Priority", "not a Daybreak app"),
            ("", "does not name an app"),
            ("a b:app", "no module"),
            ("a..b:app", "does not name a module"),
            (".tasks:app", "does not name a module"),
            ("a\0b:app", "does not name a module"),
        ],
    )
    def test_a_target_without_an_app_raises_the_reason(self, target, says):
        with pytest.raises(TargetNotFound, match=says):
            load(target)

    def test_several_apps_must_be_named(self, tmp_path):
        (tmp_path / "two_apps.py").write_text(
            "from daybreak import Daybreak\none = Daybreak('memory://')\ntwo = Daybreak('memory://')\n"
        )
        with pytest.raises(TargetNotFound, match="several apps"):
            load(str(tmp_path / "two_apps.py"))

    def test_a_misspelt_app_gets_suggestions_the_most_similar_first(self, tmp_path):
        file = tmp_path / "many_apps.py"
        file.write_text(
            "from daybreak import Daybreak\nreports = Daybreak('memory://')\napp = Daybreak('memory://')\n"
            "same = app\nnot_one = 3\n"
        )
        with pytest.raises(TargetNotFound, match=rf"has no 'ap'; did you mean {file}:app or {file}:reports\?"):
            load(f"{file}:ap")
        with pytest.raises(TargetNotFound, match=rf"has no 'report'; did you mean {file}:reports or {file}:app\?"):
            load(f"{file}:report")
        with pytest.raises(TargetNotFound, match=rf"is not a Daybreak app, its type is int; did you mean {file}:"):
            load(f"{file}:not_one")
        with pytest.raises(TargetNotFound, match="has no 'app'; it has no Daybreak app"):
            load("daybreak.core.units:app")

    def test_an_error_in_the_users_code_is_raised_unchanged(self, tmp_path):
        (tmp_path / "broken_code.py").write_text("1 / 0\n")
        with pytest.raises(ZeroDivisionError):
            load(str(tmp_path / "broken_code.py"))
        assert "broken_code" not in sys.modules

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("PORT = int('80x')", "invalid literal"),
            ("@app.task(retry='pateint')\ndef f(): ...", "pateint"),
            ("@app.task\ndef run(): ...\n@app.task(name='run')\ndef other(): ...", "two tasks are named 'run'"),
        ],
    )
    def test_an_error_in_the_users_module_is_not_taken_for_a_bad_name(self, tmp_path, monkeypatch, line, says):
        (tmp_path / "broken_shop.py").write_text(
            f"from daybreak import Daybreak\napp = Daybreak('memory://')\n{line}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ValueError, match=says) as caught:
            load("broken_shop:app")
        assert not isinstance(caught.value, TargetNotFound)
        assert "broken_shop" not in sys.modules

    def test_an_app_in_a_function_has_no_target(self):
        assert target_of(Daybreak("memory://")) is None

    def test_submitting_during_an_import_is_refused_with_the_line(self, tmp_path):
        (tmp_path / "eager.py").write_text(
            "from daybreak import Daybreak\napp = Daybreak('memory://')\n@app.task\ndef f(): ...\nf.submit()\n"
        )
        with pytest.raises(CalledDuringImport, match=r"eager\.py:5.*__main__"):
            load(str(tmp_path / "eager.py"))

    def test_outside_an_import_nothing_is_refused(self):
        with importing():
            pass
        app = Daybreak("memory://")

        @app.task
        def f() -> None: ...

        with app:
            assert f.submit().id


@pytest.mark.parametrize(
    "settings",
    [
        {"processes": 0},
        {"async_jobs": 0},
        {"recycle_after": 0},
        {"memory_limit": 5},
        {"lease_for": timedelta(0)},
        {"grace": timedelta(seconds=-1)},
        {"queues": ("a\nb",)},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(BadInput):
        WorkerSettings(**settings).check()


def about(name: str, seen_at: datetime) -> worker_record.WorkerRecord:
    return worker_record.WorkerRecord(id=name, name=name, started_at=seen_at, seen_at=seen_at)


class AtNoon(RealWorld):
    """A world in which it is always noon, and `meanwhile` happens during a sleep."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile = meanwhile

    def wall(self) -> int:
        return micros(NOON)

    async def sleep(self, delay: timedelta) -> None:
        assert delay > 2 * about("any", NOON).lease_for, "a live worker may be silent for so long"
        await self._meanwhile()


async def test_records_of_dead_workers_are_removed_and_a_wrong_clock_removes_no_live_one():
    """`slow` still publishes its record; its clock is two days behind, or ours is ahead."""
    old = NOON - timedelta(days=2)
    async with MemoryStore() as store:
        await store.put([about("dead", old).put(), about("slow", old).put(), about("new", NOON).put()])
        await worker_record.remove_dead_workers(store, AtNoon(lambda: store.put([about("slow", old).put()])))
        assert sorted(found.name for found in await store.records(worker_record.KIND)) == ["new", "slow"]


async def test_children_that_cannot_be_started_are_started_again():
    tries = []

    def start(slots: int) -> ChildHandle:
        tries.append(slots)
        if len(tries) < 3:
            raise OSError("too many processes")
        return ChildThread(launch_hello(slots), program)

    program = Program()
    program.add(Definition(print))
    pool = Pool(
        is_async=False, tasks=program.known(), children=1, slots=1, start=start, settings=WorkerSettings(),
        probation=Probation({}), clock=Clock(RealWorld()),
    )  # fmt: skip
    await pool.children.open(pool)
    async with asyncio.timeout(20):
        await pool.children.wait_until_ready()
    await pool.children.close()
    assert len(tries) == 3


@pytest.fixture
async def pool():
    """A pool with one child, which has one slot."""
    program = Program()
    program.add(Definition(print))
    pool = Pool(
        is_async=False, tasks=program.known(), children=1, slots=1,
        start=lambda slots: ChildThread(launch_hello(slots), program),
        settings=WorkerSettings(), probation=Probation({}), clock=Clock(RealWorld()),
    )  # fmt: skip
    await pool.children.open(pool)
    async with asyncio.timeout(20):
        await pool.children.wait_until_ready()
    yield pool
    await pool.children.close()


async def test_announced_work_is_claimed_although_the_next_job_is_prefetched(pool):
    """One slot, and a job prefetched for it: another one that was announced may be more urgent."""
    [child] = pool.children
    child.held[7] = HeldLease(lease(7), None)
    pool.capacity._ends_in = lambda _: [0.001]  # its running job ends in a moment
    pool.announced = False
    rooms = []
    for announce in (False, True, True):
        pool.announced = announce
        rooms.append(pool.capacity.room(announced=pool.announced))
        pool._prefetched.add([lease(len(rooms))], 0.0)
    assert rooms == [1, 1, 0], "one for the slot, one more that was announced, and no third"
    pool.announced = False
    assert pool.capacity.room(announced=pool.announced) < 0


@pytest.mark.parametrize(("lasts", "room"), [(0.00125, 25), (0.0001, 13)])
async def test_a_child_with_one_slot_holds_more_ahead_of_jobs_that_are_not_very_short(pool, lasts, room):
    """800 jobs per second: 30 ms of work ahead, or 15."""
    [child] = pool.children
    child._rate, child._mean = 400.0, lasts
    assert child.room == room


@pytest.mark.parametrize(
    ("held", "came", "urgent"),
    [
        ([7, 7], [1, 7], True),
        ([7, 7], [7, 7], False),
        ([1, 7], [1, 7], False),
        ([], [1, 7], True),
        ([], [7, 7], False),
        ([7], [], False),
    ],
)
async def test_leases_are_urgent_if_one_goes_before_all_held_jobs(pool, held, came, urgent):
    [child] = pool.children
    for seq, priority in enumerate(held):
        child.held[seq] = HeldLease(lease(seq, priority=priority), None)
    assert pool.are_urgent([lease(seq, priority=priority) for seq, priority in enumerate(came)]) is urgent


async def test_a_child_gets_no_empty_batch_while_a_prefetched_lease_waits_for_its_mark(pool):
    [child] = pool.children
    sent = []
    child._send = sent.append
    pool._prefetched.add([msgspec.structs.replace(lease(7), fence=3, begun=False)], 0.0)
    pool._give_prefetched(child)
    assert sent == []


class TestFences:
    """A worker that was suspended may claim a job again while its older run, under an older fence, still runs."""

    @pytest.fixture
    def child(self, pool):
        [child] = pool.children
        child.held[7] = HeldLease(msgspec.structs.replace(lease(7), fence=3), None)
        return child

    async def test_the_outcome_of_an_older_run_is_not_that_of_the_new_lease(self, pool, child):
        child.on_message(Report([Ended(7, 1, "done", 0.1)]))
        assert (list(child.held), pool.ended) == ([7], [])
        child.on_message(Report([Ended(7, 3, "done", 0.1)]))
        assert not child.held
        assert [(ended.fence, type(outcome)) for ended, outcome in pool.ended] == [(3, Done)]

    async def test_work_of_an_older_lease_that_is_returned_leaves_the_new_lease_alone(self, pool, child):
        child.on_message(Returned([(7, 1)]))
        assert (list(child.held), pool.ended) == ([7], [])
        child.on_message(Returned([(7, 3)]))
        assert [(ended.fence, type(outcome)) for ended, outcome in pool.ended] == [(3, HandedBack)]

    async def test_progress_and_checkpoints_of_an_older_run_are_not_written(self, pool, child):
        written, sent = [], []
        pool.use_heartbeats(
            SimpleNamespace(
                progress=lambda lease, *_: written.append(lease.fence),
                save_checkpoint=lambda lease, *_: written.append(lease.fence),
            )
        )
        child._send = sent.append
        for fence in (1, 3):
            child.on_message(Progress(7, fence, 0.5, ""))
            child.on_message(SaveCheckpoint(7, fence, 1, b"{}"))
        assert written == [3, 3]
        assert sent == [CheckpointSaved(7, 1, held=False)], "the older run is told that its lease is lost"


class Hours(RealWorld):
    """A world whose time passes only during sleeps."""

    def __init__(self) -> None:
        self.at = 0

    def steady(self) -> int:
        return self.at

    async def sleep(self, delay: timedelta) -> None:
        self.at += span(delay)
        await asyncio.sleep(0)


class Away:
    """A lease source that cannot be reached until a certain time; then the call has claimed the leases given here."""

    def __init__(self, world: Hours, until: timedelta, taken: list[Lease]) -> None:
        self.asked: list[tuple[int, str]] = []
        self._world = world
        self._until = span(until)
        self._taken = taken

    async def exchange(self, ended, want) -> ExchangeResult:
        assert (ended, want.limit, want.repeats) == ([], 0, True)
        self.asked.append((self._world.at, want.call))
        if self._world.at < self._until:
            raise StoreUnavailable("away")
        return ExchangeResult([], self._taken)


class TestOrphanedLeases:
    def orphaned(self, world: Hours, source: Away, known: list[Lease], found: list[Lease]) -> OrphanedLeases:
        return OrphanedLeases(
            source, world, lease_for=timedelta(seconds=10), known_leases=lambda: known, on_found=found.extend
        )

    async def test_leases_that_the_pool_does_not_know_go_back(self):
        world, found = Hours(), []
        source = Away(world, timedelta(seconds=7), [lease(1), lease(2)])
        orphaned = self.orphaned(world, source, [lease(1)], found)
        orphaned.watch(ClaimRequest(frozenset(), 5, "a1"))
        await orphaned._checking
        assert {one.seq for one in found} == {2}
        assert source.asked[-1][0] <= span(MAX_DELAY)

    async def test_during_an_outage_each_call_is_checked_at_intervals_and_not_for_ever(self):
        world = Hours()
        source = Away(world, timedelta(hours=1), [])
        orphaned = self.orphaned(world, source, [], [])
        for n in range(3):
            orphaned.watch(ClaimRequest(frozenset(), 5, f"a{n}"))
        await orphaned._checking
        looks = span(MAX_DELAY) // span(timedelta(seconds=5))
        assert Counter(call for _, call in source.asked) == {"a0": looks, "a1": looks, "a2": looks}


def launch_hello(slots: int) -> Hello:
    return Hello(
        target="", imports=[], path=[], url="", shared=b"{}", slots=slots, is_async=False, commands=False,
        log_level=30, scratch="",
    )  # fmt: skip


def test_many_rows_under_one_id_are_refused():
    app = Daybreak("memory://")

    @app.task
    def f(n: int) -> None: ...

    with app, pytest.raises(BadInput, match="names one job"):
        f.using(id="x").submit_many([{"n": 1}, {"n": 2}])


class TestBatchSize:
    @staticmethod
    def after(empty: float, each: float) -> BatchSize:
        size = BatchSize()
        for items in [1, 5, 20, 80, 40, 100] * 20:
            size.record(items, empty + each * items)
        return size

    def test_an_exchange_carries_what_fits_into_its_target_time(self):
        limit = self.after(0.0005, 20e-6).limit
        assert 0.5 * TARGET_SECONDS < 0.0005 + 20e-6 * 2 * limit < 1.5 * TARGET_SECONDS

    def test_slow_commits_make_larger_exchanges(self):
        quick, slow = self.after(0.0005, 20e-6).limit, self.after(0.02, 20e-6).limit
        assert slow > 10 * quick
        assert self.after(0.0, 0.1).limit == MIN_LIMIT

    def test_contention_makes_larger_exchanges(self):
        """The time that an exchange waits for others is not a cost of its items, although more jobs end during longer
        waits."""
        chance, size = random.Random(7), BatchSize()
        for _ in range(300):
            waits = chance.choice([0.0, 0.002, 0.006, 0.012])
            items = 32 + int(waits * 8000)
            size.record(items, 0.0005 + 20e-6 * items + waits)
        assert size.limit > 2 * self.after(0.0005, 20e-6).limit

    def test_a_coarse_clock_breaks_nothing(self):
        size = self.after(0.0005, 20e-6)
        usual = size.limit
        size.record(64, 0.0)
        assert MIN_LIMIT <= size.limit <= MAX_LIMIT
        for items in [1, 5, 20, 80, 40, 100] * 80:
            size.record(items, 0.0005 + 20e-6 * items)
        assert size.limit == pytest.approx(usual, rel=0.1)

    @pytest.mark.parametrize("dearer", [10, 30])
    def test_rising_item_costs_are_soon_noticed(self, dearer):
        size, lasted = self.after(0.0005, 20e-6), 0.0
        for _ in range(150):
            items = 2 * size.limit
            lasted = 0.0005 + dearer * 20e-6 * items
            size.record(items, lasted)
        assert lasted < dearer * 0.01

    def test_exchanges_are_smaller_for_a_while_after_urgent_work(self):
        size = self.after(0.002, 20e-6)
        usual = size.limit
        size.expect_urgent()
        assert MIN_LIMIT <= size.limit < 0.5 * usual
        for _ in range(URGENT_EXCHANGES // 6):
            for items in [1, 5, 20, 80, 40, 100]:
                size.record(items, 0.002 + 20e-6 * items)
        assert size.limit < 0.5 * usual
        for items in [1, 5, 20, 80, 40, 100]:
            size.record(items, 0.002 + 20e-6 * items)
        assert size.limit == pytest.approx(usual, rel=0.1)

    def test_the_limit_stays_in_bounds_without_usable_measurements(self):
        size = BatchSize()
        assert MIN_LIMIT <= size.limit <= MAX_LIMIT
        for _ in range(100):
            size.record(7, 0.001)
            assert MIN_LIMIT <= size.limit <= MAX_LIMIT
        for _ in range(100):
            size.record(0, 0.0)
            assert MIN_LIMIT <= size.limit <= MAX_LIMIT


class TestDurationForecast:
    @staticmethod
    def of(*seconds: float) -> DurationForecast:
        forecast = DurationForecast()
        for one in seconds:
            forecast.record("t", one)
        return forecast

    def test_jobs_of_constant_duration_are_predicted(self):
        forecast = self.of(*[0.1] * SAMPLES)
        assert forecast.ends_in({7: 100.0}, {7: "t"}, 100.08) == [pytest.approx(0.02)]
        assert forecast.ends_in({7: 100.0}, {7: "other"}, 100.08) == []

    def test_other_jobs_are_not_predicted(self):
        assert self.of(0.1).ends_in({7: 100.0}, {7: "t"}, 100.08) == []
        assert self.of(*[0.1, 0.3] * 10).ends_in({7: 100.0}, {7: "t"}, 100.08) == []
        assert self.of(*[0.001] * 10).ends_in({7: 100.0}, {7: "t"}, 100.0) == []

    def test_longer_durations_are_known_after_a_few_jobs(self):
        forecast = self.of(*[0.05] * 20, *[0.1] * (SAMPLES - 1))
        assert forecast.ends_in({7: 100.0}, {7: "t"}, 100.08) == [pytest.approx(0.02)]

    def test_one_outlier_does_not_change_the_prediction(self):
        forecast = self.of(*[0.1] * SAMPLES, 0.9)
        assert forecast.ends_in({7: 100.0}, {7: "t"}, 100.08) == [pytest.approx(0.02)]

    def test_a_job_that_is_late_is_no_longer_predicted(self):
        forecast = self.of(*[0.1] * SAMPLES)
        assert len(forecast.ends_in({7: 100.0}, {7: "t"}, 100.1 + MAX_LATENESS / 2)) == 1
        assert forecast.ends_in({7: 100.0}, {7: "t"}, 100.1 + 2 * MAX_LATENESS) == []


class TestPrefetchedLeases:
    def test_prefetched_leases_are_taken_by_priority_then_by_arrival(self):
        prefetched = PrefetchedLeases()
        prefetched.add([lease(1), lease(2), msgspec.structs.replace(lease(3), priority=0)], 0.0)
        assert [one.seq for one in prefetched.take(2)] == [3, 1]
        assert [one.seq for one in prefetched.leases] == [2]

    def test_leases_without_a_free_slot_go_back_after_a_while(self):
        prefetched = PrefetchedLeases()
        prefetched.add([lease(1)], 0.0)
        prefetched.add([lease(2)], MAX_WAIT)
        assert [one.seq for one in prefetched.take_overdue(MAX_WAIT * 1.5)] == [1]
        assert [one.seq for one in prefetched.leases] == [2]

    def test_a_lease_is_dropped_by_its_fence(self):
        prefetched = PrefetchedLeases()
        prefetched.add([lease(1)], 0.0)
        assert not prefetched.drop(msgspec.structs.replace(lease(1), fence=2))
        assert prefetched.drop(lease(1))
        assert len(prefetched) == 0


class TestReportedLeases:
    def test_the_latest_leases_are_remembered_by_fence_and_the_oldest_forgotten(self):
        reported = ReportedLeases()
        for n in range(3 * MIN_REMEMBERED):
            reported.add(lease(n))
            assert lease(n) in reported
            assert lease(max(n - MIN_REMEMBERED + 1, 0)) in reported
        assert lease(0) not in reported
        assert msgspec.structs.replace(lease(3 * MIN_REMEMBERED - 1), fence=2) not in reported


def test_a_record_has_the_code_digests_of_a_limited_number_of_tasks(monkeypatch):
    app = Daybreak("memory://")
    for name in ("c", "a", "b"):
        app.task(name=name)(lambda: None)
    monkeypatch.setattr(worker_record, "MAX_CODE_DIGESTS", 2)
    found = worker_record.code_of(app.program)
    assert list(found) == ["a", "b"]
    assert found["a"] == source_digest(lambda: None)

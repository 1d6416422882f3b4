"""The spool and its forwarder, on a memory store that fails at will: every job arrives once, in order."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.core.errors import BadInput, OutcomeUnknown, SpoolFull, StoreCorrupt, StoreUnavailable, TooLarge
from daybreak.core.model import DEFAULT_OPTIONS, JobSpec, ResourceSettings, State
from daybreak.spool import Forwarder, SpooledJob, SpoolFile, forwarder, spool_file
from daybreak.spool.forward_lock import ForwardLock
from daybreak.spool.forwarder import as_of, reason_to_ask
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld

URL = "postgresql://user:secret@db.example/jobs?schema=mine"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class FaultyStore(MemoryStore):
    """Fails inserts as told: before the insert, after it, or for a job that it cannot keep."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.poison: set[str] = set()

    async def insert(self, specs, *, now=None):
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "away":
            raise StoreUnavailable("the store is away")
        if self.poison & {spec.id for spec in specs}:
            raise TooLarge("this store cannot keep it")
        if fault == "part":  # some were written before the connection broke
            await super().insert(specs[: len(specs) // 2], now=now)
            raise OutcomeUnknown("lost the answer")
        answers = await super().insert(specs, now=now)
        if fault == "unknown":
            raise OutcomeUnknown("lost the answer")
        return answers


class Target:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.provided: dict[str, ResourceSettings] = {}

    async def client(self) -> Client:
        return Client(self.store)

    async def file_store(self):
        raise AssertionError("no job of these tests has files")

    async def provide(self, _client, resources) -> None:
        self.provided |= resources


class QuickWorld(RealWorld):
    """Does not wait."""

    def __init__(self) -> None:
        self.slept: list[timedelta] = []

    async def sleep(self, delay: timedelta) -> None:
        self.slept.append(delay)
        await asyncio.sleep(0)


def spec(name: str, **fields) -> JobSpec:
    return JobSpec(id=name, task="upload", **fields)


@pytest.fixture
def spool(tmp_path):
    file = SpoolFile(tmp_path / "jobs.spool", URL, RealWorld())
    yield file
    file.close()


async def drain(spool: SpoolFile, store: MemoryStore, world=None) -> Target:
    target = Target(store)
    await Forwarder(spool, target, world or QuickWorld()).drain()
    return target


async def ids_in(store: MemoryStore) -> list[str]:
    jobs = [job async for job in Client(store).find_all()]
    return [job.id for job in sorted(jobs, key=lambda job: job.seq)]


# -- once, and in order ------------------------------------------------------------------------------------------------

FAULT = st.sampled_from(["", "", "away", "unknown", "part"])
STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 5)),
    st.tuples(st.just("again"), st.integers(0, 20)),  # submits an earlier job once more, under its id
    st.tuples(st.just("drain"), st.lists(FAULT, max_size=4)),
    st.tuples(st.just("killed"), st.lists(FAULT, max_size=4)),  # after the insert, before the spool hears of it
    st.tuples(st.just("reopen"), st.just(0)),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=25), seed=st.integers(0, 2**16))
async def test_whatever_fails_every_job_arrives_once_and_in_order(tmp_path_factory, monkeypatch, steps, seed):
    monkeypatch.setattr(forwarder, "BATCH", 3)
    folder, chance = tmp_path_factory.mktemp("spool"), random.Random(seed)
    files = [SpoolFile(folder / "jobs.spool", URL, RealWorld()) for _ in range(2)]
    submitted: list[JobSpec] = []
    store = FaultyStore()
    async with store:
        for step, value in steps:
            file = chance.choice(files)
            if step == "put":
                new = [spec(f"job-{len(submitted) + n}") for n in range(value)]
                submitted += new
                assert [answer.job for answer in file.put(new)] == [one.id for one in new]
            elif step == "again" and submitted:
                file.put([submitted[value % len(submitted)]])
            elif step == "drain":
                store.faults = list(value)
                await drain(file, store)
                assert file.is_drained
            elif step == "killed":
                store.faults = list(value)
                with monkeypatch.context() as patched:
                    patched.setattr(SpoolFile, "finish", _killed)
                    with pytest.raises(KeyboardInterrupt) if not file.is_drained else _nothing():
                        await drain(file, store)
            elif step == "reopen":
                files[0].close()
        store.faults = []
        await drain(files[0], store)
        assert await ids_in(store) == [one.id for one in submitted]
    for file in files:
        file.close()


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


class _nothing:  # noqa: N801 - reads as a context
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def test_while_the_store_is_away_pauses_grow_up_to_five_seconds(spool):
    spool.put([spec("a")])
    world = QuickWorld()
    async with FaultyStore() as store:
        store.faults = ["away"] * 12
        await drain(spool, store, world)
        assert await ids_in(store) == ["a"]
    assert len(world.slept) == 12
    assert timedelta(milliseconds=50) <= world.slept[0] <= timedelta(milliseconds=150)
    assert timedelta(seconds=2.5) <= world.slept[-1] <= timedelta(seconds=7.5)


async def test_a_job_that_was_not_sent_is_not_unknown(spool):
    spool.put([spec("a")])
    async with FaultyStore() as store:
        for fault, is_unknown in (("away", False), ("unknown", True), ("away", True)):
            store.faults = [fault]
            with pytest.raises(StoreUnavailable):
                await Forwarder(spool, Target(store), QuickWorld()).drain(stop_at_error=True)
            [job] = spool.first(10)
            assert (job.sent_at is not None) is is_unknown
    assert spool.status().last_error == "the store is away"


# -- set aside ---------------------------------------------------------------------------------------------------------


async def test_a_refused_job_is_set_aside_and_holds_up_nobody(spool):
    spool.put([spec("a", key="k", digest="1"), spec("b", key="k", digest="2"), spec("c"), spec("d")])
    async with FaultyStore() as store:
        store.poison = {"c"}
        await drain(spool, store)
        assert await ids_in(store) == ["a", "d"]
        refused = {job.spec.id: job.refused for job in spool.set_aside_jobs()}
        assert refused["b"].startswith("KeyConflict: ")
        assert refused["c"] == "TooLarge: this store cannot keep it"
        assert (spool.status().waiting, spool.status().set_aside) == (0, 2)
        store.poison = set()
        assert (spool.wait_again("c"), spool.wait_again("c"), spool.drop("b"), spool.drop("b")) == (1, 0, 1, 0)
        await drain(spool, store)
        assert await ids_in(store) == ["a", "d", "c"]
    assert (spool.status().waiting, spool.status().set_aside) == (0, 0)


async def test_an_earlier_job_with_the_same_key_stands_for_it(spool):
    spool.put([spec("a", key="k", digest="1"), spec("b", key="k", digest="1")])
    async with MemoryStore() as store:
        await drain(spool, store)
        assert await ids_in(store) == ["a"]
    assert (spool.answer_for("b"), spool.answer_for("a")) == ("a", None)
    assert spool.is_drained


def test_a_job_that_may_have_run_and_been_forgotten_needs_a_person():
    job = SpooledJob(1, spec("a"), NOON, sent_at=NOON)
    assert reason_to_ask(job, NOON + DAY) == ""
    assert "without an answer" in reason_to_ask(job, NOON + DAY + HOUR)
    assert reason_to_ask(SpooledJob(1, spec("a"), NOON), NOON + 90 * DAY) == ""
    brief = replace(DEFAULT_OPTIONS, keep_completed=timedelta(minutes=5))
    short = SpooledJob(1, spec("a", options=brief), NOON, sent_at=NOON)
    assert reason_to_ask(short, NOON + timedelta(minutes=4)) == ""
    assert reason_to_ask(short, NOON + timedelta(minutes=6)) != ""


def test_the_time_in_the_spool_counts_towards_delay_and_expiry():
    options = replace(DEFAULT_OPTIONS, expires_in=3 * HOUR)
    job = SpooledJob(1, spec("a", delay=2 * HOUR, options=options), NOON)
    sent = as_of(job, NOON + HOUR)
    assert (sent.delay, sent.options.expires_in) == (HOUR, 2 * HOUR)
    assert as_of(job, NOON - HOUR).delay == 2 * HOUR  # the clock was set back
    assert reason_to_ask(job, NOON + 2 * HOUR) == ""
    assert "expired" in reason_to_ask(job, NOON + 3 * HOUR)
    plain = SpooledJob(1, spec("a"), NOON)
    assert as_of(plain, NOON + HOUR) is plain.spec


async def test_declared_resources_are_written_before_their_jobs(spool):
    spool.declare({"plecs": ResourceSettings(slots=2)})
    spool.put([spec("a")])
    async with MemoryStore() as store:
        assert (await drain(spool, store)).provided == {"plecs": ResourceSettings(slots=2)}


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_job_in_the_spool_keeps_every_field(spool):
    whole = spec(
        "a", args=b'{"x":1}', queue="q", priority=2, key="k", digest="d", unique="u", on_conflict="raise", run="r",
        owner="o", tags=("t",), meta={"m": "json:1"}, delay=HOUR, trace="00-1", code="c", by="ann", version=3,
        options=replace(DEFAULT_OPTIONS, timeout=HOUR),
    )  # fmt: skip
    spool.put([whole])
    assert spool.find("a").spec == spool.first(1)[0].spec == whole


def test_a_full_spool_takes_none_of_the_call(spool, monkeypatch):
    monkeypatch.setattr(spool_file, "MAX_JOBS", 3)
    spool.put([spec("a"), spec("b")])
    with pytest.raises(SpoolFull, match="limit"):
        spool.put([spec("c"), spec("d")])
    assert spool.status().waiting == 2
    spool.put([spec("c")])


def test_a_spool_that_is_too_large_takes_none_of_the_call(tmp_path, monkeypatch):
    monkeypatch.setattr(spool_file, "MAX_BYTES", 40 * 4096)
    file = SpoolFile(tmp_path / "jobs.spool", URL, RealWorld())
    file.put([spec("a")])
    with pytest.raises(SpoolFull, match="large"):
        file.put([spec("b", args=b"x" * 500_000)])
    assert [job.spec.id for job in file.first(5)] == ["a"]
    file.close()


def test_a_spool_belongs_to_one_store(spool, tmp_path):
    spool.put([spec("a")])
    other_password = SpoolFile(tmp_path / "jobs.spool", URL.replace("secret", "new"), RealWorld())
    assert not other_password.is_drained
    other_password.close()
    for url in (URL.replace("mine", "other"), URL.replace("db.example", "b.example")):
        with pytest.raises(BadInput, match=r"holds jobs for the store postgresql://user:\*\*\*@db\.example"):
            assert SpoolFile(tmp_path / "jobs.spool", url, RealWorld()).is_drained
    assert b"secret" not in b"".join(path.read_bytes() for path in Path(tmp_path).iterdir() if path.is_file())


def test_a_damaged_spool_is_named_and_never_taken_for_an_empty_one(tmp_path):
    (tmp_path / "jobs.spool").write_bytes(b"no database" * 1000)
    file = SpoolFile(tmp_path / "jobs.spool", URL, RealWorld())
    with pytest.raises(StoreCorrupt, match=r"jobs\.spool"):
        file.put([spec("a")])


def test_the_spool_can_be_read_by_its_owner_only(spool, tmp_path):
    spool.put([spec("a")])
    assert {oct(path.stat().st_mode)[-3:] for path in tmp_path.iterdir()} == {"600"}


def test_one_forwarder_at_a_time_has_the_lock(tmp_path):
    one, other = ForwardLock(tmp_path / "jobs.spool"), ForwardLock(tmp_path / "jobs.spool")
    assert (one.take(), one.take(), other.take()) == (True, True, False)
    other.release()
    assert not other.take()
    one.release()
    assert other.take()
    other.release()


async def test_a_forwarder_that_finds_another_waits_for_it(spool):
    spool.put([spec("a")])
    other = ForwardLock(spool.path)
    assert other.take()

    class World(QuickWorld):
        async def sleep(self, delay: timedelta) -> None:
            await super().sleep(delay)
            if len(self.slept) == 3:
                other.release()

    world = World()
    async with MemoryStore() as store:
        await drain(spool, store, world)
        [job] = [job async for job in Client(store).find_all()]
        assert job.state is State.QUEUED
    assert len(world.slept) == 3

"""Promise 13: programs one schema version apart work on one store; an older program refuses a newer schema cleanly."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest

from daybreak.core.errors import StoreTooNew
from daybreak.core.model import State
from daybreak.store.protocol import Store
from daybreak.testing.contract.builders import (
    LEASE,
    NOON,
    accept,
    accept_all,
    assert_sound,
    beat,
    claim_ids,
    claim_one,
    follow,
    get_job,
    needs,
    run_one,
    settle,
    state_of,
)


class Programs(Protocol):
    """Programs on the data of the fixture `store`. The test class of a store implements it by a fixture `programs`.

    The schema of the newer program is synthetic: today's, and one harmless change."""

    def current(self) -> AbstractAsyncContextManager[Store]:
        """A program of today's schema version."""
        ...

    def newer(self, *, serves_older: bool) -> AbstractAsyncContextManager[Store]:
        """A program one schema version ahead. Opening it brings the store to its version. With `serves_older`, programs
        of today's version can still work on that; without, they cannot."""
        ...

    async def look_again(self, store: Store) -> None:
        """Let the time pass after which a running program looks at the version of the schema again, if there is one."""
        ...


class Versions:
    @pytest.fixture
    def programs(self) -> Programs | None:
        return None

    async def test_programs_one_schema_version_apart_work_on_one_store(
        self, store: Store, programs: Programs | None
    ) -> None:
        programs = _expected(store, programs)
        jobs = await accept_all(store, 6)
        resourceful = await accept(store, resources=needs("plecs"))
        held = await claim_one(store, worker="old")
        async with programs.newer(serves_older=True) as newer:
            for program in (store, newer):
                assert (await beat(program, held)).held, "a lease lives on over the upgrade"
            assert await run_one(newer, worker="new") == jobs[1]
            assert await run_one(store, worker="old") == jobs[2]
            taken = await claim_one(newer, worker="new")
            assert await settle(store, held)
            assert await settle(newer, taken)
            jobs.append(await accept(newer))
            jobs.append(await accept(store))
            async with programs.current() as started_later:
                assert await claim_ids(started_later, 2, worker="old") == jobs[4:6]
                assert await claim_ids(newer, 9, worker="new") == [resourceful, *jobs[6:]]
            for program in (store, newer):
                await assert_sound(program, [*jobs, resourceful])

    async def test_an_upgrade_keeps_what_the_store_holds(self, store: Store, programs: Programs | None) -> None:
        programs = _expected(store, programs)
        jobs = await accept_all(store, 3)
        lease = await claim_one(store)
        finished = await run_one(store)
        before = [await get_job(store, job) for job in jobs]
        events, _ = await follow(store)
        async with programs.newer(serves_older=False) as newer:
            assert [await get_job(newer, job) for job in jobs] == before
            assert (await follow(newer))[0] == events
            assert await settle(newer, lease)
            assert await state_of(newer, finished) is State.COMPLETED
            assert await run_one(newer, now=NOON + LEASE) == jobs[2]
            await assert_sound(newer, jobs)

    async def test_a_newer_schema_is_refused_by_an_older_program_and_not_changed(
        self, store: Store, programs: Programs | None
    ) -> None:
        programs = _expected(store, programs)
        async with programs.newer(serves_older=False) as newer:
            job = await accept(newer)
            before, _ = await follow(newer)
            for _ in range(2):
                with pytest.raises(StoreTooNew, match=r"newer Daybreak .*upgrade this installation"):
                    async with programs.current():
                        pass
            assert (await follow(newer))[0] == before
            assert await run_one(newer) == job
        async with programs.newer(serves_older=False) as newer:
            await assert_sound(newer, [job])

    async def test_a_running_program_is_refused_once_its_schema_is_too_new(
        self, store: Store, programs: Programs | None
    ) -> None:
        programs = _expected(store, programs)
        jobs = await accept_all(store, 2)
        held = await claim_one(store)
        async with programs.newer(serves_older=False) as newer:
            await programs.look_again(store)
            with pytest.raises(StoreTooNew, match="upgrade this installation"):
                await settle(store, held)
            with pytest.raises(StoreTooNew, match="upgrade this installation"):
                await accept(store)
            with pytest.raises(StoreTooNew, match="upgrade this installation"):
                await claim_one(store)
            with pytest.raises(StoreTooNew, match="upgrade this installation"):
                await get_job(store, jobs[0])
            assert [await state_of(newer, job) for job in jobs] == [State.RUNNING, State.QUEUED]
            assert await settle(newer, held)
            await assert_sound(newer, jobs)


def _expected(store: Store, programs: Programs | None) -> Programs:
    if not store.traits.shared:
        pytest.skip("only one program can open a store that is not shared: there is no other version")
    assert programs is not None, "a store that programs share has a schema version: bring a fixture `programs`"
    return programs

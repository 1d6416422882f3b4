"""A real disk that is full: a clear error, nothing lost, and everything works again when there is space."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from daybreak.core.errors import StoreFull
from daybreak.core.model import Done, State
from daybreak.store.protocol import Beat, Claim, Exchange
from daybreak.stores.directory import DirectoryStore
from daybreak.testing.contract.builders import LEASE, accept, beat, claim_one, get_job, settle, spec

pytestmark = pytest.mark.root


@pytest.fixture
def disk(tmp_path):
    at = tmp_path / "disk"
    at.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(at)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here: a full disk was NOT tested")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=False, capture_output=True)


@contextlib.contextmanager
def filled(disk):
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)) == 4096:
            pass
    assert os.statvfs(disk).f_bavail == 0
    try:
        yield
    finally:
        ballast.unlink()


async def test_a_full_disk_refuses_clearly_and_loses_nothing(disk):
    folder = disk / "jobs"
    async with DirectoryStore(folder) as store:
        accepted = [await accept(store, id=f"job-{n}", args=b'{"x": "%s"}' % (b"y" * 500)) for n in range(20)]
        lease = await claim_one(store, lease_for=LEASE)
        with filled(disk):
            refused = 0
            for n in range(20, 60):
                try:
                    [answer] = await store.insert([spec(id=f"job-{n}", args=b"[%s]" % (b"1" * 30_000))])
                except StoreFull:
                    refused += 1
                    assert await store.get([f"job-{n}"]) == [None]
                else:
                    accepted.append(answer.job)
            with pytest.raises(StoreFull, match="the disk is full, nothing was written; free some space"):
                await store.insert([spec()])
            assert refused >= 30, "the journal has some space left, the disk has none"
            assert (await beat(store, lease)).held, "a running job keeps its lease"
            for job in accepted:
                assert (await get_job(store, job)).state in (State.QUEUED, State.RUNNING)
        assert await settle(store, lease, Done(b"1"))
        accepted.append(await accept(store, id="late"))
    async with DirectoryStore(folder) as store:
        assert all(await store.get(accepted))
        assert (await get_job(store, lease.job)).state is State.COMPLETED
        claimed = (await store.exchange(Exchange(claim=Claim(worker="w", limit=1000)))).leases
        assert {one.job for one in claimed} == set(accepted) - {lease.job}
        assert all(one.held for one in await store.extend([Beat(seq=one.seq, fence=one.fence) for one in claimed]))


async def test_a_folder_can_be_opened_on_a_full_disk_again_later(disk):
    folder = disk / "jobs"
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
    with filled(disk), pytest.raises(StoreFull):
        await DirectoryStore(folder).open()
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).state is State.QUEUED

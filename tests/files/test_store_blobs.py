"""Contents in parts in a store: complete or absent, whoever else writes or deletes at the same time."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import File
from daybreak.errors import BadFile, StoreCorrupt
from daybreak.files import store_blobs
from daybreak.files.store_blobs import COPY, StoreBlobs
from daybreak.stores.memory import MemoryStore
from daybreak.testing import HandClock
from daybreak.values.file import Content

DAY = timedelta(days=1)
DATA = bytes(range(256)) * 10


def content_of(data: bytes) -> Content:
    return Content(hashlib.sha256(data).hexdigest(), len(data), data)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(datetime.now(UTC))


@pytest.fixture
async def store():
    return await MemoryStore().open()


@pytest.fixture
def blobs(store, clock, monkeypatch) -> StoreBlobs:
    monkeypatch.setattr(store_blobs, "PART", 1000)
    return StoreBlobs(store, clock)


async def read(blobs: StoreBlobs, digest: str) -> bytes:
    return b"".join([piece async for piece in blobs.pieces(digest)])


async def parts(store, digest: str) -> int:
    return len(await store.records(f"blob {digest}"))


async def test_a_content_is_split_and_put_together_again(store, blobs):
    for data in (DATA, b"x" * 1000, b""):
        content = content_of(data)
        for _ in range(2):
            await blobs.put(content)
        assert await read(blobs, content.digest) == data
        assert await parts(store, content.digest) == -(-len(data) // 1000)
    assert not await store.records(COPY)


async def test_two_programs_that_store_the_same_leave_one_copy(store, blobs, clock):
    content = content_of(DATA)
    other = StoreBlobs(store, clock)
    put, has_begun = store.put, False

    async def put_with_company(puts):
        nonlocal has_begun
        if puts[0].kind.startswith("blob ") and not has_begun:
            has_begun = True
            await other.put(content)  # from beginning to end, in the middle of the first
        return await put(puts)

    store.put = put_with_company
    await blobs.put(content)
    assert await read(blobs, content.digest) == DATA
    assert await parts(store, content.digest) == 3
    assert not await store.records(COPY)


async def test_a_touch_during_the_deletion_wins(store, blobs, clock):
    content = content_of(DATA)
    await blobs.put(content)
    clock.advance(2 * DAY)
    put = store.put

    async def touch_first(puts):
        store.put = put
        assert await blobs.touch(content.digest)
        return await put(puts)

    store.put = touch_first
    assert not await blobs.delete(content.digest, clock.now - DAY)
    assert await read(blobs, content.digest) == DATA
    assert not await store.records(COPY)
    clock.advance(2 * DAY)
    assert await blobs.delete(content.digest, clock.now - DAY)
    assert await parts(store, content.digest) == 0
    with pytest.raises(StoreCorrupt, match="is missing"):
        await read(blobs, content.digest)


@pytest.mark.parametrize("deletes", [False, True])
async def test_what_a_killed_program_left_is_deleted_wherever_it_was_killed(store, blobs, clock, deletes):
    content = content_of(DATA)
    put = store.put
    for calls in range(10):
        if deletes:
            await blobs.put(content)
            clock.advance(2 * DAY)
        left = calls

        async def killed(puts):
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return await put(puts)

        store.put = killed
        try:
            if deletes:
                await blobs.delete(content.digest, clock.now - DAY)
            else:
                await blobs.put(content)
        except KeyboardInterrupt:
            is_whole = False
        else:
            is_whole = True
        store.put = put
        if await blobs.info(content.digest) is not None:
            assert await read(blobs, content.digest) == DATA  # complete, or not there
        clock.advance(2 * DAY)
        await blobs.tidy(clock.now - DAY)
        assert not await store.records(COPY)
        if await blobs.info(content.digest) is not None:
            assert await read(blobs, content.digest) == DATA
            assert await blobs.delete(content.digest, clock.now - DAY)
        assert await parts(store, content.digest) == 0
        if is_whole:
            break
    assert is_whole


async def test_a_file_that_changed_after_it_was_hashed_leaves_nothing(store, blobs, tmp_path):
    (tmp_path / "f").write_bytes(DATA)
    file = File(tmp_path / "f")
    content = Content(file.digest, file.size, file)
    (tmp_path / "f").write_bytes(DATA + b"more" * 1000)
    with pytest.raises(BadFile, match="has changed"):
        await blobs.put(content)
    assert await parts(store, content.digest) == 0
    assert not await store.records(COPY)
    assert await blobs.infos() == []

"""Bad disks, wrong files: each error is one sentence that names the file and says what to do, and nothing is harmed."""

# ruff: noqa: ASYNC240 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import contextlib
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults import faulty
from player_processes import count, missing

from daybreak.client.client import Client
from daybreak.core.errors import (
    DaybreakError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnsuitable,
)
from daybreak.core.model import Done, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.sqlite import SqliteStore, schema
from daybreak.system import platform

pytestmark = pytest.mark.torture

MIB = 2**20
SHORT = timedelta(seconds=1)


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def small_disk(at: Path, size: int) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    try:
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at))
    except OSError as trouble:
        missing(f"no tmpfs can be mounted here ({trouble}): a full disk was NOT tested")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False, capture_output=True)


def fill_disk(ballast: Path, leave: int = 0) -> None:
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(4096)) == 4096:
                pass
        file.truncate(max(0, file.tell() - leave))


def assert_clear(trouble: BaseException, path: Path) -> None:
    """One sentence for a person: which file, what is wrong, what to do; nothing of the library underneath."""
    text = str(trouble)
    assert isinstance(trouble, DaybreakError), f"{type(trouble).__name__}: {text}"
    assert "\n" not in text, text
    assert path.name in text, f"does not name the file: {text}"
    assert 8 <= len(text.split()) <= 80, f"no clear sentence: {text}"
    assert not re.search(r"apsw|SQLITE_|SQLError|Traceback|errno", text, re.IGNORECASE), text
    assert re.search(r"[:;,.] ", text), f"says what, but not what to do: {text}"


async def use(path: Path, **more: Any) -> None:
    """Open the store and ask everything of it."""
    async with SqliteStore(path, **more) as store:
        client = Client(store)
        await client.submit("noop", {"n": 1})
        claim = Claim(worker="w", limit=50)
        leases = (await store.exchange(Exchange(claim=claim))).leases
        await store.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="w") for lease in leases]))
        cursor = None
        while (feed := await store.events(cursor)).events:
            cursor = feed.cursor
        async for job in client.find_all():
            await store.history(job.id)


async def trouble_with(path: Path, kind: type[StoreError], **more: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await use(path, **more)
    assert isinstance(caught.value, kind), repr(caught.value)
    assert_clear(caught.value, path)
    return caught.value


async def healthy(path: Path, jobs: int = 2000) -> bytes:
    """A store with jobs in it, closed; its bytes."""
    async with SqliteStore(path) as store:
        client = Client(store)
        await client.submit_many(client.spec("noop", {"n": n, "pad": "x" * 200}) for n in range(jobs))
    return path.read_bytes()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


# -- full --------------------------------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_and_goes_on_when_there_is_space_again(tmp_path, tell):
    with small_disk(tmp_path / "small", 16 * MIB) as folder:
        path, ballast = folder / "full.db", folder / "ballast"
        async with SqliteStore(path) as store:
            client = Client(store, patience=SHORT)
            acked = [await client.submit("noop", {"n": n}) for n in range(20)]
            [held] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
            rounds = []
            for n in range(count(4, 20)):
                # Now and then a little is left, so that the store's own log takes the last of it.
                fill_disk(ballast, leave=(n % 2) * 300 * 1024)
                full = await fill_up(client, acked)
                assert isinstance(full, StoreFull), repr(full)
                assert_clear(full, path)
                assert [j.state for j in await store.get(acked[1:2])] == [State.QUEUED], "reading needs no space"
                ballast.unlink()
                rounds.append(len(acked))
                acked += [await client.submit("noop", {"n": n}) for n in range(20)]
            done = settle(held, Done(b"1"), chance=0.5, by="w")
            assert (await store.exchange(Exchange(settle=[done]))).settled == [True]
            assert None not in await store.get(acked)
        async with SqliteStore(path) as store:
            assert None not in await store.get(acked)
            counts = await Client(store).count()
            assert sum(counts.values()) == len(acked), "something that was refused is there all the same"
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    tell(f"{len(rounds)} times full and free again, {len(acked)} acknowledged, none lost; {full}")


async def fill_up(client: Client, acked: list[str]) -> StoreError:
    """Submit until refused."""
    for _ in range(20_000):
        try:
            acked.append(await client.submit("noop", {"pad": "x" * 500}))
        except StoreError as trouble:
            return trouble
    pytest.fail("the disk never got full")


async def test_a_new_store_on_a_full_disk(tmp_path):
    with small_disk(tmp_path / "small", 64 * 1024) as folder:
        fill_disk(folder / "ballast")
        await trouble_with(folder / "new.db", StoreFull)


async def test_a_limit_on_the_size_of_files_loses_nothing(tmp_path, tell):
    """RLIMIT_FSIZE, as batch systems set it: SQLite calls it a failed disk; its signal must not kill the process."""
    import resource

    path = tmp_path / "limit.db"
    async with SqliteStore(path) as store:
        client = Client(store, patience=SHORT)
        acked = [await client.submit("noop", {"n": n}) for n in range(5)]
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512 * 1024, hard))
        try:
            trouble = await fill_up(client, acked)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert_clear(trouble, path)
        acked.append(await client.submit("noop"))
        assert None not in await store.get(acked)
    tell(f"{len(acked)} acknowledged, none lost; {type(trouble).__name__}: {trouble}")


# -- the n-th failure --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_FULL"])
async def test_whichever_change_of_a_file_fails_nothing_acknowledged_is_lost(tmp_path, tell, code):
    """The first, the second, the third ... until a whole life passes without reaching the failure."""
    failed: Counter[str] = Counter()
    nth = 1
    while True:
        path = tmp_path / f"{nth}.db"
        acked: list[str] = []
        with faulty(nth, getattr(apsw, code)) as disk:
            for _ in range(2):  # opening may be what fails: then it must work the second time
                try:
                    async with SqliteStore(path, vfs=disk.name) as store:
                        await live(store, acked, failed, path)
                        assert None not in await store.get(acked)
                        disk.heal()
                except StoreError as trouble:
                    assert_clear(trouble, path)
                    failed[f"open: {type(trouble).__name__}"] += 1
            reached = disk.has_failed
        async with SqliteStore(path) as store:
            assert None not in await store.get(acked), f"lost after failure {nth}"
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not reached:
            break
        nth += count(9, 1)
    tell(f"{code} at each of {nth} changes: {dict(failed)}")
    assert nth > 30


async def live(store: SqliteStore, acked: list[str], failed: Counter[str], path: Path) -> None:
    """Submit, claim, settle; each step may fail, none may lie."""
    client = Client(store, patience=SHORT)
    for n in range(4):
        try:
            acked.append(await client.submit("noop", {"n": n}))
            leases = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
            done = [settle(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]
            assert all((await store.exchange(Exchange(settle=done))).settled)
        except StoreError as trouble:
            assert_clear(trouble, path)
            failed[type(trouble).__name__] += 1


# -- read-only ---------------------------------------------------------------------------------------------------------


async def test_a_read_only_file(tmp_path):
    path = tmp_path / "frozen.db"
    before = await healthy(path, 10)
    with immutable(path):
        await trouble_with(path, StoreReadOnly)
    assert path.read_bytes() == before
    await use(path)


async def test_a_read_only_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "frozen.db"
    await healthy(path, 10)
    before = snapshot(folder)
    with read_only_mount(folder):
        await trouble_with(path, StoreReadOnly)
    assert snapshot(folder) == before
    await use(path)


async def test_a_new_store_in_a_read_only_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with read_only_mount(folder):
        await trouble_with(folder / "new.db", StoreReadOnly)


@contextlib.contextmanager
def immutable(path: Path) -> Iterator[None]:
    try:
        run("chattr", "+i", str(path))
    except OSError as trouble:
        missing(f"{trouble}: a read-only file was NOT tested")
    try:
        yield
    finally:
        run("chattr", "-i", str(path))


@contextlib.contextmanager
def read_only_mount(folder: Path) -> Iterator[None]:
    try:
        run("mount", "--bind", str(folder), str(folder))
    except OSError as trouble:
        missing(f"{trouble}: a read-only folder was NOT tested")
    try:
        run("mount", "-o", "remount,ro,bind", str(folder))
        yield
    finally:
        run("umount", "-l", str(folder))


# -- wrong and broken files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(count(3, 20)))
async def test_garbage_over_the_header(tmp_path, seed):
    path = tmp_path / "header.db"
    await healthy(path, 50)
    with path.open("r+b") as file:
        file.write(random.Random(seed).randbytes(100))
    before = snapshot(tmp_path)
    await trouble_with(path, StoreCorrupt)
    assert path.read_bytes() == before[path.name], "the file was touched"


async def test_garbage_over_pages_in_the_middle(tmp_path, tell):
    """It may open; but nothing other than StoreCorrupt may come of it, and never a wrong answer that looks right."""
    caught = quiet = untouched = 0
    pristine = await healthy(tmp_path / "pristine.db", 2000)
    for seed in range(count(12, 200)):
        chance = random.Random(seed)
        path = tmp_path / f"pages{seed}.db"
        broken = bytearray(pristine)
        for page in chance.sample(range(1, len(broken) // 4096), k=len(broken) // 4096 // 10 + 1):
            broken[page * 4096 : (page + 1) * 4096] = chance.randbytes(4096)
        path.write_bytes(broken)
        try:
            await use(path)
        except StoreCorrupt as trouble:
            assert_clear(trouble, path)
            caught += 1
            untouched += path.read_bytes() == broken
        else:
            quiet += 1
    tell(f"{caught} of {caught + quiet} broken files were called corrupt, {untouched} of them untouched")
    assert caught > quiet


@pytest.mark.parametrize("content", [b"no database at all\n" * 500, b"\x89PNG\r\n\x1a\n" + bytes(9000), b"short"])
async def test_not_a_database(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    await trouble_with(path, StoreError)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["notes.txt"]


@pytest.mark.parametrize("version", [0, 1, 3])
@pytest.mark.parametrize("application", [0, 77])
async def test_a_database_of_another_program(tmp_path, version, application):
    path = tmp_path / "other.db"
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.execute(f"PRAGMA user_version = {version}; PRAGMA application_id = {application}")
        other.execute("CREATE TABLE job (mine TEXT); INSERT INTO job VALUES ('precious')")
    before = path.read_bytes()
    await trouble_with(path, StoreError)
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    await use(path)


async def test_a_newer_schema(tmp_path):
    path = tmp_path / "newer.db"
    await healthy(path, 10)
    raise_schema(path)
    before = path.read_bytes()
    trouble = await trouble_with(path, StoreTooNew)
    assert re.search(r"upgrade|update|newer", str(trouble), re.IGNORECASE)
    assert path.read_bytes() == before


def raise_schema(path: Path) -> None:
    """As a Daybreak would leave it that is too new for us to work beside."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"PRAGMA user_version = {schema.CURRENT.number + 1000}")
        connection.execute("UPDATE meta SET value = ? WHERE name = 'needs'", (schema.CURRENT.number + 1000,))
        assert connection.changes() == 1


async def test_a_folder_as_path(tmp_path):
    path = tmp_path / "folder.db"
    path.mkdir()
    await trouble_with(path, StoreError)
    assert list(path.iterdir()) == []


async def test_a_missing_parent_folder(tmp_path):
    await trouble_with(tmp_path / "nowhere" / "jobs.db", StoreError)
    assert not (tmp_path / "nowhere").exists()


async def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    await trouble_with(tmp_path / "file" / "jobs.db", StoreError)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p"])
async def test_a_network_file_system_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(platform, "file_system", lambda path: kind)
    path = tmp_path / "far.db"
    trouble = await trouble_with(path, StoreUnsuitable)
    assert kind in str(trouble)
    assert not path.exists()


async def test_a_file_deleted_under_an_open_store_is_no_silent_success(tmp_path, tell):
    """What is submitted into a file that has no name any more is lost; it must not be acknowledged for ever."""
    path = tmp_path / "gone.db"
    async with SqliteStore(path) as store:
        client = Client(store, patience=SHORT)
        await client.submit("noop")
        for file in tmp_path.glob("gone.db*"):
            if file.is_file():
                file.unlink()
        refused: DaybreakError | None = None
        for _ in range(5):
            try:
                await client.submit("noop")
            except DaybreakError as trouble:
                refused = trouble
                break
    tell(f"a store whose file was deleted: {refused or 'goes on acknowledging'}")
    assert refused is not None
    assert_clear(refused, path)

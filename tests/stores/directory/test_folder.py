"""What a person sees in the folder and may do there, and what the store makes of files that others left."""

from __future__ import annotations

import json
import logging
import os
from datetime import timedelta

import pytest

from daybreak.core.errors import BadInput, StoreCorrupt, StoreTooNew, StoreUnsuitable
from daybreak.core.metadata import encode_meta
from daybreak.core.model import Done, Failed, Failure, HandedBack, State
from daybreak.store.protocol import Amend, Claim, Exchange, Verdict
from daybreak.stores.directory import WATS, DirectoryStore, Layout
from daybreak.stores.directory.file_names import id_of, is_stem_of, stem_of
from daybreak.stores.directory.open_folder import forget
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.batches import PLECS, calls_of, submit
from daybreak.testing.contract.builders import FATAL, NOON, accept, claim_one, get_job, provide, settle, spec, used
from daybreak.testing.contract.flights import flying


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jobs"


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def rename(folder, job, old, new, suffix="json"):
    for ending in (suffix, "meta.json"):
        (folder / f"{job}.{old}.{ending}").rename(folder / f"{job}.{new}.{ending}")


async def test_the_names_of_the_files_show_the_states_at_once(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x":1}')
        assert names(folder) == ["a.queued.json", "a.queued.meta.json"]
        lease = await claim_one(store)
        assert names(folder) == ["a.running.json", "a.running.meta.json"]
        await settle(store, lease, Done(b"7"))
        assert names(folder) == ["a.completed.json", "a.completed.meta.json"]
        assert (folder / "a.completed.json").read_bytes() == b'{"x":1}'
        told = json.loads((folder / "a.completed.meta.json").read_text())
        assert (told["id"], told["status"], told["attempts"], told["priority"]) == ("a", "completed", 1, 5)
        await store.amend(Amend(action="remove", by="ann", jobs=("a",)))
        assert names(folder) == []


async def test_moved_jobs_that_waited_for_the_result_of_another_run_on_their_own(folder):
    async with MemoryStore() as source:
        leader, follower = (flying() for _ in range(2))
        await source.insert([leader, follower])
        packed = await source.pack([leader.id, follower.id])
    async with DirectoryStore(folder) as store:
        await store.adopt(packed, by="ann")
    async with DirectoryStore(folder) as store:
        for _ in range(2):
            await settle(store, await claim_one(store), Done(b"7"))
        jobs = await store.get([leader.id, follower.id])
        assert [(job.state, job.spec.flight) for job in jobs] == [(State.COMPLETED, None)] * 2


async def test_only_the_owner_of_the_folder_can_read_it(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


async def test_a_failed_job_whose_files_are_renamed_is_queued_at_the_next_start(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x":1}')
        await settle(store, await claim_one(store), FATAL)
    rename(folder, "a", "failed", "queued")
    async with DirectoryStore(folder) as store:
        job = await get_job(store, "a")
        assert (job.state, job.attempt, job.spec.args) == (State.QUEUED, 0, b'{"x":1}')
        assert [event.kind for event in await store.history("a")][-1] == "retried"
        assert [event.kind for event in (await store.events()).events][-1] == "retried"
        assert (await claim_one(store)).job == "a"


@pytest.mark.parametrize("word", ["suspended", "completed", "failed", "cancelled"])
async def test_the_name_decides_the_state(folder, word):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
    rename(folder, "a", "queued", word)
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).state is State(word)
    assert names(folder) == [f"a.{word}.json", f"a.{word}.meta.json"]


@pytest.mark.parametrize("word", ["running", "scheduled", "blocked"])
async def test_a_name_that_only_the_store_can_give_means_queued(folder, word):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
        await store.amend(Amend(action="suspend", by="ann", jobs=("a",)))
    rename(folder, "a", "suspended", word)
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).state is State.QUEUED
    assert names(folder) == ["a.queued.json", "a.queued.meta.json"]


async def test_a_running_job_whose_files_are_renamed_is_queued_and_keeps_its_attempt(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
        lease = await claim_one(store)
    rename(folder, "a", "running", "queued")
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).attempt == 1
        again = await claim_one(store)
        assert (again.job, again.attempt) == ("a", 2)
        assert not await settle(store, lease), "the old holder lost its lease"


async def test_renaming_the_data_file_alone_is_enough(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
        await settle(store, await claim_one(store), FATAL)
    (folder / "a.failed.json").rename(folder / "a.queued.json")
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).state is State.QUEUED
    assert names(folder) == ["a.queued.json", "a.queued.meta.json"]


async def test_a_name_that_is_no_state_is_left_alone_and_named(folder, caplog):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
        await accept(store, id="b")
    rename(folder, "a", "queued", "qeued")
    with caplog.at_level(logging.WARNING):
        async with DirectoryStore(folder) as store:
            assert [job is None for job in await store.get(["a", "b"])] == [True, False]
    assert "'qeued' is no state of a job" in caplog.text
    rename(folder, "a", "qeued", "queued")
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).state is State.QUEUED


async def test_a_copied_job_is_another_job(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x":1}', key="k", unique="u")
    for ending in ("json", "meta.json"):
        (folder / f"b.queued.{ending}").write_bytes((folder / f"a.queued.{ending}").read_bytes())
    async with DirectoryStore(folder) as store:
        one, other = await get_job(store, "a"), await get_job(store, "b")
        assert one.seq != other.seq
        assert (other.spec.args, other.spec.key, other.spec.unique) == (b'{"x":1}', None, None)
        assert {(await claim_one(store)).job, (await claim_one(store)).job} == {"a", "b"}


async def test_deleted_files_are_a_deleted_job(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", key="k")
        await accept(store, id="b")
    for path in folder.glob("a.*"):
        path.unlink()
    async with DirectoryStore(folder) as store:
        assert await store.get(["a"]) == [None]
        [answer] = await store.insert([spec(id="c", key="k")], now=NOON)
        assert answer.verdict is Verdict.SPENT


# -- ids ---------------------------------------------------------------------------------------------------------------

IDS = [
    "../../etc/passwd", "/etc/passwd", "..", ".", ".hidden", "a/b", "a\nb", "a\0b", "x" * 4000, "ü" * 200, "con", "a b",
    "%2E", "a.queued", "a.queued.meta", "a~" + "0" * 32, "Report", "report", "\x1b[31m", "-rf", "💾", "a\\b", "C:\\x",
]  # fmt: skip


async def test_no_id_leaves_the_folder_and_every_id_comes_back(folder):
    async with DirectoryStore(folder) as store:
        for job in IDS:
            await accept(store, id=job, args=json.dumps({"id": job}).encode())
    assert {path.name for path in folder.parent.iterdir()} == {"jobs"}
    assert len(names(folder)) == 2 * len(IDS)
    assert all(len(name) < 200 and name.isprintable() and name.isascii() for name in names(folder))
    async with DirectoryStore(folder) as store:
        for job in IDS:
            found = await get_job(store, job)
            assert json.loads(found.spec.args) == {"id": job}
        claimed = await store.exchange(Exchange(claim=Claim(worker="w", limit=100)))
        assert [lease.job for lease in claimed.leases] == IDS, "in the order of submission"


def test_names_are_as_readable_as_the_ids_allow():
    assert stem_of("report-2026_01") == "report-2026_01"
    assert stem_of("../x") == "%2E.%2Fx"
    assert id_of(stem_of("a b/ü")) == "a b/ü"
    assert id_of(stem_of("x" * 500)) is None
    assert is_stem_of(stem_of("x" * 500), "x" * 500)


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", ["a.queued.json", "a.queued.meta.json"])
@pytest.mark.parametrize("how", ["empty", "truncated", "garbage"])
async def test_a_damaged_file_is_set_aside_and_named_and_the_rest_loads(folder, damaged, how, caplog):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x": "0123456789"}')
        await accept(store, id="b")
    content = (folder / damaged).read_bytes()
    broken = {"empty": b"", "truncated": content[: len(content) // 2], "garbage": b"\0\xff\xfe{"}[how]
    (folder / damaged).write_bytes(broken)
    with caplog.at_level(logging.ERROR):
        async with DirectoryStore(folder) as store:
            assert [job is None for job in await store.get(["a", "b"])] == [True, False]
            findings = await store.examine()
    assert damaged in caplog.text
    assert (folder / "corrupt" / damaged).read_bytes() == broken
    assert any("damaged file" in one.what and damaged in one.what and not one.is_well for one in findings)
    assert names(folder) == ["b.queued.json", "b.queued.meta.json"]


async def test_a_repaired_job_comes_back(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x": 1}')
    content = (folder / "a.queued.json").read_bytes()
    (folder / "a.queued.json").write_bytes(b"")
    async with DirectoryStore(folder):
        pass
    (folder / "corrupt" / "a.queued.json").write_bytes(content)
    for path in (folder / "corrupt").iterdir():
        path.rename(folder / path.name)
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).spec.args == content


async def test_an_edited_data_file_counts_if_it_is_json(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x": 1}')
    (folder / "a.queued.json").write_bytes(b'{"x": 2}')
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).spec.args == b'{"x": 2}'


async def test_files_of_others_are_left_alone(folder, tmp_path):
    folder.mkdir()
    (folder / "README.txt").write_text("ours")
    (folder / "notes.json").write_text("{}")
    (folder / "sub.queued.json").mkdir()
    os.mkfifo(folder / "pipe.queued.json")
    (tmp_path / "outside").write_text('{"x": 1}')
    (folder / "link.queued.json").symlink_to(tmp_path / "outside")
    async with DirectoryStore(folder) as store:
        assert await store.count() == []
        await accept(store, id="a")
    assert (folder / "README.txt").read_text() == "ours"
    assert (folder / "notes.json").exists()
    assert (tmp_path / "outside").read_text() == '{"x": 1}'


async def test_a_damaged_state_file_is_refused_and_can_be_moved_away(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", key="k", unique="u")
    state = folder / ".daybreak" / "state.json"
    state.write_bytes(b"{half")
    with pytest.raises(StoreCorrupt, match=r"state\.json is damaged"):
        await DirectoryStore(folder).open()
    state.unlink()
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "a")).state is State.QUEUED
        [answer] = await store.insert([spec(id="b", key="k")])
        assert answer.verdict is Verdict.DUPLICATE, "its key is known from the job"


async def test_a_journal_that_is_damaged_inside_is_refused(folder):
    store = await DirectoryStore(folder).open()
    for job in "abc":
        await accept(store, id=job)
    content = bytearray((folder / ".daybreak" / "journal").read_bytes())
    await store.close()
    content[100] ^= 1
    (folder / ".daybreak" / "journal").write_bytes(content)
    with pytest.raises(StoreCorrupt, match="journal is damaged"):
        await DirectoryStore(folder).open()
    (folder / ".daybreak" / "journal").unlink()
    (folder / ".daybreak" / "state.json").unlink()
    store = await DirectoryStore(folder).open()
    await claim_one(store)
    forget(store._folder)  # killed: the change must win over the files, whose numbers are older
    store._folder.abandon()
    async with DirectoryStore(folder) as store:
        assert [(await get_job(store, job)).state.value for job in "abc"] == ["running", "queued", "queued"]


async def test_a_folder_of_a_newer_version_is_refused(folder):
    async with DirectoryStore(folder):
        pass
    state = folder / ".daybreak" / "state.json"
    state.write_bytes(state.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(StoreTooNew, match="upgrade this installation"):
        await DirectoryStore(folder).open()


async def test_a_path_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="is not a folder"):
        await DirectoryStore(tmp_path / "file").open()


# -- layouts -----------------------------------------------------------------------------------------------------------


async def test_a_data_file_that_somebody_deletes_is_written_again_and_stops_nothing(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a", args=b'{"x":1}')
        (folder / "a.queued.json").unlink()
        lease = await claim_one(store)
        await accept(store, id="b")
        assert (folder / "a.running.json").read_bytes() == b'{"x":1}'
        await settle(store, lease, Done())
        assert names(folder) == [
            "a.completed.json",
            "a.completed.meta.json",
            "b.queued.json",
            "b.queued.meta.json",
        ]


async def test_an_error_that_was_told_as_text_stands_in_the_metadata_as_it_was_told(folder):
    async with DirectoryStore(folder, layout=WATS) as store:
        for job, kinds in (("a", ()), ("b", ("builtins.OSError",))):
            await accept(store, "item", id=job, args=b'{"data":1}')
            await settle(
                store, await claim_one(store), Failed(Failure(message="no route", kinds=kinds, verdict="permanent"))
            )
        told = [json.loads((folder / f"{job}.failed.meta.json").read_text())["last_error"] for job in "ab"]
    assert told == ["no route", "OSError: no route"]


async def test_the_words_of_wats(folder):
    async with DirectoryStore(folder, layout=WATS) as store:
        await accept(
            store, "item", id="r1", args=b'{"data":{"serial":"A1"}}', queue="reports", meta=encode_meta({"line": 3})
        )
        await accept(store, "item", id="r2", args=b'{"data":1}', queue="reports", delay=timedelta(hours=1))
        assert names(folder) == ["r1.pending.meta.json", "r1.pending.wsjf", "r2.pending.meta.json", "r2.pending.wsjf"]
        assert (folder / "r1.pending.wsjf").read_bytes() == b'{"serial":"A1"}'
        told = json.loads((folder / "r1.pending.meta.json").read_text())
        keys = {
            "id",
            "priority",
            "status",
            "created_at",
            "updated_at",
            "attempts",
            "max_attempts",
            "last_error",
            "custom",
        }
        assert keys <= told.keys()
        assert (told["status"], told["custom"]) == ("pending", {"line": 3})
        await claim_one(store, queues=("reports",))
        assert "r1.processing.wsjf" in names(folder)
    async with DirectoryStore(folder) as store:
        jobs = [await get_job(store, job) for job in ("r1", "r2")]
        assert [job.state for job in jobs] == [State.RUNNING, State.SCHEDULED]
        assert [job.spec.args for job in jobs] == [b'{"data":{"serial":"A1"}}', b'{"data":1}']


async def test_another_layout_than_that_of_the_folder_is_refused(folder):
    async with DirectoryStore(folder, layout=WATS):
        pass
    with pytest.raises(StoreUnsuitable, match="layout 'wats'"):
        await DirectoryStore(folder, layout=Layout()).open()


@pytest.mark.parametrize("word", ["two words", "meta", "a.b", "../x", ""])
def test_a_layout_with_a_word_that_no_name_can_hold(word):
    with pytest.raises(BadInput, match="letters and digits"):
        Layout(words={State.QUEUED: word})


async def test_completed_jobs_are_deleted_if_asked(folder):
    async with DirectoryStore(folder, delete_completed=True) as store:
        await accept(store, id="a", key="k")
        await accept(store, id="b")
        await settle(store, await claim_one(store), Done())
        await settle(store, await claim_one(store), FATAL)
        assert names(folder) == ["b.failed.json", "b.failed.meta.json"]
        assert await store.get(["a"]) == [None]
        [answer] = await store.insert([spec(id="c", key="k")], now=NOON)
        assert answer.verdict is Verdict.SPENT, "the work of its key is not done again"


async def test_completed_jobs_of_an_earlier_start_are_deleted_if_asked(folder):
    async with DirectoryStore(folder) as store:
        await accept(store, id="a")
        await settle(store, await claim_one(store), Done())
    async with DirectoryStore(folder, delete_completed=True):
        assert names(folder) == []


# -- time --------------------------------------------------------------------------------------------------------------


async def test_delays_continue_over_a_restart_and_a_clock_that_was_set_back(folder):
    clock = HandClock()
    async with DirectoryStore(folder, world=clock) as store:
        await store.insert([spec(id="a", delay=timedelta(hours=2))])
    clock.advance("1h")
    clock.jump(timedelta(days=-10))
    later = HandClock(clock.now)
    async with DirectoryStore(folder, world=later) as store:
        later.advance("1h30m")
        assert (await store.advance()).due == 0, "an hour in which the clock was set back does not count"
        later.advance("31m")
        assert (await store.advance()).due == 1


async def test_a_call_and_the_job_that_left_it_are_counted_apart_when_the_folder_is_opened(folder):
    async with DirectoryStore(folder) as store:
        await provide(store, "plecs", slots=3)
        await submit(store, *"aaa", resources=PLECS)
        [[head, *_]] = await calls_of(store, 1)
        await settle(store, head, HandedBack())
        assert [[lease.group for lease in call] for call in await calls_of(store)] == [[None]]
        assert await used(store, "plecs") == 2
    async with DirectoryStore(folder) as store:
        assert await used(store, "plecs") == 2

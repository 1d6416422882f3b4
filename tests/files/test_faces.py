"""Files on the command line, over HTTP, in inline mode, and on the way to another store."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import files_tasks as tasks
import httpx
import pytest

from daybreak import File, JobFailed
from daybreak.client.store_migration import Mover
from daybreak.core.model import Put
from daybreak.errors import StoreCorrupt
from daybreak.files import FileStore
from daybreak.files.folder import FolderBlobs
from daybreak.server import asgi
from daybreak.server.routes.blobs import disposition
from daybreak.server.settings import ServerSettings
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld
from daybreak.testing import inline

WAIT = "60s"
FAR = datetime.max.replace(tzinfo=UTC)
OPEN = ServerSettings(hosts=frozenset({"localhost"}), anonymous_reads=True)


class Shell:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "daybreak.cli", *words, "--url", self._url]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def stored(local, tmp_path) -> File:
    """A file that a job refers to."""
    (tmp_path / "m.txt").write_text("hello")
    file = File("m.txt")
    tasks.read.submit(file)
    return file


def damage(folder: Path) -> None:
    [content] = folder.rglob("content")
    content.chmod(0o644)
    content.write_text("jello")


# -- the command line --------------------------------------------------------------------------------------------------


def test_files_are_listed_fetched_and_verified(local, stored, tmp_path):
    daybreak = Shell(local.settings.url)
    code, out, _ = daybreak("files", "list")
    assert code == 0
    assert stored.digest in out
    assert f"1 file, 5 bytes, in {tmp_path}/jobs.db-files." in out
    [listed] = json.loads(daybreak("files", "list", "--json")[1])["files"]
    assert (listed["sha256"], listed["size"]) == (stored.digest, 5)

    assert daybreak("files", "get", stored.digest[:8], "-o", "copy.txt")[0] == 0
    assert (tmp_path / "copy.txt").read_text() == "hello"
    code, _, err = daybreak("files", "get", f"sha256:{stored.digest}", "-o", "copy.txt")
    assert (code, "copy.txt exists: add --force" in err) == (2, True)
    assert json.loads(daybreak("files", "get", stored.digest, "-o", "copy.txt", "--force", "--json")[1])["size"] == 5
    code, _, err = daybreak("files", "get", "f" * 64, "-o", "x")
    assert (code, "no content has the digest" in err) == (4, True)
    code, _, err = daybreak("files", "get", "xyz", "-o", "x")
    assert (code, "at least 6 of its 64 hexadecimal digits" in err) == (2, True)

    assert "1 file verified, 0 damaged." in daybreak("files", "verify")[1]
    damage(tmp_path / "jobs.db-files")
    code, out, _ = daybreak("files", "verify")
    assert (code, f"sha256:{stored.digest} is damaged" in out) == (1, True)
    assert list(json.loads(daybreak("files", "verify", "--json")[1])["damaged"]) == [stored.digest]
    assert "is damaged" in daybreak("files", "get", stored.digest, "-o", "y")[2]
    assert f"files are kept in {tmp_path}/jobs.db-files" in daybreak("doctor")[1]


# -- a damaged content -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["read", "read_async"])
def test_a_job_with_a_damaged_content_fails_for_good_and_names_it(local, tmp_path, task):
    (tmp_path / "m.txt").write_text("hello")
    file = File("m.txt")
    job = getattr(tasks, task).submit(file)
    damage(tmp_path / "jobs.db-files")
    local.work(until="idle")
    with pytest.raises(JobFailed, match=rf"sha256:{file.digest} is damaged in .*submit a job with the original file"):
        job.result(WAIT)
    assert job.info().attempt == 1


def test_a_damaged_part_in_a_store_is_named(app, tmp_path):
    (tmp_path / "m.txt").write_text("hello")
    file = File("m.txt")
    job = tasks.read.submit(file)

    async def spoil():
        client = await app.client()
        for record in await client.store.records(f"blob {file.digest}"):
            await client.store.put([Put(kind=record.kind, name=record.name, value=b"jello")])

    app.portal.run(spoil())
    if (tmp_path / "jobs.db-files").exists():
        damage(tmp_path / "jobs.db-files")
    app.work(until="idle")
    with pytest.raises(JobFailed, match=f"sha256:{file.digest} is damaged"):
        job.result(WAIT)


# -- the original changed ----------------------------------------------------------------------------------------------


def test_what_happens_if_the_original_changed(local, tmp_path, caplog):
    def submit(on_change: str, name: str):
        (tmp_path / name).write_text("one")
        return tasks.read.submit(File(name, on_change=on_change))

    jobs = {how: submit(how, f"{how}.txt") for how in ("pin", "warn", "fail", "newest")}
    same = {how: submit(how, f"same-{how}.txt") for how in ("warn", "fail", "newest")}
    gone = {how: submit(how, f"gone-{how}.txt") for how in ("warn", "fail", "newest")}
    for how in jobs:
        (tmp_path / f"{how}.txt").write_text("two")
    for how in gone:
        (tmp_path / f"gone-{how}.txt").unlink()
    local.work(until="idle")
    for job in same.values():
        assert job.result(WAIT)["text"] == "one"
    assert {how: jobs[how].result(WAIT)["text"] for how in ("pin", "warn", "newest")} == {
        "pin": "one",
        "warn": "one",
        "newest": "two",
    }
    for job in (jobs["fail"], gone["fail"]):
        with pytest.raises(JobFailed, match="on_change='fail'"):
            job.result(WAIT)
        assert job.info().attempt == 1
    for how in ("warn", "newest"):
        assert gone[how].result(WAIT)["text"] == "one"
    newest = File("newest.txt").digest
    assert jobs["newest"].result(WAIT)["digest"] == newest
    assert jobs["newest"].info().note == f"newest.txt: used its newest content, sha256:{newest}"
    assert "warn.txt: the original" in caplog.text


# -- inline mode -------------------------------------------------------------------------------------------------------


def test_inline_mode_pins_files_too(local, tmp_path):
    (tmp_path / "m.txt").write_text("hello")
    with inline(local) as run:
        assert tasks.read.submit(File("m.txt")).result()["text"] == "hello"
        assert tasks.read_async.submit(File("m.txt")).result() == "hello"
        assert tasks.write.submit("a,b\n", "out.csv").result()["waves"].path.read_text() == "a,b\n"
        assert len(tasks.large.submit(100_000).result()) == 100_000
    assert not run.files.exists()
    assert not (tmp_path / "jobs.db-files").exists()


async def test_async_inline_mode_pins_files_too(local, tmp_path):
    (tmp_path / "m.txt").write_text("hello")
    async with inline(local):
        job = await tasks.read.asubmit(File("m.txt"))
        assert (await job)["text"] == "hello"


# -- HTTP --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_server_sends_contents(app, tmp_path):
    (tmp_path / "m.txt").write_bytes(b"x" * 3_000_000)
    file = File("m.txt")
    await tasks.read.asubmit(file)
    large = await tasks.large.asubmit(100_000)
    await app.awork(until="idle")
    transport = httpx.ASGITransport(asgi(app, OPEN))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get(f"/api/v1/blobs/{file.digest}", params={"name": 'a"\r\nx: y/ä.plecs'})
        assert answer.status_code == 200
        assert answer.content == b"x" * 3_000_000
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-length"] == "3000000"
        assert answer.headers["content-disposition"] == (
            "attachment; filename=\"a___x__y__.plecs\"; filename*=UTF-8''a%22%0D%0Ax%3A%20y%2F%C3%A4.plecs"
        )
        assert "x" not in answer.headers
        for digest in ("f" * 64, "..%2F..%2Fetc%2Fpasswd", "F" * 64):
            refused = await http.get(f"/api/v1/blobs/{digest}")
            assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json")
        shown = (await http.get(f"/api/v1/jobs/{large.id}")).json()["result"]
        assert (shown["what"], shown["size"]) == ("large result", 100_002)
        whole = (await http.get(f"/api/v1/jobs/{large.id}/result")).json()["result"]
        assert whole == "x" * 100_000
    await app.aclose()


def test_the_name_of_a_download_cannot_break_the_header():
    header = disposition("".join(map(chr, range(300))))
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2


# -- another store -----------------------------------------------------------------------------------------------------


async def test_a_move_carries_contents(local, tmp_path):
    (tmp_path / "m.txt").write_text("moved")
    pinned = await tasks.read.asubmit(File("m.txt"))
    (tmp_path / "other.txt").write_text("lost")
    lost = await tasks.read.asubmit(File("other.txt"))
    kept = await tasks.write.asubmit("a,b\n", "out.csv")
    await local.awork(until="idle")
    store = (await local.client()).store
    source = await local.file_store()
    gone = File("other.txt").digest
    FolderBlobs(tmp_path / "jobs.db-files").delete(gone, FAR)
    target = await MemoryStore().open()
    files = FileStore(None, target, RealWorld())
    report = await Mover(store, target, RealWorld(), by="ann", files=(source, files)).run()
    assert report.moved == 2
    assert f"sha256:{gone} is missing" in report.held_back[lost.id]
    [moved] = await target.get([kept.id])
    digest = moved.result.split(b'"sha256":"')[1][:64].decode()
    assert (await files.path(digest)).read_text() == "a,b\n"
    assert (await files.path(File("m.txt").digest)).read_text() == "moved"
    with pytest.raises(StoreCorrupt):
        await files.path(gone)
    assert [job.id for job in await target.get([pinned.id])] == [pinned.id]
    await target.close()
    await local.aclose()

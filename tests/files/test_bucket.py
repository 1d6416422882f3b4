"""Contents in a bucket: with a bucket in memory, one in a folder, and a server that speaks S3."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import files_tasks as tasks
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import LocalStore, MemoryStore

from daybreak import Daybreak, File
from daybreak.errors import BadFile, StoreCorrupt, StoreUnavailable
from daybreak.files import blobs_at
from daybreak.files.bucket import BucketBlobs
from daybreak.files.folder import FolderBlobs
from daybreak.values.file import Content

SOON = datetime.now(UTC) + timedelta(days=1)
LONG_AGO = datetime.now(UTC) - timedelta(days=1)


def content_of(data: bytes) -> Content:
    return Content(hashlib.sha256(data).hexdigest(), len(data), data)


@pytest.fixture(scope="module")
def s3():
    """A server that speaks S3, with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            patch.setenv(name, value)
        import boto3

        boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="daybreak")
        yield "s3://daybreak/files"
    server.stop()


@pytest.fixture(params=["memory", "folder", "s3"])
def bucket(request, tmp_path):
    cache = FolderBlobs(tmp_path / "own cache")
    if request.param == "s3":
        return BucketBlobs(f"{request.getfixturevalue('s3')}/{tmp_path.name}", cache=cache)
    (tmp_path / "bucket").mkdir()
    kept = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "bucket")
    return BucketBlobs(f"{request.param}://", kept, cache)


def elsewhere(bucket: BucketBlobs, tmp_path) -> BucketBlobs:
    """The same bucket on another machine."""
    return BucketBlobs(bucket.location, bucket._bucket, FolderBlobs(tmp_path / "elsewhere"))


def test_a_content_is_stored_once_and_read_on_another_machine(bucket, tmp_path):
    content = content_of(b"x" * 3_000_000)
    for _ in range(2):
        bucket.put(content)
    other = elsewhere(bucket, tmp_path)
    assert other.path(content.digest, "m.plecs").read_bytes() == b"x" * 3_000_000
    assert other.path(content.digest, "m.plecs").name == "m.plecs"
    assert b"".join(other.pieces(content.digest)) == b"x" * 3_000_000
    [info] = other.infos()
    assert info == other.info(content.digest)
    assert (info.digest, info.size) == (content.digest, 3_000_000)
    other.verify(content.digest)


def test_a_file_that_changed_after_it_was_hashed_is_not_stored(bucket, tmp_path):
    (tmp_path / "f").write_text("one")
    file = File(tmp_path / "f")
    content = Content(file.digest, file.size, file)
    (tmp_path / "f").write_text("two")
    with pytest.raises(BadFile, match="has changed"):
        bucket.put(content)
    assert list(bucket.infos()) == []


def test_a_damaged_and_a_missing_content_are_named(bucket, tmp_path):
    content = content_of(b"hello")
    bucket.put(content)
    obstore.put(bucket._bucket, f"content/{content.digest}", b"jello")
    with pytest.raises(StoreCorrupt, match=f"sha256:{content.digest} is damaged"):
        elsewhere(bucket, tmp_path).path(content.digest, "m")
    with pytest.raises(StoreCorrupt, match="is damaged"):
        bucket.verify(content.digest)
    absent = content_of(b"never stored").digest
    with pytest.raises(StoreCorrupt, match=f"sha256:{absent} is missing"):
        bucket.path(absent, "m")
    assert bucket.info(absent) is None
    assert not bucket.touch(absent)


def test_only_what_was_not_touched_is_deleted(bucket, monkeypatch):
    content = content_of(b"hello")
    bucket.put(content)
    assert not bucket.delete(content.digest, LONG_AGO)
    info = bucket.info
    with monkeypatch.context() as patch:  # as if it was touched long ago at first, and again in the middle
        patch.setattr(bucket, "info", lambda digest: info(digest).__class__(digest, 5, LONG_AGO - timedelta(days=1)))
        assert not bucket.delete(content.digest, LONG_AGO)
    assert b"".join(bucket.pieces(content.digest)) == b"hello"
    assert bucket.delete(content.digest, SOON)
    assert not bucket.delete(content.digest, SOON)
    assert list(bucket.infos()) == []


def test_an_interrupted_deletion_is_finished_or_undone(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYBREAK_FILES_CACHE", str(tmp_path / "cache"))
    content = content_of(b"hello")
    bucket.put(content)
    obstore.rename(bucket._bucket, f"content/{content.digest}", f"old/{content.digest}")
    bucket.tidy(LONG_AGO)
    assert b"".join(bucket.pieces(content.digest)) == b"hello"
    obstore.rename(bucket._bucket, f"content/{content.digest}", f"old/{content.digest}")
    bucket.tidy(SOON)
    assert [len(page) for page in obstore.list(bucket._bucket)] == []


def test_a_bucket_that_cannot_be_reached_says_so(tmp_path, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = BucketBlobs(
        "s3://gone/files",
        obstore.store.from_url("s3://gone/files", retry_config={"max_retries": 0}),
        FolderBlobs(tmp_path / "own cache"),
    )
    with pytest.raises(StoreUnavailable, match="files in s3://gone/files cannot be reached"):
        bucket.put(content_of(b"hello"))


def test_jobs_use_a_bucket(s3, local, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYBREAK_FILES", s3)
    local.use(local.settings.url)
    (tmp_path / "m.txt").write_text("in a bucket")
    job = tasks.read.submit(File("m.txt"))
    kept = tasks.write.submit("a,b\n", "out.csv")
    (tmp_path / "m.txt").unlink()
    local.work(until="idle")
    assert job.result("60s")["text"] == "in a bucket"
    assert kept.result("60s")["waves"].path.read_text() == "a,b\n"
    assert not (tmp_path / "jobs.db-files").exists()


async def test_stores_that_share_a_folder_do_not_share_contents(tmp_path):
    """What one store no longer needs, another may."""
    (tmp_path / "m.txt").write_text("shared")
    places = []
    for name in ("a", "b"):
        app = Daybreak(f"sqlite:///{tmp_path}/{name}.db", files=str(tmp_path / "shared"))
        store = await app.file_store()
        await store.put(content_of(b"shared"))
        places.append(store.location)
        assert blobs_at(store.location).info(content_of(b"shared").digest) is not None
        await app.aclose()
        again = Daybreak(f"sqlite:///{tmp_path}/{name}.db", files=f"file://{tmp_path}/shared")
        assert (await again.file_store()).location == store.location
        await again.aclose()
    assert len(set(places)) == 2

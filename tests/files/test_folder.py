"""Contents in a folder: written whole or not at all, verified when read, deleted only if nobody needs them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from daybreak import File
from daybreak.errors import BadFile, StoreCorrupt, StoreFull, StoreReadOnly
from daybreak.files.blobs import safe_name
from daybreak.files.folder import FolderBlobs
from daybreak.system import file_content
from daybreak.values.file import Content

DAY = timedelta(days=1)


def content_of(data: bytes) -> Content:
    return Content(hashlib.sha256(data).hexdigest(), len(data), data)


def later(by: timedelta = DAY) -> datetime:
    return datetime.now(UTC) + by


@pytest.fixture
def blobs(tmp_path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "files")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_content_is_stored_once_and_found_by_its_name(blobs):
    content = content_of(b"hello")
    for _ in range(3):
        blobs.put(content)
    path = blobs.path(content.digest, "a model.plecs")
    assert path.read_bytes() == b"hello"
    assert path.name == "a model.plecs"
    assert path.stat().st_nlink == 2  # the same bytes on disk
    assert files_in(blobs.root) == ["a model.plecs", "content", "touched"]
    assert [info.digest for info in blobs.infos()] == [content.digest]
    assert b"".join(blobs.pieces(content.digest)) == b"hello"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "", "\0", "a" * 1000 + ".plecs", "CON:x?"])
def test_a_hostile_name_stays_inside_its_folder(blobs, name):
    content = content_of(b"hello")
    blobs.put(content)
    path = blobs.path(content.digest, name)
    assert path.resolve().is_relative_to(blobs.root.resolve())
    assert path.read_bytes() == b"hello"


def test_the_suffix_of_a_long_name_stays():
    assert safe_name("ä" * 500 + ".plecs").endswith("ä.plecs")


def test_a_damaged_content_is_named(blobs):
    content = content_of(b"hello")
    blobs.put(content)
    path = blobs.path(content.digest, "m")
    path.chmod(0o644)
    path.write_bytes(b"jello")
    with pytest.raises(StoreCorrupt, match=rf"sha256:{content.digest} is damaged in .*delete it there"):
        FolderBlobs(blobs.root).path(content.digest, "m")
    with pytest.raises(StoreCorrupt, match="is damaged"):
        blobs.path(content.digest, "m")  # also by the process that had verified it before
    with pytest.raises(StoreCorrupt, match="is damaged"):
        blobs.verify(content.digest)


def test_a_missing_content_is_named(blobs):
    digest = content_of(b"hello").digest
    with pytest.raises(StoreCorrupt, match=f"sha256:{digest} is missing"):
        blobs.path(digest, "m")
    with pytest.raises(StoreCorrupt, match="is missing"):
        list(blobs.pieces(digest))
    assert not blobs.touch(digest)
    assert blobs.info(digest) is None


def test_a_file_that_changed_after_it_was_hashed_is_not_stored(blobs, tmp_path):
    (tmp_path / "f").write_text("one")
    file = File(tmp_path / "f")
    content = Content(file.digest, file.size, file)
    (tmp_path / "f").write_text("two")
    with pytest.raises(BadFile, match="has changed since it was first used"):
        blobs.put(content)
    assert files_in(blobs.root) == []


@pytest.mark.parametrize("fails_at", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_nothing_and_says_so(blobs, monkeypatch, fails_at):
    kept = content_of(b"was there before")
    blobs.put(kept)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if fails_at == "replace":
            patch.setattr(Path, "replace", full)
        else:
            patch.setattr(file_content.os, fails_at, full)
        with pytest.raises(StoreFull, match="no space left for files in"):
            blobs.put(content_of(b"too much"))
    assert blobs.path(kept.digest, "m").read_bytes() == b"was there before"
    assert [info.digest for info in blobs.infos()] == [kept.digest]
    assert not list((blobs.root / "new").iterdir())
    blobs.put(content_of(b"too much"))  # once there is space
    assert len(list(blobs.infos())) == 2


def test_a_folder_without_write_access_says_so(blobs, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")  # root would be allowed

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(StoreReadOnly, match="give this user write access"):
        blobs.put(content_of(b"x"))


def test_only_what_was_not_touched_is_deleted(blobs):
    old, young = content_of(b"old"), content_of(b"young")
    for content in (old, young):
        blobs.put(content)
    os.utime(blobs._folder(old.digest) / "touched", (0, 0))
    before = datetime.now(UTC) - DAY
    assert blobs.delete(old.digest, before)
    assert not blobs.delete(young.digest, before)
    assert not blobs.delete(old.digest, before)
    assert [info.digest for info in blobs.infos()] == [young.digest]
    assert files_in(blobs.root / "old") == []


def test_a_touch_during_the_deletion_wins(blobs, monkeypatch):
    content = content_of(b"reused")
    blobs.put(content)
    os.utime(blobs._folder(content.digest) / "touched", (0, 0))
    rename = Path.rename

    def touch_first(self, to):
        if self.name == content.digest:
            assert blobs.touch(content.digest)
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", touch_first)
    assert not blobs.delete(content.digest, datetime.now(UTC) - DAY)
    assert blobs.path(content.digest, "m").read_bytes() == b"reused"


def test_a_submit_after_the_deletion_began_stores_it_again(blobs, monkeypatch):
    content = content_of(b"reused")
    blobs.put(content)
    os.utime(blobs._folder(content.digest) / "touched", (0, 0))
    rename = Path.rename

    def put_after(self, to):
        renamed = rename(self, to)
        with contextlib.suppress(RecursionError):
            monkeypatch.setattr(Path, "rename", rename)
            blobs.put(content)
        return renamed

    monkeypatch.setattr(Path, "rename", put_after)
    assert blobs.delete(content.digest, datetime.now(UTC) - DAY)
    assert blobs.path(content.digest, "m").read_bytes() == b"reused"


def test_what_a_killed_program_left_behind_is_deleted(blobs):
    content = content_of(b"needed")
    blobs.put(content)
    new = blobs.new_file()
    new.write(b"half of a file")
    away = blobs.root / "old" / f"{content.digest}-00000000"  # killed in the middle of a deletion that a touch stopped
    away.parent.mkdir()
    blobs._folder(content.digest).rename(away)
    blobs.tidy(datetime.now(UTC) - DAY)
    assert new.path.exists()  # it may still be written
    assert blobs.path(content.digest, "m").read_bytes() == b"needed"
    blobs.tidy(later())
    assert not new.path.exists()
    new._file.close()


def test_a_file_system_without_hard_links_gets_copies(blobs, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    content = content_of(b"hello")
    blobs.put(content)
    assert blobs.path(content.digest, "m.txt").read_bytes() == b"hello"

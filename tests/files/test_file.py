"""The type File: what it accepts, when it reads, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak import BadInput, File, values
from daybreak.errors import BadArguments, BadFile, NotEncodable
from daybreak.system import file_content
from daybreak.values.file import collecting, digests_in, opening


def run(model: File, many: list[File] | None = None): ...


ARGUMENTS = values.Arguments(run, context=False)


def encoded(file: File) -> bytes:
    with collecting():
        return ARGUMENTS.encode((file,), {})


@given(content=st.binary(max_size=3000), pieces=st.integers(1, 64))
def test_the_digest_is_that_of_sha256sum_however_the_file_is_read(tmp_path_factory, content, pieces):
    path = tmp_path_factory.mktemp("hash") / "f"
    path.write_bytes(content)
    before, file_content.PIECE = file_content.PIECE, pieces
    try:
        file = File(path)
        assert (file.digest, file.size) == (hashlib.sha256(content).hexdigest(), len(content))
    finally:
        file_content.PIECE = before


def test_a_file_is_a_path(tmp_path):
    (tmp_path / "model.plecs").write_text("x")
    file = File(tmp_path / "model.plecs")
    assert os.fspath(file) == str(tmp_path / "model.plecs")
    assert Path(file) == file.path
    assert file.name == "model.plecs"
    assert file == File(str(file.path))
    assert file != File(__file__)
    assert len({file, File(file)}) == 1


def test_it_is_read_once_however_often_it_is_encoded(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_text("one")
    read: list[Path] = []
    digest_of = values.file.digest_of
    monkeypatch.setattr(values.file, "digest_of", lambda path: (read.append(path), digest_of(path))[1])
    file = File(path)
    first = encoded(file)
    path.write_text("two")
    assert [encoded(file) for _ in range(1000)] == [first] * 1000
    assert read == [path]


@pytest.mark.parametrize("path", ["", "a\0b", 3, None, b"bytes"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(BadFile, match="write the path of a file"):
        File(path)


def test_an_unknown_reaction_is_refused():
    with pytest.raises(BadInput, match="'pin', 'fail', 'newest', 'warn'"):
        File("f", on_change="ignore")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadFile, match=r"there is no file .*gone\.txt"):
        encoded(File(tmp_path / "gone.txt"))


def test_a_folder_a_pipe_and_a_device_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="is a folder"):
        encoded(File(tmp_path))
    with pytest.raises(BadFile, match="a pipe, a socket or a device"):
        encoded(File(tmp_path / "pipe"))
    with pytest.raises(BadFile, match="a pipe, a socket or a device"):
        encoded(File("/dev/zero"))


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "f").touch()

    def denied(*_):
        raise PermissionError(13, "Permission denied")  # root would be allowed

    monkeypatch.setattr(file_content.os, "open", denied)
    with pytest.raises(BadFile, match="cannot be read: Permission denied"):
        encoded(File(tmp_path / "f"))


def swap(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"b" * 4000)
    other.replace(path)


def overwrite(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"b" * 4000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("change", [swap, overwrite, append, Path.unlink], ids=lambda change: change.__name__)
def test_a_file_that_changes_while_it_is_hashed_is_refused(tmp_path, monkeypatch, change):
    path = tmp_path / "f"
    path.write_bytes(b"a" * 4000)
    monkeypatch.setattr(file_content, "PIECE", 1000)
    pieces = file_content.pieces_of(path)
    next(pieces)
    change(path)
    with pytest.raises(BadFile, match="was changed or replaced while it was read"):
        list(pieces)


def test_a_large_file_is_read_in_flat_memory(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        assert File(path).size == 64 * 1024 * 1024
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_equal_content_is_equal_arguments_wherever_the_file_is(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.txt").write_text("same")
    assert encoded(File(tmp_path / "a" / "m.txt")) == encoded(File(tmp_path / "b" / "m.txt"))


def test_what_is_stored_names_its_contents(tmp_path):
    (tmp_path / "m.txt").write_text("same")
    file = File(tmp_path / "m.txt")
    with collecting() as contents:
        data = ARGUMENTS.encode((), {"model": file, "many": [file, file]})
    assert list(contents) == [file.digest]
    assert digests_in(data, None, b"{}") == {file.digest}
    assert values.shown(data)["model"] == {"sha256": file.digest, "size": 4, "name": "m.txt"}


def test_where_nothing_can_be_stored_a_file_is_refused(tmp_path):
    (tmp_path / "m.txt").write_text("same")
    with pytest.raises(NotEncodable, match="pass it as an argument of a task"):
        values.encode({"file": File(tmp_path / "m.txt")})


def test_a_text_is_no_file(tmp_path):
    with pytest.raises(BadArguments, match=r"args\.model: '/etc/passwd' is not a valid File; write File"):
        ARGUMENTS.encode(("/etc/passwd",), {})
    with pytest.raises(BadArguments, match="is not a valid File"):
        ARGUMENTS.decode(b'{"model":"/etc/passwd"}')  # it would be read on the machine of the worker


@pytest.mark.parametrize(
    "described",
    [
        {"sha256": "../../etc/passwd", "size": 1, "name": "x"},
        {"sha256": "A" * 64, "size": 1, "name": "x"},
        {"sha256": "a" * 64, "size": "1", "name": "x"},
        {"sha256": "a" * 64, "size": 1},
        {"sha256": "a" * 64, "size": 1, "name": "x", "on_change": "explode"},
        [],
    ],
)
def test_a_forged_description_is_refused(described):
    data = values.tagged_json.write_json({"model": {"$": ["file", described]}})
    with pytest.raises(BadArguments, match=r"args\.model"):
        ARGUMENTS.decode(data)


def test_a_decoded_file_is_found_on_first_use(tmp_path):
    (tmp_path / "m.txt").write_text("same")
    data = encoded(File(tmp_path / "m.txt"))
    found: list[File] = []
    with opening(lambda file: (found.append(file), tmp_path / "m.txt")[1], lambda _: b"") as files:
        [model] = ARGUMENTS.decode_named(data).values()
    assert files == [model]
    assert not found
    assert model.path.read_text() == "same"
    assert model.path == tmp_path / "m.txt"
    assert len(found) == 1
    with pytest.raises(BadFile, match="only a description here"):
        ARGUMENTS.decode_named(data)["model"].path  # noqa: B018


def test_threads_do_not_collect_for_one_another(tmp_path):
    (tmp_path / "m.txt").write_text("same")
    refused: list[type] = []

    def encode_elsewhere() -> None:
        try:
            values.encode(File(tmp_path / "m.txt"))
        except NotEncodable as error:
            refused.append(type(error))

    with collecting() as contents:
        thread = threading.Thread(target=encode_elsewhere)
        thread.start()
        thread.join()
    assert refused
    assert not contents

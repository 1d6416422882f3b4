"""The store that docs/how-to/write-a-store.md shows, built from the page: it keeps the whole contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daybreak.core.model import JobSpec
from daybreak.testing import StoreContract

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-store.md"


def file_store() -> type:
    [code] = re.findall(r"```python file=file_store.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"__name__": "file_store"}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - the code of our own page
    made = names["FileStore"]
    assert isinstance(made, type)
    return made


FileStore = file_store()


class TestFileStore(StoreContract):
    @pytest.fixture
    async def store(self, clock, tmp_path):
        async with FileStore(tmp_path / "jobs", clock) as store:
            yield store

    async def test_what_was_accepted_is_there_after_it_is_opened_again(self, tmp_path):
        async with FileStore(tmp_path / "jobs") as store:
            await store.insert([JobSpec(id="a", task="t")])
        async with FileStore(tmp_path / "jobs") as store:
            assert [job and job.id for job in await store.get(["a"])] == ["a"]

    async def test_a_failed_write_changes_nothing(self, tmp_path):
        async with FileStore(tmp_path / "jobs") as store:
            await store.insert([JobSpec(id="a", task="t")])
            (tmp_path / "jobs.new").mkdir()  # so that the file cannot be written
            with pytest.raises(OSError):
                await store.insert([JobSpec(id="b", task="t")])
            assert [job and job.id for job in await store.get(["a", "b"])] == ["a", None]

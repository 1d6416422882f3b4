"""A drop folder on every kind of store that several processes can share."""

from __future__ import annotations

import pytest
from drop_rig import DropRig, digest

from daybreak.core.model import State


@pytest.fixture(params=["postgres", "redis"])
def url(request):
    from server_stores import place_on

    with place_on(request.param) as url:
        yield url


async def test_files_become_jobs_and_move(tmp_path, url, monkeypatch):
    monkeypatch.setenv("DAYBREAK_FILES_CACHE", str(tmp_path / "cache"))
    async with DropRig(tmp_path, url=url) as rig:
        rig.drop("a.json", "hello")
        rig.drop("bad.p1.json", "hello")
        watcher = await rig.start()
        await rig.handle_all(watcher)
        rig.drop("a.json", "hello")
        await rig.handle_all(watcher)
        assert await rig.names(State.COMPLETED) == ["a.json"]
        assert await rig.names(State.FAILED) == ["bad.p1.json"]
        assert all(digest("hello").encode() in job.spec.args for job in await rig.jobs())
        assert {"done/a.json", "failed/bad.p1.json", "failed/bad.p1.json.error.json"} < set(rig.files())

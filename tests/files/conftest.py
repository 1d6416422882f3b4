"""A store of each kind, with the cache of this machine in a folder of the test."""

from __future__ import annotations

import contextlib

import pytest
from files_tasks import app as shared_app


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache of this machine, for this process and for the children of its workers."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DAYBREAK_FILES_CACHE", str(folder))
    from daybreak.files import machine_cache

    machine_cache.machine_cache.cache_clear()
    yield folder
    machine_cache.machine_cache.cache_clear()


@pytest.fixture(params=["sqlite", "memory", "postgres", "redis"])
def url(request, tmp_path):
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/jobs.db"
        elif request.param == "memory":
            yield "memory://"
        else:
            from server_stores import place_on

            yield stack.enter_context(place_on(request.param))


@pytest.fixture
def app(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared_app.use(url)
    yield shared_app
    shared_app.close()


@pytest.fixture
def local(tmp_path, monkeypatch):
    """The app on a SQLite file, where only one kind of store matters."""
    monkeypatch.chdir(tmp_path)
    shared_app.use(f"sqlite:///{tmp_path}/jobs.db")
    yield shared_app
    shared_app.close()

"""Where settings come from, in which order, and what is said of those that cannot be right."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from daybreak import config
from daybreak.core.errors import BadInput, StoreUnavailable, Unsupported
from daybreak.stores import store_for
from daybreak.stores.directory import DirectoryStore
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def resolve(folder: Path, url: str | None = None, app: str | None = None, **environ: str) -> config.Settings:
    return config.resolve(url, app=app, cwd=folder, environ=environ)


def write(folder: Path, text: str, name: str = "daybreak.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


# -- precedence --------------------------------------------------------------------------------------------------------


def test_without_any_word_the_store_is_a_file_here(folder):
    found = resolve(folder)
    assert (found.path, found.folder, found.file, found.app) == (folder / "daybreak.db", folder, None, None)
    assert found.origins == {"url": "the default"}
    assert found.store == f"{folder / 'daybreak.db'} (from the default)"


def test_each_layer_outranks_the_one_below(folder):
    file = write(folder, 'url = "file.db"\napp = "tasks.py:app"')
    assert (resolve(folder).path, resolve(folder).origins["url"]) == (folder / "file.db", str(file))

    environ = {"DAYBREAK_URL": "sqlite:///env.db", "DAYBREAK_APP": "env:app"}
    found = resolve(folder, **environ)
    assert (found.path, found.app) == (folder / "env.db", "env:app")
    assert found.origins == {"url": "DAYBREAK_URL", "app": "DAYBREAK_APP"}

    found = resolve(folder, "code.db", **environ)
    assert (found.path, found.origins["url"]) == (folder / "code.db", "an argument in code")

    with config.command_line(url="cli.db"):
        found = resolve(folder, "code.db", **environ)
    assert (found.path, found.origins["url"]) == (folder / "cli.db", "the command line")
    assert found.app == "env:app"
    assert resolve(folder, "code.db").path == folder / "code.db", "the command line is forgotten after its command"


def test_an_empty_variable_says_nothing(folder):
    assert resolve(folder, DAYBREAK_URL="").origins["url"] == "the default"
    write(folder, 'app = "tasks.py"\n[worker]\nprocesses = 4')
    found = resolve(folder, DAYBREAK_APP="", DAYBREAK_WORKER_PROCESSES="")
    assert (found.app, found.worker) == (f"{folder / 'tasks.py'}", {"processes": 4})


def test_the_file_is_found_from_below_and_relative_paths_count_from_it(folder):
    write(folder, 'url = "data/jobs.db"\napp = "tasks.py:app"')
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    found = resolve(below)
    assert (found.folder, found.path) == (folder, folder / "data" / "jobs.db")
    assert found.app == f"{folder / 'tasks.py'}:app"
    assert resolve(below, "x.db").path == folder / "x.db"


def test_the_nearest_file_counts_and_daybreak_toml_before_pyproject(folder):
    write(folder, 'url = "far.db"')
    below = folder / "a"
    below.mkdir()
    write(below, '[tool.daybreak]\nurl = "near.db"', "pyproject.toml")
    assert resolve(below).path == below / "near.db"
    write(below, 'url = "nearest.db"')
    assert resolve(below).path == below / "nearest.db"


def test_a_pyproject_without_our_table_is_passed_by(folder):
    write(folder, 'url = "far.db"')
    below = folder / "a"
    below.mkdir()
    write(below, '[project]\nname = "uses-daybreak"', "pyproject.toml")
    assert resolve(below).path == folder / "far.db"
    write(below, "this is [ no toml", "pyproject.toml")
    assert resolve(below).path == folder / "far.db"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to own files as another user")
def test_a_file_that_a_stranger_laid_into_a_shared_folder_is_not_ours(folder):
    planted = write(folder, 'app = "evil.py"')
    os.chown(planted, 12345, 12345)
    below = folder / "a"
    below.mkdir()
    assert resolve(below).file == planted, "a folder that only its owner can write to is trusted"
    folder.chmod(0o1777)
    assert resolve(below).file is None
    assert resolve(folder).file == planted, "the folder one stands in was chosen"


def test_worker_settings_come_from_file_and_environment(folder):
    write(
        folder,
        '[worker]\nqueues = ["mail", "reports"]\nprocesses = 4\nlease = "5s"\ngrace = "1m"\nmemory_limit = "512MiB"\n'
        'isolation = "thread"\nallow_commands = true\nname = "w"\nasync_jobs = 7\nrecycle_after = 9\ncancel_grace="2s"',
    )
    found = resolve(folder, DAYBREAK_WORKER_PROCESSES="2", DAYBREAK_WORKER_ALLOW_COMMANDS="no")
    assert found.worker == {
        "queues": ("mail", "reports"), "processes": 2, "lease_for": timedelta(seconds=5), "grace": timedelta(minutes=1),
        "memory_limit": 512 * 1024**2, "isolation": "thread", "allow_commands": False, "name": "w", "async_jobs": 7,
        "recycle_after": 9, "cancel_grace": timedelta(seconds=2),
    }  # fmt: skip
    assert found.origins["worker.processes"] == "DAYBREAK_WORKER_PROCESSES"
    assert found.origins["worker.grace"] == str(folder / "daybreak.toml")


def test_worker_settings_fit_the_worker(folder):
    settings = pytest.importorskip("daybreak.worker.settings")
    write(folder, '[worker]\nqueues = ["mail"]\nprocesses = 4\nlease = "5s"')
    made = settings.WorkerSettings(**resolve(folder).worker)
    assert (made.queues, made.processes, made.lease_for) == (("mail",), 4, timedelta(seconds=5))
    every = {name for name, _ in config._WORKER.values()}
    assert every <= set(settings.WorkerSettings.__struct_fields__)


def test_variables_of_others_are_left_alone(folder):
    # What Kubernetes sets in every container for a service named daybreak-worker.
    assert (
        resolve(folder, DAYBREAK_WORKER_PORT="tcp://10.0.0.1:80", DAYBREAK_WORKER_SERVICE_HOST="10.0.0.1").worker == {}
    )


def test_queues_of_the_environment_are_a_list(folder):
    assert resolve(folder, DAYBREAK_WORKER_QUEUES="mail, reports").worker == {"queues": ("mail", "reports")}


# -- stores by URL -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("jobs.db", "{folder}/jobs.db"),
        ("a/jobs.sqlite", "{folder}/a/jobs.sqlite"),
        ("./jobs.sqlite3", "{folder}/jobs.sqlite3"),
        ("../jobs.db", "{folder.parent}/jobs.db"),
        ("/srv/jobs.db", "/srv/jobs.db"),
        ("sqlite:///jobs.db", "{folder}/jobs.db"),
        ("sqlite:///no-suffix", "{folder}/no-suffix"),
        ("sqlite:////srv/jobs.db", "/srv/jobs.db"),
        ("SQLite:////srv/jobs.db", "/srv/jobs.db"),
        ("sqlite:////srv/two%20words%3F.db", "/srv/two words?.db"),
        ("/srv/100%25.db", "/srv/100%25.db"),
        ("/srv/grüße.db", "/srv/grüße.db"),
    ],
)
def test_what_people_write_for_a_file(folder, said, meant):
    found = resolve(folder, said)
    assert found.path == Path(meant.format(folder=folder))
    assert resolve(folder, found.url) == found, "in full, it means itself"
    store = store_for(found.url)
    assert isinstance(store, SqliteStore)
    assert store.path == found.path


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("dir://jobs", "{folder}/jobs"),
        ("dir:///srv/two%20words?layout=wats", "/srv/two words"),
    ],
)
def test_what_people_write_for_a_folder(folder, said, meant):
    found = resolve(folder, said)
    assert found.path == Path(meant.format(folder=folder))
    assert resolve(folder, found.url) == found, "in full, it means itself"
    store = store_for(found.url)
    assert isinstance(store, DirectoryStore)
    assert store.path == found.path


@pytest.mark.parametrize("option", ["mode=ro", "layout=nobody", "delete_completed=maybe"])
def test_a_folder_with_a_bad_option(option):
    with pytest.raises(BadInput, match="dir://"):
        store_for(f"dir:///srv/jobs?{option}")


def test_home_is_expanded(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert resolve(folder / "x", "~/jobs.db").path == folder / "jobs.db"


def test_memory(folder):
    found = resolve(folder, "memory://")
    assert (found.url, found.path) == ("memory://", None)
    assert isinstance(store_for(found.url), MemoryStore)


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("postgres://ann:hunter2@db/jobs", "postgresql://ann:hunter2@db/jobs"),
        ("PostgreSQL://db:5433/jobs?schema=x", "postgresql://db:5433/jobs?schema=x"),
        ("postgresql:///jobs", "postgresql:///jobs"),
        ("valkey://:hunter2@db:6380/2", "redis://:hunter2@db:6380/2"),
        ("rediss://db", "rediss://db"),
        ("unix:///run/redis.sock?db=1", "redis+unix:///run/redis.sock?db=1"),
    ],
)
def test_servers_are_named_by_url(folder, said, full):
    found = resolve(folder, said)
    assert (found.url, found.path) == (full, None)
    assert "hunter2" not in found.store
    assert store_for(found.url).traits.shared


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:p%40ss@db/jobs?password=x&a=b", "postgresql://ann:***@db/jobs?password=***&a=b"),
        ("redis://:hunter2@db", "redis://:***@db"),
        ("redis://ann@db", "redis://ann@db"),
        ("postgresql://ann:12?34@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:12/34@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:1@2/3@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:1/2?3@db", "postgresql://ann:***@db"),
        ("postgresql://ann:1?a=2@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://db/jobs?PASSWORD=x", "postgresql://db/jobs?PASSWORD=***"),
        ("postgresql://db:5432/jobs?application_name=a@b", "postgresql://db:5432/jobs?application_name=a@b"),
        ("sqlite:////srv/jobs.db", "sqlite:////srv/jobs.db"),
    ],
)
def test_what_people_see_of_a_url_has_no_password(url, told):
    assert config.shown(url) == told


@pytest.mark.parametrize("url", ["postgresql://ann:hunter2@db:54x/jobs", "redis://ann:hunter 2@db", "redis://[::1/0"])
def test_a_url_of_a_server_that_is_none(folder, url):
    with pytest.raises(BadInput) as caught:
        resolve(folder, url)
    assert "hunter" not in str(caught.value)


def test_sqs_is_an_address_for_workers_and_no_store(folder):
    found = resolve(folder, "sqs://ann:hunter2@eu-west-1/jobs")
    assert "hunter2" not in found.store
    with pytest.raises(Unsupported, match="is not a store") as caught:
        store_for(found.url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("mysql://ann:hunter2@db", "mysql:// .* is not a store that Daybreak knows"),
        ("jobs", "write a path that ends in .db"),
        ("dir://", "names no folder"),
        ("dir:jobs", "write dir:// and what follows"),
        (":memory:", "write a path that ends in .db"),
        ("sqlite://jobs.db", "three slashes, sqlite:///jobs.db"),
        ("sqlite://", "three slashes, sqlite:///jobs.db"),
        ("sqlite:///", "names no file"),
        ("sqlite:///a.db?mode=ro", "takes no options"),
        ("sqlite:///a%00.db", "names no file"),
        ("a\0.db", "names no file"),
        ("memory://x", "is not a store that Daybreak knows"),
        ("", "write a path that ends in .db"),
        ("sqlite:jobs.db", "three slashes; write sqlite:///jobs.db"),
        ("SQLite:/srv/jobs.db", "write sqlite:////srv/jobs.db"),
        ("redis:ann:hunter2@db/x.db", "write redis:// and what follows"),
        ("~nobody-of-this-name/x.db", "the home folder of ~nobody-of-this-name is unknown; write the path in full"),
        ("x" * 300 + ".db", r"xxx\.\.\. .*longer than this system allows; use a shorter one"),
        ("l\udce9tin.db", r"l\\udce9tin\.db .*a store needs a path that is UTF-8 text"),
        (3, "is not a store"),
    ],
)
def test_what_is_no_store_is_refused_with_the_right_spelling(folder, said, told):
    with pytest.raises(BadInput, match=told) as caught:
        resolve(folder, said)
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_link_that_leads_back_to_itself_is_no_store(folder):
    (folder / "loop.db").symlink_to("loop.db")
    with pytest.raises(StoreUnavailable, match="leads back to itself: repair it"):
        resolve(folder, "loop.db")


def test_a_wrong_url_says_where_it_was_written(folder):
    with pytest.raises(BadInput, match="DAYBREAK_URL"):
        resolve(folder, DAYBREAK_URL="jobs")
    file = write(folder, 'url = "jobs"')
    with pytest.raises(BadInput, match=str(file)):
        resolve(folder)


# -- files that cannot be right ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url = ", "is not valid TOML"),
        ("a = " + "[" * 100_000, "is not valid TOML"),
        ("urll = 'x.db'", "no setting named urll; did you mean url?"),
        ("zzz = 1", "no setting named zzz; the settings are url, app, files, spool, worker"),
        ("url = 3", "url = 3: write text"),
        ("url = ''", "url = '': write text"),
        ("app = true", "app = True: write text"),
        ("worker = 3", r"worker is a whole number; write a table, \[worker\]"),
        ("[worker]\nprocesse = 3", "no setting named worker.processe; did you mean worker.processes?"),
        ("[worker]\nprocesses = 'four'", "worker.processes = 'four': write a whole number"),
        ("[worker]\nprocesses = true", "worker.processes = True: write a whole number"),
        ("[worker]\nprocesses = 0", "worker.processes = 0: write a whole number from 1"),
        ("[worker]\nqueues = 'mail'", "worker.queues = 'mail': write a list of names"),
        ("[worker]\nqueues = ['mail', 3]", "write a list of names"),
        ("[worker]\ngrace = 10", "worker.grace: a bare number has no unit"),
        ("[worker]\nlease = 'soon'", "worker.lease: 'soon' is not a duration"),
        ("[worker]\nmemory_limit = 'much'", "worker.memory_limit = 'much': write a size"),
        ("[worker]\nmemory_limit = -1", "at least 1 byte"),
        ("[worker]\nisolation = 'fork'", "worker.isolation = 'fork': write"),
        ("[worker]\nallow_commands = 'yes'", "worker.allow_commands = 'yes': write true or false"),
        ("[worker]\nname = 3", "worker.name = 3: write text"),
    ],
)
def test_a_wrong_file_names_itself_and_the_key(folder, text, told):
    file = write(folder, text)
    with pytest.raises(BadInput, match=told) as caught:
        resolve(folder)
    assert str(caught.value).startswith(str(file))
    assert "timedelta" not in str(caught.value), "that is no word of TOML"


def test_the_same_in_pyproject(folder):
    file = write(folder, "[tool.daybreak]\nurll = 'x.db'", "pyproject.toml")
    with pytest.raises(BadInput, match=f"{file}: no setting named urll"):
        resolve(folder)
    write(folder, "[tool]\ndaybreak = 3", "pyproject.toml")
    with pytest.raises(BadInput, match=r"tool\.daybreak is a whole number"):
        resolve(folder)


def test_a_file_that_is_no_text(folder):
    (folder / "daybreak.toml").write_bytes(b"url = '\xff'")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        resolve(folder)


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("DAYBREAK_WORKER_PROCESSES", "four", "DAYBREAK_WORKER_PROCESSES = 'four': write a whole number"),
        ("DAYBREAK_WORKER_PROCESSES", "-1", "write a whole number from 1"),
        ("DAYBREAK_WORKER_ALLOW_COMMANDS", "perhaps", "write true or false"),
        ("DAYBREAK_WORKER_GRACE", "10", "is not a duration"),
        ("DAYBREAK_WORKER_QUEUES", ",", "write a list of names"),
    ],
)
def test_a_wrong_variable_names_itself(folder, variable, text, told):
    with pytest.raises(BadInput, match=told) as caught:
        resolve(folder, **{variable: text})
    assert str(caught.value).startswith(variable)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("512MiB", 512 * 1024**2), ("2GB", 2 * 1000**3), ("1.5 k", 1500), ("100", 100), (77, 77), ("3b", 3)],
)
def test_sizes(said, meant):
    assert config.size(said) == meant


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("store", "store"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("file:///srv/files", "file:///srv/files"),
        ("kept here", "file://{here}/kept%20here"),
    ],
)
def test_where_files_are_kept(tmp_path, text, found):
    settings = config.resolve(cwd=tmp_path, environ={"DAYBREAK_FILES": text})
    assert settings.files == found.format(here=tmp_path)
    assert config.resolve(cwd=tmp_path, environ={}, files=text).files == settings.files
    (tmp_path / "daybreak.toml").write_text(f'files = "{text}"')
    assert config.resolve(cwd=tmp_path, environ={}).files == settings.files


@pytest.mark.parametrize("text", ["ftp://host", "file://relative", "s3://", "a\0b"])
def test_a_place_for_files_that_is_none_is_refused(tmp_path, text):
    with pytest.raises(BadInput, match=r"files = .* \(from DAYBREAK_FILES\): write a folder"):
        config.resolve(cwd=tmp_path, environ={"DAYBREAK_FILES": text})


# -- the spool ---------------------------------------------------------------------------------------------------------


def test_the_spool_is_a_local_file_relative_to_the_project(folder):
    write(folder, "spool = 'jobs.spool'")
    assert config.resolve(cwd=folder, environ={}).spool == folder / "jobs.spool"
    assert config.resolve(cwd=folder, environ={"DAYBREAK_SPOOL": "/var/a.spool"}).spool == Path("/var/a.spool")
    assert config.resolve(spool="b.spool", cwd=folder, environ={"DAYBREAK_SPOOL": "/a"}).spool == folder / "b.spool"
    with pytest.raises(BadInput, match="write the path of a local file"):
        config.resolve(spool="redis://db", cwd=folder, environ={})

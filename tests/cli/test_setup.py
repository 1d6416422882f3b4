"""`daybreak init`, `backup` and `completion`."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import tomllib

import pytest
from click.testing import CliRunner

from daybreak.cli.root import root
from daybreak.core.errors import BadInput, StoreCorrupt, StoreUnavailable
from daybreak.stores.sqlite.backup import backup

# -- init --------------------------------------------------------------------------------------------------------------


def test_init_writes_settings_that_hold_and_tasks_that_load(cli, place, tmp_path):
    told = cli("init").stdout
    assert "daybreak.toml written" in told
    assert "daybreak submit greet name=Ann --wait" in told
    assert tomllib.loads((tmp_path / "daybreak.toml").read_text())["app"] == "tasks.py:app"
    job = place.get(cli("submit", "greet", "name=Ann").stdout.strip())
    assert job.spec.options.retry.attempts == 3
    assert "did you mean 'greet'?" in cli("submit", "gret", code=2).stderr


def test_init_takes_the_store_and_the_app_that_are_named(cli, tmp_path):
    cli("init", "--url", "my jobs.db", "--app", "shop.jobs:app")
    said = tomllib.loads((tmp_path / "daybreak.toml").read_text())
    assert (said["url"], said["app"]) == ("my jobs.db", "shop.jobs:app")
    assert not (tmp_path / "tasks.py").exists()


def test_init_overwrites_nothing(cli, tmp_path):
    (tmp_path / "tasks.py").write_text("mine")
    assert "tasks.py exists already; it was not changed" in cli("init").stdout
    assert (tmp_path / "tasks.py").read_text() == "mine"
    assert "Start a worker" not in cli("init").stdout


def test_init_elsewhere(cli, tmp_path):
    assert "there is no folder nowhere" in cli("init", "nowhere", code=2).stderr
    (tmp_path / "there").mkdir()
    cli("init", "there")
    assert (tmp_path / "there" / "daybreak.toml").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_init_where_nothing_can_be_written(cli, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "cannot be written: Permission denied" in cli("init", code=2).stderr
    finally:
        tmp_path.chmod(0o700)


# -- backup ------------------------------------------------------------------------------------------------------------


def test_a_backup_is_a_store_with_the_same_jobs(cli, ask, place, tmp_path):
    job = place.submit("mail", {"to": "ann"})
    place.fail()
    told = cli("backup", "copy.db").stdout
    assert told.startswith(f"{tmp_path / 'copy.db'} written: ")
    assert ask("jobs", "show", job, "--json", "--url", "copy.db") == ask("jobs", "show", job, "--json")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_backup_overwrites_only_when_told_to(cli, place, tmp_path):
    place.submit()
    (tmp_path / "copy.db").write_text("precious")
    assert "exists already" in cli("backup", "copy.db", code=2).stderr
    assert (tmp_path / "copy.db").read_text() == "precious"
    cli("backup", "copy.db", "--force")
    assert "1 job" in cli("jobs", "--url", "copy.db").stdout


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("daybreak.db", "is the store itself"),
        ("daybreak.db-locks/write.lock", "belongs to the store itself"),
        ("daybreak.db-locks/copy.db", "belongs to the store itself"),
        ("daybreak.db-wal", "belongs to the store itself"),
        ("folder", "is a folder"),
        ("nowhere/copy.db", "its folder does not exist"),
        ("live.db", "is in use as a store"),
    ],
)
def test_a_backup_is_never_written_over_what_matters(cli, place, tmp_path, target, told):
    place.submit()
    (tmp_path / "folder").mkdir()
    (tmp_path / "live.db-wal").touch()
    assert told in cli("backup", target, "--force", code=2).stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX files")
@pytest.mark.parametrize("words", [(), ("--force",)], ids=["plain", "force"])
@pytest.mark.parametrize("kind", ["FIFO", "symbolic link", "symbolic link to nothing", "socket"])
def test_only_a_regular_file_is_overwritten(cli, place, tmp_path, kind, words):
    place.submit()
    target, pointed = tmp_path / "copy.db", tmp_path / "precious"
    match kind:
        case "FIFO":
            os.mkfifo(target)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind("copy.db")
        case _:
            target.symlink_to(pointed)
    if kind == "symbolic link":
        pointed.write_text("precious")
    before = target.lstat()
    told = cli("backup", "copy.db", *words, code=2).stderr
    assert f"{target} is a {kind.removesuffix(' to nothing').replace('socket', 'device or other special file')}" in told
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert pointed.exists() == (kind == "symbolic link")


def test_what_was_put_there_while_the_copy_was_made_is_not_overwritten_either(place, tmp_path):
    place.submit()
    target = tmp_path / "copy.db"
    with pytest.raises(BadInput, match="is a symbolic link"):
        backup(place.path, target, overwrite=True, on_progress=lambda _: target.is_symlink() or target.symlink_to("x"))
    assert target.is_symlink()


@pytest.mark.parametrize("name", ["copy.db", "my copy.db", "noext", "odd ?#%41 name", "it's.db"])
def test_the_copy_is_named_so_that_it_can_be_looked_into(cli, place, name):
    job = place.submit()
    words = shlex.split(cli("backup", name).stdout.partition("List its jobs with: ")[2])
    assert words[0] == "daybreak"
    assert job in cli(*words[1:]).stdout


def test_a_backup_taken_while_others_write_is_consistent(place, tmp_path):
    """Jobs come in batches of 100: a copy holds whole batches only, and its counts equal a recount."""
    place.submit()
    stop = threading.Event()

    async def write(client):
        while not stop.is_set():
            await client.submit_many([client.spec("mail", {"text": "x" * 200}) for _ in range(100)])

    writer = threading.Thread(target=place.do, args=(write,))
    writer.start()
    try:
        told = []
        for n in range(5):
            backup(place.path, tmp_path / f"copy{n}.db", on_progress=told.append)
    finally:
        stop.set()
        writer.join()
    assert told[-1] == 1
    for n in range(5):
        copy = sqlite3.connect(tmp_path / f"copy{n}.db")
        [(jobs,)] = copy.execute("SELECT count(*) FROM job")
        [(tallied,)] = copy.execute("SELECT sum(n) FROM tally")
        assert jobs == tallied
        assert jobs % 100 == 1
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        copy.close()


def test_a_damaged_store_is_not_copied(place, tmp_path):
    place.submit()
    reader = sqlite3.connect(place.path)
    [(page,)] = reader.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'ready'")
    reader.close()
    data = bytearray(place.path.read_bytes())
    data[(page - 1) * 4096 + 7] = 200  # a number that does not fit the rest of the page: readers would not notice
    (tmp_path / "damaged.db").write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"is damaged .*page {page}"):
        backup(tmp_path / "damaged.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        ("no database " * 1000, StoreCorrupt, "is not a SQLite file"),
        ("", StoreUnavailable, "is empty"),
        (None, StoreUnavailable, "no store"),
    ],
)
def test_what_is_no_store_is_not_copied(tmp_path, content, error, told):
    if content is not None:
        (tmp_path / "x.db").write_text(content)
    with pytest.raises(error, match=told):
        backup(tmp_path / "x.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("url", ["memory://", "postgresql://ann:hunter2@db/jobs"])
def test_what_is_no_file_cannot_be_copied(cli, url):
    told = cli("backup", "x.db", "--url", url, code=2).stderr
    assert "is not a file" in told
    assert "hunter2" not in told


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(cli, shell):
    told = cli("completion", shell).stdout
    assert "_DAYBREAK_COMPLETE" in told
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=told, text=True, check=True)


def test_shells_that_are_not_known(cli):
    assert "powershell" in cli("completion", "powershell", code=2).stderr


def completed(*words: str) -> list[str]:
    env = {
        "_DAYBREAK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["daybreak", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(root, env=env)
    assert (result.exit_code, result.stderr) == (0, "")
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_what_can_be_completed(place):
    job = place.submit("mail", queue="post")
    place.worker("paint")
    assert completed("jo") == ["jobs"]
    assert completed("jobs", "--state", "c") == ["completed", "cancelled"]
    assert completed("jobs", "--queue", "p") == ["post"]
    assert completed("submit", "p") == ["paint"]
    assert completed("submit", "m") == ["mail"]
    assert completed("jobs", "show", job[:4]) == [job]
    assert completed("submit", "x", "--priority", "h") == ["high"]
    assert completed("queues", "pause", "") == ["post"]


def test_completion_makes_no_store_and_no_noise(tmp_path):
    assert completed("jobs", "--queue", "p") == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "daybreak.toml").write_text("broken")
    assert completed("jobs", "--queue", "p") == []


def test_completion_by_the_real_shell(place, tmp_path):
    if not shutil.which("bash"):
        pytest.skip("no bash here")
    place.submit("mail", queue="post")
    env = {
        **os.environ,
        "_DAYBREAK_COMPLETE": "bash_complete",
        "COMP_WORDS": "daybreak jobs --queue p",
        "COMP_CWORD": "3",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "daybreak.cli"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert (ran.stdout.strip(), ran.stderr) == ("plain,post", "")

"""Who made a change is written in one form, wherever it was made."""

from __future__ import annotations

from click.testing import CliRunner

from daybreak import Daybreak
from daybreak.cli.root import root


def echo(n: int = 0) -> int:
    return n


def test_python_and_the_shell_say_who_submitted_in_the_same_way(tmp_path, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "mac")
    url = str(tmp_path / "who.db")
    with Daybreak(url) as app:
        ours = app.task(echo).submit(1)
        said = CliRunner().invoke(root, ["submit", "echo", "--url", url], catch_exceptions=False)
        theirs = app.job(said.stdout.split()[0])
        assert [job.history()[0].by for job in (ours, theirs)] == ["ann@mac", "ann@mac"]


def test_a_user_without_a_name_is_still_told_apart(monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr("os.getuid", lambda: 1234, raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "m\x1bac")
    assert Daybreak("memory://").by == "user 1234@m\\x1bac"

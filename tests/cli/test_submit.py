"""`daybreak submit`: what is typed becomes the job that was meant, or an error that says why not."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from daybreak import values
from daybreak.core.model import Put, State
from daybreak.policy.admit import ARGS_LIMIT
from daybreak.policy.durations import Durations, Hour, class_of, hour_of
from daybreak.store.protocol import Purge

APP = """
from datetime import datetime
from enum import Enum
from daybreak import Context, Daybreak, File, Secret

app = Daybreak(%s)

class Color(Enum):
    RED = "red"
    BLUE = "blue"

@app.task(queue="paint", priority="high", retry=7, timeout="5m", version=3)
def paint(
    ctx: Context, color: Color, n: int, when: datetime | None = None, text: str = "",
    password: Secret[str] | None = None,
):
    return n

@app.task
def load(model: File | None):
    return model

@app.task
def anything(x, y=None):
    return x
"""


@pytest.fixture
def app(tmp_path: Path) -> str:
    (tmp_path / "tasks.py").write_text(APP % "")
    return "tasks.py"


@pytest.mark.parametrize("path", ["model.bin", "@model.bin"])
def test_the_file_of_a_task_is_given_by_its_path(cli, place, app, tmp_path, path):
    (tmp_path / "model.bin").write_bytes(b"\xff\x00")
    result = cli("submit", "load", f"model={path}", "--app", app)
    assert args_of(place, result.stdout)["model"].name == "model.bin"


def args_of(place, job: str):
    return values.decode(place.get(job.strip()).spec.args)


def test_it_prints_the_id_and_nothing_else(cli, place):
    result = cli("submit", "mail", "to=ann")
    job = place.get(result.stdout.removesuffix("\n"))
    assert (job.spec.task, job.state, job.spec.version) == ("mail", State.QUEUED, 1)
    assert "@" in job.spec.by


def test_the_first_job_makes_the_store_and_says_so(cli, tmp_path):
    assert f"created the store {tmp_path / 'daybreak.db'} (from the default)" in cli("submit", "mail").stderr
    assert "created the store" not in cli("submit", "mail").stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("7", 7), ("1.5", 1.5), ("true", True), ("null", None), ("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}),
        ('"7"', "7"), ("ann", "ann"), ("", ""), ("a=b", "a=b"), ("[1,", "[1,"), ("@@home", "@home"), ("Grüße", "Grüße"),
        ("99999999999999999999999", 99999999999999999999999), ("\x1b[31m", "\x1b[31m"), ("-1", -1),
    ],
)  # fmt: skip
def test_without_an_app_a_value_is_json_if_it_parses_else_text(cli, place, typed, meant):
    assert args_of(place, cli("submit", "mail", f"x={typed}").stdout) == {"x": meant}


def test_nan_survives(cli, place):
    assert str(args_of(place, cli("submit", "mail", "x=NaN").stdout)["x"]) == "nan"


def test_arguments_from_files(cli, place, tmp_path):
    (tmp_path / "text.txt").write_text("hello\n")
    (tmp_path / "data.json").write_text('{"a": [1]}')
    (tmp_path / "args.json").write_text('{"to": "ann", "n": 1}')
    job = cli("submit", "mail", "text=@text.txt", "data=@data.json", "--args", "args.json", "n=2").stdout
    assert args_of(place, job) == {"to": "ann", "n": 2, "text": "hello\n", "data": {"a": [1]}}
    assert args_of(place, cli("submit", "mail", "--args", "-", stdin='{"x": 1}').stdout) == {"x": 1}


def test_every_option_reaches_the_job(cli, place):
    job = place.get(
        cli(
            "submit", "mail", "--priority", "HIGH", "--queue", "post", "--delay", "1h30m", "--key", "k",
            "--unique", "u", "--tag", "a", "--tag", "b", "--meta", "x=1", "--meta", "y=a=b", "--owner", "ann",
            "--retry", "7", "--timeout", "10m", "--expires-in", "2d", "--version", "4",
        ).stdout.strip()
    )  # fmt: skip
    spec = job.spec
    assert (spec.priority, spec.queue, spec.delay, spec.key, spec.unique) == (
        2,
        "post",
        timedelta(minutes=90),
        "k",
        "u",
    )
    assert (spec.tags, spec.meta, spec.owner, spec.version) == (("a", "b"), {"x": "1", "y": "a=b"}, "ann", 4)
    assert spec.options.retry.attempts == 7
    assert (spec.options.timeout, spec.options.expires_in) == (timedelta(minutes=10), timedelta(days=2))
    assert job.state is State.SCHEDULED


def test_a_time_limit_is_as_written_unless_adaptive_is_asked_for(cli, place):
    written = cli("submit", "mail", "--timeout", "4s").stdout.strip()
    follows = cli("submit", "mail", "--timeout", "adaptive:4s").stdout.strip()
    for job, adaptive in ((written, False), (follows, True)):
        options = place.get(job).spec.options
        assert (options.timeout, options.adaptive) == (timedelta(seconds=4), adaptive)
    assert re.search(r"^time limit +4 s \(written\)$", cli("jobs", "show", written).stdout, re.MULTILINE)
    shown = cli("jobs", "show", follows).stdout
    assert re.search(r"^time limit +4 s \(adaptive, base 4 s\)$", shown, re.MULTILINE)


def test_of_an_adaptive_limit_what_was_seen_is_shown(cli, place):
    job = cli("submit", "mail", "--timeout", "adaptive:4s").stdout.strip()
    hour = Hour({class_of(0.01): 500})
    durations = Durations(hours={hour_of(datetime.now(UTC)): hour})
    place.do(
        lambda client: client.store.put(
            [Put(kind="durations", name="execution mail", value=msgspec.json.encode(durations))]
        )
    )
    shown = cli("jobs", "show", job).stdout
    assert re.search(r"^time limit +2 s \(adaptive, base 4 s\)$", shown, re.MULTILINE)


def test_a_preset_and_an_instant(cli, place):
    job = place.get(cli("submit", "mail", "--retry", "upload", "--run-at", "2099-01-31T18:00+01:00").stdout.strip())
    assert job.spec.options.retry.attempts == 5
    assert job.run_at == datetime(2099, 1, 31, 17, 0, tzinfo=UTC)


def test_the_same_key_gives_the_same_job_and_other_content_is_a_conflict(cli):
    first = cli("submit", "mail", "to=ann", "--key", "k").stdout
    assert cli("submit", "mail", "to=ann", "--key", "k").stdout == first
    assert "belongs to job" in cli("submit", "mail", "to=bob", "--key", "k", code=1).stderr


def test_a_key_whose_job_was_removed_is_free(cli):
    first = cli("submit", "mail", "to=ann", "--key", "k").stdout.strip()
    cli("jobs", "cancel", first)
    cli("jobs", "remove", first, "--yes")
    assert cli("submit", "mail", "to=bob", "--key", "k").stdout.strip() != first


def test_a_key_whose_job_was_purged_is_told_with_an_exit_code_of_its_own(cli, place):
    first = cli("submit", "mail", "to=ann", "--key", "k").stdout.strip()
    cli("jobs", "cancel", first)
    revision = place.get(first).revision
    place.do(lambda client: client.store.purge(Purge(moved=((first, revision),))))
    told = cli("submit", "mail", "to=ann", "--key", "k", code=4)
    assert (told.stdout, f"job {first} ran under idempotency key 'k'" in told.stderr) == ("", True)
    assert "use a new key" in told.stderr


def test_a_running_job_may_be_submitted_again_under_its_unique_name(cli, place):
    words = ["submit", "mail", "--unique", "u", "--unique-while", "waiting"]
    first = cli(*words).stdout
    assert cli(*words).stdout == first
    assert place.get(first.strip()).spec.unique_while == "waiting"
    assert "unfinished" in cli("submit", "mail", "--unique", "u", "--unique-while", "now", code=2).stderr


def test_a_full_queue_is_told(cli, place):
    place.do(lambda client: client.set_queue("mail", capacity=0))
    assert "is full" in cli("submit", "x", "--queue", "mail", code=1).stderr


def test_json_shows_the_job(ask):
    data = ask("submit", "mail", "to=ann", "--json")
    assert (data["task"], data["args"], data["state"]) == ("mail", {"to": "ann"}, "queued")


# -- what cannot be right ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--priority", "urgent"], "is not a priority"),
        (["--priority", "-1"], "integer from 0 to 10"),
        (["--priority", "5.5"], "is not a priority"),
        (["--delay", "90"], "has no unit; write 90s"),
        (["--delay", "soon"], "is not a duration"),
        (["--delay", "200000d"], "out of range"),
        (["--timeout", "0s"], "timeout must be longer than 0"),
        (["--timeout", "adaptive:0s"], "timeout must be longer than 0"),
        (["--timeout", "adaptive:4"], "has no unit; write 4s"),
        (["--timeout", "adaptive"], "is not a duration"),
        (["--run-at", "2026-01-31T18:00"], "has no time zone; write 2026-01-31T18:00+00:00"),
        (["--run-at", "tomorrow"], "is not a date and time"),
        (["--run-at", "9999-12-31T23:59-12:00"], "out of range"),
        (["--delay", "1s", "--run-at", "2026-01-31T18:00Z"], "give delay or run_at, not both"),
        (["--retry", "0"], "the first attempt included"),
        (["--retry", "uplaod"], "did you mean upload?"),
        (["--meta", "x"], "write name=value"),
        (["--version", "-1"], "--version"),
        (["to"], "argument 'to': write name=value"),
        (["=x"], "write name=value"),
        (["to=1", "to=2"], "argument 'to' is given twice"),
        (["x=@missing.txt"], "cannot read missing.txt: No such file"),
        (["x=@."], "cannot read .: Is a directory"),
        (["x=@"], "cannot read"),
        (["--args", "missing.json"], "cannot read missing.json"),
        (["--args", "list.json"], "expected a JSON object"),
        (["--args", "bad.json"], "is not valid JSON"),
        (["--args", "deep.json"], "nested deeper"),
        (["--args", "deep100.json"], "nested deeper"),
        (["--args", "binary.bin"], "is not UTF-8 text"),
        (["x=@binary.bin"], "is not UTF-8 text"),
        (["x=@big.txt"], "larger than the limit of 1,048,576 bytes"),
        (["--args", "big.txt"], "larger than the limit of 1,048,576 bytes"),
        (["--queue", "a\x1bb"], "control character"),
        (["--queue", "q" * 201], "the limit is 200"),
        (["--tag", "a\nb"], "control character"),
        (["x=" + "y" * 70_000, *[f"x{i}=" + "y" * 70_000 for i in range(20)]], "the limit is 1,048,576"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_right_is_refused_in_one_sentence(cli, tmp_path, words, told):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "deep.json").write_text('{"x": ' + "[" * 100_000)
    (tmp_path / "deep100.json").write_text('{"x": ' + "[" * 100 + "]" * 100 + "}")
    (tmp_path / "binary.bin").write_bytes(b"\xff\x00")
    (tmp_path / "big.txt").write_text("x" * (2 * ARGS_LIMIT))
    result = cli("submit", "mail", *words, code=2)
    assert told in result.stderr
    assert result.stdout == ""
    assert len(result.stderr) < 1000


@pytest.mark.parametrize("option", ["--queue", "--key", "--unique", "--owner", "--tag"])
def test_an_empty_value_is_taken_for_a_variable_that_is_not_set(cli, tmp_path, option):
    told = cli("submit", "mail", option, "", code=2).stderr
    assert f"'{option}'" in told
    assert "the value is empty (is a shell variable not set?); give a value, or leave it out" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task", ["", "a\nb", "x" * 201, "\x1b[31m"])
def test_names_of_tasks_are_printable_text(cli, task):
    assert "\x1b" not in cli("submit", task, code=2).stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read anything")
def test_a_file_that_may_not_be_read(cli, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "x.json").chmod(0)
    assert "Permission denied" in cli("submit", "mail", "--args", "x.json", code=2).stderr


# -- who runs it -------------------------------------------------------------------------------------------------------


def test_it_says_if_nobody_is_there_to_run_it(cli, place):
    assert "no worker is running, so the job waits" in cli("submit", "mail").stderr
    place.worker("other")
    assert "no live worker has the task 'mail'" in cli("submit", "mail").stderr
    place.worker(("mail", 2))
    assert "live workers have version 2 of 'mail', not version 1" in cli("submit", "mail").stderr
    place.worker("mail")
    assert cli("submit", "mail").stderr == ""
    place.worker("mail", seen=timedelta(minutes=1))
    assert "no worker is running" in cli("submit", "mail").stderr


# -- with an app -------------------------------------------------------------------------------------------------------


def test_with_an_app_arguments_are_read_by_annotation_and_the_task_gives_its_defaults(cli, place, app):
    job = place.get(cli("submit", "paint", "color=red", "n=3", "text=7", "--app", app).stdout.strip())
    assert json.loads(job.spec.args) == {"color": "red", "n": 3, "text": "7"}
    assert (job.spec.queue, job.spec.priority, job.spec.version) == ("paint", 2, 3)
    assert (job.spec.options.retry.attempts, job.spec.options.timeout) == (7, timedelta(minutes=5))


def test_the_command_line_goes_before_the_defaults_of_the_task(cli, place, app):
    words = ["--queue", "q", "--priority", "low", "--retry", "1", "--timeout", "1s"]
    job = place.get(cli("submit", "paint", "color=red", "n=3", "--app", app, *words).stdout.strip())
    assert (job.spec.queue, job.spec.priority, job.spec.options.retry.attempts) == ("q", 7, 1)
    assert job.spec.options.timeout == timedelta(seconds=1)


def test_a_file_with_arguments_is_read_by_annotation_too(cli, place, app, tmp_path):
    (tmp_path / "args.json").write_text('{"color": "blue", "n": 1, "when": "2026-01-31T18:00:00+00:00"}')
    job = place.get(cli("submit", "paint", "n=5", "--args", "args.json", "--app", app).stdout.strip())
    assert "2026-01-31T18:00:00" in job.spec.args.decode()
    assert values.decode(job.spec.args)["n"] == 5


def test_with_an_app_a_note_says_that_the_code_of_a_task_has_changed(cli, app, tmp_path):
    first = cli("submit", "anything", "x=1", "--key", "k", "--app", app)
    assert "code" not in first.stderr
    file = tmp_path / app.partition(":")[0]
    text = file.read_text()
    assert "def anything(x, y=None):" in text
    file.write_text(text.replace("def anything(x, y=None):", "def anything(x, y=7):"))
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "") == str(file):
            del sys.modules[name]
    again = cli("submit", "anything", "x=1", "--key", "k", "--app", app)
    assert again.stdout == first.stdout
    assert f"daybreak jobs remove {first.stdout.strip()}" in again.stderr


def test_with_an_app_the_same_key_is_the_same_job_only_for_the_same_arguments(cli, app):
    first = cli("submit", "anything", "x=1", "--key", "k", "--app", app).stdout
    assert cli("submit", "anything", "x=1", "--key", "k", "--app", app).stdout == first
    cli("submit", "anything", "x=2", "--key", "k", "--app", app, code=1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pain", "n=3"], "no task named 'pain'; did you mean 'paint'?"),
        (["paint", "color=red", "n=three"], "args.n: 'three' is not a valid int"),
        (["paint", "color=green", "n=3"], "args.color"),
        (["paint", "n=3"], "is missing 'color'"),
        (["paint", "color=red", "n=3", "m=4"], "has no parameter 'm'"),
        (
            ["paint", "color=red", "n=3", "when=2026-01-31T18:00:00", "--version", "1"],
            "this app has version 3 of the task 'paint', not 1",
        ),
    ],
)
def test_with_an_app_what_does_not_fit_is_refused_by_name(cli, app, words, told):
    result = cli("submit", *words, "--app", app, code=2)
    assert told in result.stderr


def test_a_secret_is_never_shown(cli, app):
    job = cli("submit", "paint", "color=red", "n=3", "password=hunter2", "--app", app).stdout.strip()
    for words in (["jobs", "show", job], ["jobs", "show", job, "--json"], ["jobs", "--json"]):
        told = cli(*words).stdout
        assert "hunter2" not in told
        assert "***" in told


def test_the_app_of_the_settings_is_used(cli, place, app, tmp_path, monkeypatch):
    (tmp_path / "daybreak.toml").write_text('app = "tasks.py:app"')
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert place.get(cli("submit", "paint", "color=red", "n=3").stdout.strip()).spec.queue == "paint"
    assert "did you mean 'paint'?" in cli("submit", "pain", code=2).stderr


def test_a_store_named_in_code_is_where_the_jobs_go_and_the_difference_is_said(cli, tmp_path):
    (tmp_path / "tasks.py").write_text(APP % "'in-code.db'")
    (tmp_path / "daybreak.toml").write_text('app = "tasks.py:app"')
    result = cli("submit", "anything", "x=1")
    assert "so the job goes there. Other commands use" in result.stderr
    assert not (tmp_path / "daybreak.db").exists()
    assert "anything" in cli("jobs", "--app", "tasks.py:app").stdout
    assert "anything" in cli("jobs", "--url", "in-code.db").stdout
    cli("submit", "anything", "x=1", "--url", "cli.db")
    assert (tmp_path / "cli.db").exists(), "the command line goes before the code"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def x(:", "SyntaxError"),
        ("\n\n1 / 0", "ZeroDivisionError: division by zero"),
        ("x = 1", "no Daybreak app"),
        ("import sys\nsys.exit(3)", "calls sys.exit() while it is imported"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_told_with_its_place(cli, tmp_path, code, told):
    (tmp_path / "broken.py").write_text(code)
    result = cli("submit", "mail", "--app", "broken.py", code=2)
    assert told in result.stderr
    if "Error" in told:
        assert f"broken.py, line {code.count(chr(10)) + 1}" in result.stderr


def test_what_an_app_prints_while_it_is_loaded_does_not_stand_before_the_id(cli, place, tmp_path):
    (tmp_path / "tasks.py").write_text("print('loading')\n" + APP % "")
    result = cli("submit", "anything", "x=1", "--app", "tasks.py")
    assert place.get(result.stdout.removesuffix("\n")).spec.task == "anything"
    assert "loading" in result.stderr


def test_an_app_that_is_not_there(cli):
    assert "there is no file missing.py" in cli("submit", "mail", "--app", "missing.py", code=2).stderr
    assert "no module 'nowhere'" in cli("submit", "mail", "--app", "nowhere:app", code=2).stderr


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_waiting_too_long_is_exit_5_and_the_job_goes_on(cli, place):
    result = cli("submit", "mail", "--wait", "--timeout-wait", "10ms", code=5)
    assert result.stdout == ""
    [job] = place.do(lambda client: client.find()).jobs
    assert f"submitted {job.id}" in result.stderr
    assert "is still queued after 0.01 s" in result.stderr


@pytest.fixture
def finished(place, cli):
    """Submits with a key whose job has ended already, and waits for it."""

    def wait(code: int):
        return cli("submit", "mail", "--key", "k", "--wait", code=code)

    return wait


def test_wait_prints_the_result_as_json(place, finished):
    place.complete(values.encode({"sum": 3, "text": "\x1b[31m"}), key="k")
    result = finished(0)
    assert json.loads(result.stdout) == {"sum": 3, "text": "\x1b[31m"}
    assert "\x1b" not in result.stdout


def test_wait_says_how_it_failed_and_exits_1(place, finished):
    job = place.fail("no \x1b[31m", key="k")
    result = finished(1)
    assert result.stdout == ""
    assert f"job {job} (mail) failed (error, attempt 1): ValueError: no \\x1b[31m" in result.stderr
    assert f"daybreak jobs show {job}" in result.stderr


def test_wait_with_json_prints_the_job_however_it_ended(cli, place, ask):
    done, broken, stopped = place.complete(key="a"), place.fail("no", key="b"), place.submit(key="c")
    place.do(lambda client: client.cancel(stopped))
    for key, job, code in (("a", done, 0), ("b", broken, 1), ("c", stopped, 1)):
        result = cli("submit", "mail", "--key", key, "--wait", "--json", code=code)
        assert json.loads(result.stdout) == ask("jobs", "show", job, "--json")
        assert ("Error: " in result.stderr) == bool(code)


def test_wait_says_if_it_was_cancelled(place, finished):
    job = place.submit(key="k")
    place.do(lambda client: client.cancel(job))
    assert "was cancelled" in finished(1).stderr

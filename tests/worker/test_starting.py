"""How a worker starts: code that cannot be loaded is reported in one sentence; lifespan, setup and wrap run."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import sys
import time

import pytest
import worker_around
from worker_processes import read_lines, until
from worker_tasks import app, noop

from daybreak import JobFailed, State
from daybreak.core.errors import DaybreakError

HEAD = "from daybreak import Daybreak\napp = Daybreak()\n@app.task\ndef work() -> int:\n    return 1\n"


def broken(stage, text: str, name: str = "broken.py"):
    path = stage.file(name)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name\n" + HEAD, "nothing_of_that_name"),
        ("def oops(:\n", "SyntaxError"),
        (HEAD + "raise ValueError('the config is missing')\n", "the config is missing"),
        ("x = 1\n", "no Daybreak app"),
        ("from daybreak import Daybreak\napp = Daybreak()\n", "no tasks"),
        (HEAD + "work.submit()\n", "while a worker imports this module"),
        (HEAD + "@app.setup\ndef prepare():\n    raise OSError('no licence server')\n", "no licence server"),
        (HEAD + "@app.setup\nasync def prepare():\n    raise OSError('no licence server')\n", "no licence server"),
        (HEAD + "@app.lifespan\ndef life():\n    raise OSError('no licence server')\n    yield\n", "no licence server"),
        (HEAD + "import os\n@app.setup\ndef prepare():\n    os._exit(5)\n", "exit code 5"),
        (HEAD + "import os, signal\n@app.setup\ndef prepare():\n    os.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    ],
    ids=[
        "missing module", "syntax", "raises", "no app", "no tasks", "submits", "setup raises", "async setup raises",
        "lifespan raises", "setup ends the process", "setup crashes",
    ],
)  # fmt: skip
def test_a_worker_that_cannot_load_the_code_ends_with_the_reason(stage, text, said):
    with stage.process("--processes", "2", target=broken(stage, text)) as worker:
        code = worker.wait()
        assert code in {1, 2}, worker.said
        assert said in worker.said


def test_code_that_cannot_be_loaded_raises_from_python(stage, monkeypatch):
    path = broken(
        stage, HEAD + "@app.setup\ndef prepare():\n    raise OSError('no licence server')\n", "setup_fails.py"
    )
    monkeypatch.syspath_prepend(str(path.parent))
    import setup_fails

    setup_fails.app.use(stage.url)
    try:
        with pytest.raises(DaybreakError, match="no licence server"), setup_fails.app.worker(processes=1):
            pytest.fail("it started")
    finally:
        setup_fails.app.close()


def test_a_missing_file_is_reported_in_one_sentence(stage):
    with stage.process(target=stage.file("nowhere.py")) as worker:
        assert worker.wait() != 0
        assert "nowhere.py" in worker.said
        assert "Traceback" not in worker.said


def test_a_child_that_cannot_be_replaced_does_not_end_the_worker(stage, monkeypatch):
    """The code of a running worker was changed and cannot be imported: running jobs continue, and the error is
    logged."""
    path = broken(stage, HEAD + "import os\n@app.task(retry=1)\ndef die():\n    os._exit(1)\n", "turns_bad.py")
    monkeypatch.syspath_prepend(str(path.parent))
    import turns_bad

    turns_bad.app.use(stage.url)
    good = path.read_text()
    with stage.process("--processes", "1", target=path) as worker:
        assert turns_bad.work.submit().result(timeout="30s") == 1
        path.write_text("raise RuntimeError('half saved')\n")
        with pytest.raises(JobFailed):
            turns_bad.die.submit().result(timeout="30s")
        until(lambda: "half saved" in worker.said, "it says what is wrong")
        path.write_text(good)
        assert turns_bad.work.submit().result(timeout="30s") == 1, "once it is mended, work goes on"
        assert worker.stop() == 0
    turns_bad.app.close()


# -- around jobs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def around(stage):
    worker_around.app.use(stage.url)
    yield worker_around
    worker_around.app.close()


def test_lifespan_setup_and_wrap_run_around_jobs(around):
    with around.app.worker(processes=2):
        licence, solver, pool, supervisor, child = around.look.submit().result(timeout="30s")
        assert (licence, solver, pool) == ("B-52", f"solver of {child} with B-52", [1, 2, 3])
        assert supervisor == os.getpid() != child
        licence, is_same, pool, supervisor, child = around.alook.submit().result(timeout="30s")
        assert (licence, is_same, pool) == ("B-52", True, [1, 2, 3])
        assert supervisor == os.getpid() != child
        job = around.look.submit()
        job.result(timeout="30s")
        assert [line["word"] for line in read_lines(job=job.id)] == ["before", "at work", "after"]
        until(lambda: len(read_lines(word="async set up")) == 3, "every child is set up")
        assert not read_lines(word="life ends")
    words = [line["word"] for line in read_lines()]
    assert words.count("life begins") == words.count("life ends") == 1
    assert words.count("async life begins") == words.count("async life ends") == 1
    assert words.count("set up") == words.count("async set up") == 3, "once in each child"
    assert words.index("life begins") < words.index("set up")


def test_setup_functions_are_finished_when_the_worker_stops(around):
    with around.app.worker(processes=2):
        around.look.submit().result(timeout="30s")
        until(lambda: len(read_lines(word="async set up")) == 3, "every child is set up")
    words = [line["word"] for line in read_lines()]
    assert words.count("torn down") == 3, "once in each child"
    assert max(n for n, word in enumerate(words) if word == "torn down") < words.index("life ends")


def test_setup_functions_are_finished_when_a_child_is_replaced(around):
    with around.app.worker(processes=1, recycle_after=1):
        for _ in range(3):
            around.look.submit().result(timeout="30s")
        until(lambda: len(read_lines(word="torn down")) >= 2, "the first two were let go")


def test_an_error_that_a_wrap_swallows_does_not_break_the_runner(around):
    with around.app.worker(processes=1):
        job = around.miss.submit().wait(timeout="30s")
    assert "UnboundLocalError" not in str(job.failure)


def test_a_worker_adds_no_handler_to_the_root_logger_and_its_children_neither(stage, monkeypatch):
    path = broken(
        stage,
        "import logging\n" + HEAD + "@app.task\ndef handlers() -> int:\n    return len(logging.getLogger().handlers)\n",
        "quiet.py",
    )
    monkeypatch.syspath_prepend(str(path.parent))
    import quiet

    before = list(logging.getLogger().handlers)
    quiet.app.use(stage.url)
    try:
        with quiet.app.worker(processes=1):
            assert quiet.handlers.submit().result(timeout="30s") == 0
            assert list(logging.getLogger().handlers) == before
            assert not logging.getLogger("daybreak").handlers
            assert not logging.getLogger("daybreak.worker").handlers
        with stage.process("--processes", "1", target=path) as worker:
            assert quiet.handlers.submit().result(timeout="30s") == 0
            assert worker.stop() == 0
    finally:
        quiet.app.close()


def test_an_app_in_a_file_that_was_loaded_by_its_path_is_found_by_children(stage):
    """Test runners and notebooks load files so: under a name that cannot be imported."""
    path = broken(stage, HEAD, "loaded_by_path.py")
    spec = importlib.util.spec_from_file_location("loaded_by_path", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["loaded_by_path"] = module
    spec.loader.exec_module(module)
    module.app.use(stage.url)
    try:
        with module.app.worker(processes=1):
            assert module.work.submit().result(timeout="30s") == 1
    finally:
        module.app.close()
        del sys.modules["loaded_by_path"]


def test_an_idle_worker_starts_at_once_when_work_arrives(stage):
    with app.worker(processes=1):
        time.sleep(1.2)
        waits = []
        while (
            len(waits) < 20 and min(waits, default=math.inf) >= 1
        ):  # one quick start is enough to show that it is possible
            began_at = time.monotonic()
            assert noop.submit(3).result(timeout="120s") == 3
            waits.append(time.monotonic() - began_at)
        assert min(waits) < 1
        assert noop.submit(3).info().state in State

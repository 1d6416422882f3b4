"""What a worker's children import: the user's file, again. Work asked for meanwhile would be asked for by each."""

from __future__ import annotations

import pytest

from daybreak import Daybreak, Saga
from daybreak.core.errors import CalledDuringImport, NotImportable
from daybreak.tasks.import_guard import importing


@pytest.mark.parametrize(
    "what", ["submit", "submit_many", "result", "worker", "work", "add", "take", "start", "save", "lock"]
)
def test_work_asked_for_while_a_worker_imports_is_refused_naming_the_line(app, what):
    @app.task
    def nothing() -> None: ...

    job = nothing.submit()
    ask = {
        "submit": nothing.submit,
        "submit_many": lambda: nothing.submit_many([{}]),
        "result": lambda: job.result("1s"),
        "worker": app.worker,
        "work": app.work,
        "add": lambda: app.queue("q").add(1),
        "take": lambda: app.queue("q").take(),
        "start": Saga("tidy").step(nothing).start,
        "save": app.schedule("nightly", nothing, every="1h").save,
        "lock": app.lock("door").acquire,
    }[what]
    with importing(), pytest.raises(CalledDuringImport, match=r'test_importing\.py:.*if __name__ == "__main__"'):
        ask()


def test_a_script_that_submits_while_it_is_imported_is_told_where(script):
    ran = script(
        """
        from daybreak import Daybreak

        app = Daybreak()

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        job = add.submit(1, 2)

        if __name__ == "__main__":
            app.work()
        """
    ).run()
    assert ran.returncode == 1
    assert "CalledDuringImport" in ran.stderr
    assert "script.py:10" in ran.stderr


def test_a_script_works_with_children_of_its_own(script):
    printed = script(
        """
        import os
        from daybreak import Daybreak

        app = Daybreak()

        @app.task
        def where() -> int:
            return os.getpid()

        @app.task
        async def also() -> int:
            return os.getpid()

        if __name__ == "__main__":
            with app.worker(processes=2):
                pids = [where.submit().result("30s"), also.submit().result("30s")]
            print(len({*pids, os.getpid()}))
        """
    ).printed()
    assert printed == "3\n"


def test_a_nested_task_is_refused_for_processes(tmp_path):
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def nested() -> None: ...

        with pytest.raises(NotImportable, match="isolation='thread'"), app.worker(isolation="process"):
            pass


def test_a_nested_task_of_an_app_that_can_be_imported_is_named(script):
    printed = script(
        """
        from daybreak import Daybreak
        from daybreak.core.errors import NotImportable

        app = Daybreak()

        def define():
            @app.task
            def hidden() -> None: ...

        if __name__ == "__main__":
            define()
            try:
                app.work()
            except NotImportable as trouble:
                print(trouble)
        """
    ).printed()
    assert "task 'hidden' is defined inside a function" in printed


def test_a_module_of_tasks_is_imported_by_the_children(script, tmp_path):
    (tmp_path / "more_tasks.py").write_text(
        "from shared_app import app\n\n@app.task\ndef extra() -> str:\n    return __name__\n", encoding="utf-8"
    )
    (tmp_path / "shared_app.py").write_text("from daybreak import Daybreak\n\napp = Daybreak()\n", encoding="utf-8")
    printed = script(
        """
        from shared_app import app
        from more_tasks import extra

        if __name__ == "__main__":
            job = extra.submit()
            app.work(processes=1)
            print(job.result("1s"))
        """
    ).printed()
    assert printed == "more_tasks\n"

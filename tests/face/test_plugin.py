"""The pytest plugin, as a user's tests see it, in a pytest of its own."""

from __future__ import annotations

from importlib.metadata import entry_points

# Where it is installed as an entry point it is known by that name, and must not be named a second time.
NAME = "daybreak" if entry_points(group="pytest11", name="daybreak") else "daybreak.testing.plugin"

TESTS = """
    from datetime import timedelta
    import pytest
    from daybreak import Daybreak

    app = Daybreak("sqlite:///never.db")

    @app.task(retry=2)
    def add(a: int, b: int) -> int:
        return a + b

    def test_inline(daybreak_inline, daybreak_clock):
        run = daybreak_inline(app)
        assert run.clock is daybreak_clock
        assert add.submit(1, 2).result() == 3
        job = add.using(delay="1h").submit(3, 4)
        run.advance("1h")
        assert job.result() == 7

    def test_each_test_begins_with_nothing(daybreak_inline):
        daybreak_inline(app)
        assert app.queue("default").stats().total == 0

    async def test_async(daybreak_inline):
        daybreak_inline(app)
        assert await (await add.asubmit(1, 2)) == 3

    def test_clock(daybreak_clock):
        start = daybreak_clock.now
        daybreak_clock.advance("1m")
        assert daybreak_clock.now - start == timedelta(minutes=1)
"""


def test_the_fixtures_work_in_a_user_s_tests(script):
    tests = script(TESTS, name="test_mine.py")
    ran = tests.run(
        "-m", "pytest", "-q", "-W", "error", "-p", NAME, "-p", "no:cacheprovider",
        "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout
    assert not (tests.path.parent / "never.db").exists()


def test_a_plugin_that_nobody_uses_loads_nothing(script):
    printed = script(
        """
        import sys
        import daybreak
        import pytest
        before = set(sys.modules)
        import daybreak.testing.plugin
        print(sorted(set(sys.modules) - before))
        """
    ).printed()
    assert printed == "['daybreak.testing', 'daybreak.testing.plugin']\n"


def test_testing_needs_no_pytest(script):
    printed = script(
        """
        import sys
        sys.modules["pytest"] = None
        from daybreak import Daybreak
        from daybreak.testing import HandClock, inline

        app = Daybreak()

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        with inline(app, clock=HandClock()):
            print(add.submit(1, 2).result())
        """
    ).printed()
    assert printed == "3\n"

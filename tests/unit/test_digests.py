"""The digest of a task's code tells a change of what it does, and nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daybreak.system.code_digest import code_changed, part_digest, source_digest, whole_digest

PLAIN = "def double(x: int, times: int = 2) -> int:\n    return x * times\n"


def made(source: str, name: str = "double") -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(compile(source, "<made>", "exec"), scope)  # noqa: S102
    return scope[name]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "source",
    [
        "\n\n# a comment\ndef double(x: int, times: int = 2) -> int:\n    # another\n    return x * times\n",
        "def double(\n    x: int,\n    times: int = 2,\n) -> int:\n\n    return (x * times)\n",
    ],
)
def test_comments_and_formatting_do_not_change_a_digest(source: str) -> None:
    assert source_digest(made(source)) == source_digest(made(PLAIN))


def test_the_text_of_a_docstring_does_not_change_a_digest() -> None:
    one, other = (made(f'def double(x):\n    """{text}"""\n    return x * 2\n') for text in ("Twice.", "Two times."))
    assert source_digest(one) == source_digest(other)


@pytest.mark.parametrize(
    "source",
    [
        "def double(x: int, times: int = 2) -> int:\n    return x + times\n",
        "def double(x: int, times: int = 3) -> int:\n    return x * times\n",
        "def double(x: int, times: int = True) -> int:\n    return x * times\n",
        "def double(x: int, times: int = 2) -> int:\n    return x * times or 'none'\n",
        "def double(x: int, times: int = 2) -> int:\n    return [n * times for n in [x]][0]\n",
    ],
)
def test_other_code_or_another_default_has_another_digest(source: str) -> None:
    assert code_changed(source_digest(made(PLAIN)), source_digest(made(source)))


def test_a_wrapped_function_has_the_digest_of_what_it_wraps() -> None:
    inner = made(PLAIN)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    assert source_digest(outer) == source_digest(inner)


def test_what_has_no_python_code_has_no_digest() -> None:
    assert source_digest(len) == ""


def test_nothing_is_known_of_a_missing_digest_or_of_another_python() -> None:
    assert not code_changed("", "3.11-aa")
    assert not code_changed("3.11-aa", "")
    assert not code_changed("3.11-aa", "3.12-bb")
    assert not code_changed("3.11-aa", "3.11-aa")
    assert code_changed("3.11-aa", "3.11-bb")


def test_a_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    source = (
        "def pick(x, opener=object(), names=frozenset({'a', 'b', 'c', 'd'})):\n    return x in {'p', 'q', 'r', 's'}\n"
    )
    (tmp_path / "picking.py").write_text(source)
    script = "import picking; from daybreak.system.code_digest import source_digest; print(source_digest(picking.pick))"
    seen = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env)
        seen.add(out.stdout)
    assert len(seen) == 1


NAMED = (
    "import functools\ndef doubling(function):\n  @functools.wraps(function)\n"
    "  def inner(x): return function(x) * {by}\n  return inner\n@doubling\ndef f(x): return x + {step}"
)
WRAPPING = "def doubling(function):\n  def inner(x): return function(x) * {by}\n  return inner\n"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        # a decorator that does not say what it wraps
        (WRAPPING.format(by=2) + "f = doubling(lambda x: x)", WRAPPING.format(by=2) + "f = doubling(lambda x: -x)"),
        (WRAPPING.format(by=2) + "f = doubling(lambda x: x)", WRAPPING.format(by=3) + "f = doubling(lambda x: x)"),
        # what a decorator was given
        (
            "def made(times):\n  def f(x): return x * times\n  return f\nf = made(2)",
            "def made(times):\n  def f(x): return x * times\n  return f\nf = made(3)",
        ),
        # a decorator that does say it
        (NAMED.format(by=2, step=1), NAMED.format(by=3, step=1)),
        (NAMED.format(by=2, step=1), NAMED.format(by=2, step=5)),
    ],
)
def test_a_whole_digest_has_decorators_and_what_they_hold(before: str, now: str) -> None:
    assert whole_digest(made(before, "f")) == whole_digest(made(before, "f"))
    assert code_changed(whole_digest(made(before, "f")), whole_digest(made(now, "f")))


def test_a_whole_digest_does_not_follow_what_changes_while_the_program_runs() -> None:
    source = (
        "import functools\ndef kept(function):\n  known, order = {}, []\n  @functools.wraps(function)\n"
        "  def inner(x):\n    known[x] = function(x)\n    order.append(x)\n    return inner if x else known[x]\n"
        "  return inner\n@kept\n@functools.lru_cache\ndef f(x): return x\n"
    )
    function = made(source, "f")
    before = whole_digest(function)
    function(0)
    assert whole_digest(function) == before
    assert whole_digest(len) == ""


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("import enum\nclass C(enum.Enum):\n  LOW = 1", "import enum\nclass C(enum.Enum):\n  LOW = 2"),
        ("class C:\n  gains = {'a': {'b': 1}}", "class C:\n  gains = {'a': {'b': 2}}"),
        ("class C:\n  names = {'a', 'b'}", "class C:\n  names = {'a', 'c'}"),
        (
            "import functools\nclass C:\n  @functools.cached_property\n  def m(self): return 1",
            "import functools\nclass C:\n  @functools.cached_property\n  def m(self): return 2",
        ),
    ],
)
def test_all_that_is_written_in_a_class_is_in_its_digest(before: str, now: str) -> None:
    assert part_digest(made(before, "C")) == part_digest(made(before, "C"))
    assert code_changed(part_digest(made(before, "C")), part_digest(made(now, "C")))

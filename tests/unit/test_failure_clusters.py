"""Failures of one kind have one fingerprint, whatever addresses, paths, ids, times and numbers they carry."""

from __future__ import annotations

import random

import pytest

from daybreak.core.model import Failure, Reason
from daybreak.policy.failure_clusters import fingerprint, frames_of, plain_message


def trace(folder, line, *functions, kind="ValueError", message="no"):
    frames = "".join(f'  File "{folder}/{name}.py", line {line + n}, in {name}\n' for n, name in enumerate(functions))
    return f"Traceback (most recent call last):\n{frames}{kind}: {message}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no route to 10.0.0.7:5432", "no route to 192.168.3.99:25"),
        ("object at 0x7f4092bd2c00 is closed", "object at 0x55aa is closed"),
        ("no such file: '/data/runs/17/a.csv'", "no such file: '/home/ann/b.csv'"),
        (r"no such file: 'C:\data\a.csv'", r"no such file: 'D:\x\y\b.csv'"),
        ("job 01a1ee2e-fcd6-7991-b98c-b71cafc3726f is gone", "job 01a1ee31-41e3-776c-9063-56aa31c48537 is gone"),
        ("diverged at t=1.25e-3 after 1,024 steps", "diverged at t=-7 after 3 steps"),
        ("at 2026-11-18T08:00:00+01:00 it was late", "at 2025-01-02 03:04:05 it was late"),
        ("GET http://a.test/x?y=1 failed", "GET https://b.test/z failed"),
        ("user ab12cd34ef failed", "user 99ff00aa11bb failed"),
    ],
)
def test_what_differs_from_job_to_job_does_not_count(one, other):
    assert plain_message(one) == plain_message(other)


@pytest.mark.parametrize(
    ("one", "other"), [("disk is full", "disk is read-only"), ("KeyError: 'vin'", "KeyError: 'duty'")]
)
def test_words_count(one, other):
    assert plain_message(one) != plain_message(other)


def test_a_stack_counts_by_its_functions_and_not_by_lines_and_folders():
    one = trace("/srv/a", 10, "simulate", "solve")
    assert (
        frames_of(one)
        == frames_of(trace("/home/b", 99, "simulate", "solve"))
        == ["simulate.py:simulate", "solve.py:solve"]
    )
    assert frames_of(one) != frames_of(trace("/srv/a", 10, "simulate", "load"))
    recursion = trace("/srv", 1, *["walk"] * 50, "leaf")
    assert frames_of(recursion) == ["walk.py:walk", "leaf.py:leaf"], "a recursion counts once"
    ours = '  File "/x/site-packages/daybreak/worker/child/runner.py", line 1, in run\n'
    assert frames_of(ours + one) == frames_of(one)


def test_where_a_job_was_when_its_time_was_over_is_chance():
    late = [
        Failure(message="ran longer than its limit of 4 s", kinds=("TimeoutError",), traceback=trace("/a", 1, name))
        for name in ("solve", "load")
    ]
    assert fingerprint(late[0], Reason.TIMEOUT) == fingerprint(late[1], Reason.TIMEOUT)
    assert fingerprint(None, Reason.EXPIRED) != fingerprint(None, Reason.SHED)


def test_seven_kinds_among_a_thousand_failures_are_seven_clusters():
    chance = random.Random(7)

    def path():
        return f"/srv/run-{chance.random()}/m{chance.randrange(99)}.plecs"

    def numbers():
        return chance.randrange(1, 10**6), chance.randrange(1, 10**6)

    kinds = [
        lambda: ("ConnectionError", f"connect to 10.0.{chance.randrange(256)}.{chance.randrange(256)} failed", "send"),
        lambda: ("ConnectionError", f"reset by 10.1.2.{chance.randrange(256)}", "send"),
        lambda: ("ValueError", "matrix {}x{} is singular".format(*numbers()), "solve"),
        lambda: ("ValueError", "step {} diverged at 0x{:x}".format(*numbers()), "solve"),
        lambda: (
            "FileNotFoundError",
            f"no such file: '{path()}'",
            "load",
        ),
        lambda: (
            "FileNotFoundError",
            f"no such file: '{path()}'",
            "save",
        ),
        lambda: ("MemoryError", "", "solve"),
    ]
    found = set()
    for n in range(1000):
        kind, message, function = kinds[n % 7]()
        folder, line = f"/srv/{chance.random()}", chance.randrange(500)
        text = trace(folder, line, "simulate", function, kind=kind, message=message)
        found.add(fingerprint(Failure(message=message, kinds=(kind,), traceback=text), Reason.ERROR))
    assert len(found) == 7

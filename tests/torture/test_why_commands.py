"""14 planted causes of waiting: the command that `daybreak why` prints starts the job within 2 s.

`make test` runs the same causes without a time limit: tests/acceptance/test_why_commands.py."""

from __future__ import annotations

import os

import pytest
from planted_waits import CAUSES, planted

LONG = os.environ.get("DAYBREAK_TORTURE") == "long"
WITHIN = 2.0  # seconds

pytestmark = [pytest.mark.torture, pytest.mark.skipif(not LONG, reason="judges by time: make torture")]


@pytest.fixture(scope="module")
def seconds(tmp_path_factory):
    with planted(tmp_path_factory.mktemp("why")) as seconds:
        yield seconds


@pytest.mark.parametrize("cause", CAUSES)
def test_the_printed_command_starts_the_job_within_two_seconds(seconds, cause, tell):
    took = seconds(cause)
    tell(f"started {took:.2f} s after the command began")
    assert took <= WITHIN

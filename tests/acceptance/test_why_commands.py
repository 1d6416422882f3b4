"""14 causes of waiting, planted: `daybreak why` names each, and the command that it prints starts the job.

How soon it starts is judged by the long form in tests/torture/test_why_commands.py."""

from __future__ import annotations

from planted_waits import CAUSES, planted


def test_the_printed_command_starts_the_job_for_each_of_14_causes(tmp_path, record_property):
    """One test, so that the workers of the set-up are started once, however tests are shared out."""
    failed = {}
    with planted(tmp_path) as seconds:
        for cause in CAUSES:
            try:
                took = seconds(cause)
            except AssertionError as error:
                failed[cause] = str(error)
            else:
                record_property(cause, took)
                print(f"{cause}: started {took:.2f} s after the command began")
    assert failed == {}
    assert len(CAUSES) == 14

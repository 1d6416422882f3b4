"""For all tests: examples take as long as they take, a failing one says how to come back to it, and what was skipped is
said by its reason. Signals that a parent ignores are heard. And a portal for whoever asks for one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings

from daybreak.api.portal import Portal
from run_again import default_signals

default_signals()

settings.register_profile("daybreak", deadline=None, print_blob=True)
settings.load_profile("daybreak")


@pytest.fixture
def portal():
    portal = Portal()
    yield portal
    portal.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = Counter(where[2] if isinstance(where, tuple) else str(where) for where in skipped)
    for reason, tests in reasons.most_common():
        terminalreporter.write_line(f"!! {tests} skipped: {reason.removeprefix('Skipped: ')}")

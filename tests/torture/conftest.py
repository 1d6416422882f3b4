"""Prints what each torture test measured, whether it passed or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FIGURES = "torture figures"
_lines: list[str] = []


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    def say(figures: str) -> None:
        # With the report of the test they come also from another process, where several run side by side.
        request.node.user_properties.append((FIGURES, f"{request.node.name}: {figures}"))
        print(figures)

    return say


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        _lines.extend(said for name, said in report.user_properties if name == FIGURES)


def pytest_terminal_summary(terminalreporter):
    if _lines:
        terminalreporter.section(FIGURES)
        for line in _lines:
            terminalreporter.write_line(line)

"""Prints what each torture test measured, whether it passed or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    lines = request.config.stash.setdefault(FIGURES, [])

    def say(figures: str) -> None:
        lines.append(f"{request.node.name}: {figures}")
        print(figures)

    return say


def pytest_terminal_summary(terminalreporter, config):
    if lines := config.stash.get(FIGURES, []):
        terminalreporter.section("torture figures")
        for line in lines:
            terminalreporter.write_line(line)

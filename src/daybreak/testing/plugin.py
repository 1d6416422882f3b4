"""The pytest plugin: `daybreak_inline` and `daybreak_clock`. It loads nothing until a test uses one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak
    from daybreak.testing.clock import HandClock
    from daybreak.testing.inline_mode import Inline


@pytest.fixture
def daybreak_clock() -> HandClock:
    """A clock that stands still until it is moved: `daybreak_clock.advance("1h")`."""
    from daybreak.testing.clock import HandClock  # noqa: PLC0415

    return HandClock()


@pytest.fixture
def daybreak_inline(daybreak_clock: HandClock) -> Iterator[Callable[[Daybreak], Inline]]:
    """A function that puts an app into inline mode until the test ends, with `daybreak_clock` as its clock."""
    from daybreak.testing.inline_mode import inline  # noqa: PLC0415

    with contextlib.ExitStack() as around:
        yield lambda app: around.enter_context(inline(app, clock=daybreak_clock))

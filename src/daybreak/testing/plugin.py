"""The pytest plugin: `daybreak_inline` and `daybreak_clock`. Loads nothing until a test asks for one of them."""

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
    """Called with an app: until the test ends, its jobs run at once, by `daybreak_clock`."""
    from daybreak.testing.inline_mode import inline  # noqa: PLC0415

    with contextlib.ExitStack() as around:
        yield lambda app: around.enter_context(inline(app, clock=daybreak_clock))

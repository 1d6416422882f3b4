"""For those who test.

inline         an app whose jobs run at once, in the thread that submits them, by a clock that is moved by hand
HandClock      that clock
StoreContract  what every store must keep: `class TestMyStore(StoreContract)` with a fixture `store`, open and empty

As a pytest plugin it gives the fixtures `daybreak_inline` and `daybreak_clock`. What is asked for is loaded then: a
plugin that nobody uses slows no start-up.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daybreak.testing.clock import HandClock
    from daybreak.testing.contract import StoreContract
    from daybreak.testing.inline_mode import Inline, inline

__all__ = ["HandClock", "Inline", "StoreContract", "inline"]

_PLACES = {"HandClock": "clock", "Inline": "inline_mode", "StoreContract": "contract", "inline": "inline_mode"}

if (_pytest := sys.modules.get("pytest")) is not None:
    # Asserts are rewritten only in what is imported later.
    _pytest.register_assert_rewrite("daybreak.testing.contract", "daybreak.testing.differential")


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found

"""Tools for tests.

| name | what it is |
|---|---|
| `inline` | inline mode: jobs run at once, in the thread that submits them, by a clock that the test moves |
| `HandClock` | that clock |
| `StoreContract` | the tests that every store must pass: `class TestMyStore(StoreContract)` with a fixture `store` |

The pytest plugin provides the fixtures `daybreak_inline` and `daybreak_clock`. Modules are loaded on first use, so the
plugin does not slow down test runs that do not use it.
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

_MODULES = {"HandClock": "clock", "Inline": "inline_mode", "StoreContract": "contract", "inline": "inline_mode"}

if (_pytest := sys.modules.get("pytest")) is not None:
    # pytest rewrites the asserts only of modules that are imported later.
    _pytest.register_assert_rewrite("daybreak.testing.contract", "daybreak.testing.differential")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found

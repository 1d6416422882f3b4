"""What a hook is, and which events it may ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from daybreak.core.errors import BadInput
from daybreak.core.events import KINDS, Event

ANY: Final = "*"
AT_ONCE: Final = frozenset({
    "submitted", "started", "retrying", "released", "completed", "failed", "cancelled", "suspended",
})  # fmt: skip
NEVER: Final = frozenset({"folded"})  # stands in histories only


class Hook(NamedTuple):
    function: Callable[[Event], Any]
    kinds: frozenset[str]
    name: str


def kinds_of(kinds: tuple[str, ...], *, durable: bool) -> frozenset[str]:
    if not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise BadInput(
            'say which events a hook is for: @app.on("completed"), @app.on("failed", "cancelled"), @app.on("*")'
        )
    there = frozenset(KINDS) - NEVER if durable else AT_ONCE
    for kind in kinds:
        if kind in there or kind == ANY:
            continue
        if kind in KINDS and kind not in NEVER:
            raise BadInput(
                f"{kind!r} is told by the store alone: write @app.on({kind!r}, durable=True). "
                f"Hooks that are called at once hear of {', '.join(kind for kind in KINDS if kind in AT_ONCE)}"
            )
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        close = get_close_matches(str(kind), there, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(k for k in KINDS if k in there)}"
        raise BadInput(f"no event named {kind!r}; {hint}")
    return there if ANY in kinds else frozenset(kinds)


def is_same(one: Hook, other: Hook) -> bool:
    """A notebook cell run again, or a module reloaded, defines the same hook anew."""
    if one.name != other.name:
        return False
    if one.function is other.function:
        return True
    if not (inspect.isfunction(one.function) and inspect.isfunction(other.function)):
        return False
    places = {(function.__module__, function.__qualname__) for function in (one.function, other.function)}
    return len(places) == 1 and not {"<locals>", "<lambda>"} & set(one.function.__qualname__.split("."))

"""What a hook is, and which kinds of events it can be registered for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from daybreak.core.errors import BadInput
from daybreak.core.events import KINDS, Event

ANY: Final = "*"
# The events that the process which causes them reports itself; all others are only in the store's feed.
IMMEDIATE_KINDS: Final = frozenset({
    "submitted", "started", "progress", "retrying", "released", "completed", "failed", "cancelled", "suspended",
    "resumed", "reprioritised", "retried", "removed",
})  # fmt: skip
# What happens to an item, in the words of a queue.
QUEUE_WORDS: Final = {
    "added": frozenset({"submitted"}),
    "updated": IMMEDIATE_KINDS - {"submitted", "removed"},
    "removed": frozenset({"removed"}),
}
HISTORY_ONLY_KINDS: Final = frozenset({"folded"})  # only in a job's history, never in the feed


class Hook(NamedTuple):
    """A function and the kinds of events that it is called for; with `queue`, only for jobs of this queue."""

    function: Callable[[Event], Any]
    kinds: frozenset[str]
    name: str
    queue: str | None = None


def parse_kinds(kinds: tuple[str, ...], *, durable: bool) -> frozenset[str]:
    """The kinds of events named by the arguments of `@app.on(...)`, checked."""
    if not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise BadInput(
            "@app.on() needs the kinds of events the hook is for: "
            '@app.on("completed"), @app.on("failed", "cancelled"), or @app.on("*") for all'
        )
    available = frozenset(KINDS) - HISTORY_ONLY_KINDS if durable else IMMEDIATE_KINDS
    for kind in kinds:
        if kind not in available and kind != ANY:
            raise _unknown_kind(kind, available)
    if ANY in kinds:
        return available
    return frozenset(kinds)


def parse_words(words: tuple[str, ...]) -> frozenset[str]:
    """The kinds of events named by the arguments of `@queue.on(...)`, checked."""
    if not words:
        raise BadInput(f"@queue.on() needs what the hook is for: {', '.join(QUEUE_WORDS)}, or '*' for all")
    kinds: frozenset[str] = frozenset()
    for word in words:
        if word != ANY and word not in QUEUE_WORDS:
            raise BadInput(f"@queue.on({word!r}): write {', '.join(QUEUE_WORDS)}, or '*' for all")
        kinds |= IMMEDIATE_KINDS if word == ANY else QUEUE_WORDS[word]
    return kinds


def _unknown_kind(kind: str, available: frozenset[str]) -> BadInput:
    names = ", ".join(name for name in KINDS if name in available)
    if kind in KINDS and kind not in HISTORY_ONLY_KINDS:
        return BadInput(
            f"a hook for {kind!r} must be durable, because this event comes only from the store: "
            f"write @app.on({kind!r}, durable=True). Hooks that are not durable can be for {names}"
        )
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

    close = get_close_matches(kind, available, n=1)
    if close:
        return BadInput(f"no event named {kind!r}; did you mean {close[0]!r}?")
    return BadInput(f"no event named {kind!r}; the events are {names}")


def is_same(one: Hook, other: Hook) -> bool:
    """Whether both are the same hook, defined again: by a notebook cell that was run again, or a reloaded module."""
    if one.name != other.name or one.queue != other.queue:
        return False
    if one.function is other.function:
        return True
    if not (inspect.isfunction(one.function) and inspect.isfunction(other.function)):
        return False
    if (one.function.__module__, one.function.__qualname__) != (
        other.function.__module__,
        other.function.__qualname__,
    ):
        return False
    return not {"<locals>", "<lambda>"} & set(one.function.__qualname__.split("."))

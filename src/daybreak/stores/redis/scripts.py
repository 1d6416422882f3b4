"""The Lua scripts, assembled from the files in lua/. The server knows each by its hash."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

# How keys and values are laid out. Every script refuses a namespace whose layout needs a newer program.
VERSION: Final = 1
# The oldest program that can work on this layout: the version before, unless a change forbids it.
NEEDS: Final = 1


class Script:
    """`reads`: the script changes nothing, so that it can be repeated. `standalone`: it has no prelude. `prelude_only`:
    it has the prelude and no other part, because a client that has not logged in may send at most 16 KiB. `fast_path`
    is tried first and returns nil if the rest is needed. All but `prelude_only` begin with the transitions, which the
    fast paths share with the general path."""

    __slots__ = ("name", "reads", "sha", "text")

    def __init__(
        self,
        name: str,
        *parts: str,
        reads: bool = False,
        standalone: bool = False,
        prelude_only: bool = False,
        fast_path: str = "",
    ) -> None:
        self.name = name
        self.reads = reads
        # Each part is wrapped in a function, so that its definitions are made only if it is called.
        lua = {part: _lua(part) for part in ("transitions", "prelude", "change_set", *parts, name)}
        wrapped = (f"function parts.{part}()\n{lua[part]}\nend\n" for part in ("change_set", *parts))
        base = (
            ()
            if standalone
            else (lua["prelude"],)
            if prelude_only
            else (lua["prelude"], *wrapped, "parts.change_set()\n")
        )
        fast = (
            f"local fast = (function()\n{_lua(fast_path)}\nend)()\nif fast then return fast end\n" if fast_path else ""
        )
        shared = () if prelude_only else (lua["transitions"],)
        self.text = "".join((f"local VERSION = {VERSION}\n", *shared, fast, *base, lua[name])).encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


def _lua(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


EXCHANGE: Final = Script(
    "exchange",
    "job",
    "gauge",
    "resource_queue",
    "flight",
    "time",
    "put",
    "insert",
    "settle",
    "claim",
    "call",
    fast_path="plain",
)
SUBMIT: Final = Script("submit", standalone=True)
EXTEND: Final = Script("extend", "job", "gauge", "resource_queue", "flight")
REAP: Final = Script("reap", "job")
ADVANCE: Final = Script("advance", "job", "gauge", "resource_queue", "flight", "time")
AMEND: Final = Script("amend", "job", "gauge", "resource_queue", "flight")
PACK: Final = Script("pack", "job", "whole", reads=True)
ADOPT: Final = Script("adopt", "job", "gauge", "resource_queue", "flight", "insert")
PURGE: Final = Script("purge", "job", "gauge", "resource_queue", "flight")
CACHED: Final = Script("cached", reads=True)
UNCACHE: Final = Script("uncache", "flight")
OPEN: Final = Script("open", prelude_only=True)
CORRECT: Final = Script("correct", prelude_only=True)
GET: Final = Script("get", "whole", reads=True)
SCAN: Final = Script("scan", "whole", reads=True)
COUNT: Final = Script("count", reads=True)
LANES: Final = Script("lanes", reads=True)
KEYS: Final = Script("keys", "job", reads=True)
POSITION: Final = Script("position", "job", "gauge", "resource_queue", "flight", reads=True)
USAGE: Final = Script("usage", reads=True)
FEED: Final = Script("feed", reads=True)
RECORDS: Final = Script("records", reads=True)

"""The scripts: Lua files beside this one, put together and known to the server by their hash."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final


class Script:
    """`reads` says that it changes nothing, so that asking again is harmless. One that is `alone` has no prelude; one
    that is `small` only that, since whom a server does not know yet may send it 16 KiB at most. `short` is tried first,
    and answers nil where the rest is needed."""

    __slots__ = ("name", "reads", "sha", "text")

    def __init__(
        self,
        name: str,
        *parts: str,
        reads: bool = False,
        alone: bool = False,
        small: bool = False,
        short: str = "",
    ) -> None:
        self.name = name
        self.reads = reads
        # A part is a function: what it defines is made when it is called, and only then.
        lua = {part: _lua(part) for part in ("prelude", "gather", *parts, name)}
        wrapped = (f"function parts.{part}()\n{lua[part]}\nend\n" for part in ("gather", *parts))
        under = () if alone else (lua["prelude"],) if small else (lua["prelude"], *wrapped, "parts.gather()\n")
        quick = f"local quick = (function()\n{_lua(short)}\nend)()\nif quick then return quick end\n" if short else ""
        self.text = "".join((quick, *under, lua[name])).encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


def _lua(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


EXCHANGE: Final = Script("exchange", "job", "gauge", "share", "time", "put", "insert", "settle", "claim", short="plain")
SUBMIT: Final = Script("submit", alone=True)
EXTEND: Final = Script("extend", "job")
REAP: Final = Script("reap", "job")
ADVANCE: Final = Script("advance", "job", "gauge", "share", "time")
AMEND: Final = Script("amend", "job", "gauge", "share")
PACK: Final = Script("pack", "job", "whole", reads=True)
ADOPT: Final = Script("adopt", "job", "gauge", "share", "insert")
PURGE: Final = Script("purge", "job", "gauge", "share")
OPEN: Final = Script("open", small=True)
CORRECT: Final = Script("correct", small=True)
GET: Final = Script("get", "whole", reads=True)
SCAN: Final = Script("scan", "whole", reads=True)
LANES: Final = Script("lanes", reads=True)
KEYS: Final = Script("keys", "job", reads=True)
POSITION: Final = Script("position", "job", "gauge", "share", reads=True)
USAGE: Final = Script("usage", reads=True)
FEED: Final = Script("feed", reads=True)
RECORDS: Final = Script("records", reads=True)

"""The same app as deployed today: one task has a new argument, one has a new name, one is new."""

from __future__ import annotations

from typing import Any

from daybreak import Daybreak

app = Daybreak()


@app.task(version=2)
def resize(width: int, height: int) -> str:
    return f"new {width}x{height}"


@resize.upgrade(1)
def with_height(args: dict[str, Any]) -> dict[str, Any]:
    return {**args, "height": args["width"] * 2}


@app.task
def only_now() -> str:
    return "new"


@app.task(aliases=["rename_me"])
def renamed(n: int) -> str:
    return f"new {n}"


@app.task
def nobody_asked() -> str:
    return "new"

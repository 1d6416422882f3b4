"""How a report is handed to the API: by `submit_uut` or a method like it, of an async client or of a blocking one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

# An API that takes a report as it is in its file may have `submit_raw`.
_NAMES: Final = ("submit_raw", "submit_uut", "submit")

Submit = Callable[[Any], Awaitable[Any]]


def submit_of(api: Any) -> Submit:
    """The function that uploads a report through this API."""
    report = api.report
    methods = [method for name in _NAMES if callable(method := getattr(report, name, None))]
    if not methods:
        raise TypeError(f"the report API {type(report).__name__} has no submit_uut()")
    for method in methods:
        if inspect.iscoroutinefunction(method):
            return method  # type: ignore[no-any-return]
    blocking = methods[0]

    async def submit(data: Any) -> Any:
        answer = await asyncio.to_thread(blocking, data)
        return await answer if inspect.isawaitable(answer) else answer

    return submit

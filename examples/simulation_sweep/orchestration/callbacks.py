"""Who is told what. The five events of the article come from Daybreak's hooks, at once and in order; those of PyPLECS'
code that are about batches come from the dispatcher. A callback that raises is logged, and harms nothing."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from daybreak import BadInput, Daybreak, Event

logger = logging.getLogger(__name__)

EVENTS: Final = (
    "on_submit", "on_start", "on_progress", "on_complete", "on_error",
    "on_task_started", "on_task_completed", "on_task_failed", "on_queue_empty", "on_batch_started",
    "on_batch_completed",
)  # fmt: skip
_KINDS: Final = {
    "submitted": "on_submit",
    "started": "on_start",
    "progress": "on_progress",
    "completed": "on_complete",
    "failed": "on_error",
}
_TASK_EVENTS: Final = {
    "started": "on_task_started", "completed": "on_task_completed", "failed": "on_task_failed",
}  # fmt: skip


class Callbacks:
    def __init__(self, app: Daybreak, prefix: str, find_task: Callable[[str], Any]) -> None:
        self._prefix = prefix
        self._find_task = find_task
        self._by_event: dict[str, list[Callable[..., Any]]] = {event: [] for event in EVENTS}
        app.on(*_KINDS)(self._hear)

    def add(self, event: str, callback: Callable[..., Any]) -> None:
        if event not in self._by_event:
            raise BadInput(f"no event {event!r}; the events are {', '.join(EVENTS)}")
        if inspect.iscoroutinefunction(callback):
            raise BadInput(f"{getattr(callback, '__name__', 'the callback')} for {event} is async: write a def")
        self._by_event[event].append(callback)

    def remove(self, event: str, callback: Callable[..., Any]) -> None:
        if callback in self._by_event.get(event, []):
            self._by_event[event].remove(callback)

    def emit(self, event: str, *args: Any) -> None:
        for callback in list(self._by_event[event]):
            try:
                callback(*args)
            except Exception:
                logger.exception("a callback for %s failed", event)

    def _hear(self, event: Event) -> None:
        if not (event.queue or "").startswith(self._prefix):
            return
        name, task_name = _KINDS[event.kind], _TASK_EVENTS.get(event.kind, "")
        if self._by_event[name]:
            match event.kind:
                case "progress":
                    self.emit(name, event.job, round(100 * (event.progress or 0.0), 1))
                case "completed":
                    self.emit(name, event.job, getattr(self._find_task(event.job), "result", None))
                case "failed":
                    self.emit(name, event.job, RuntimeError(event.error))
                case _:
                    self.emit(name, event.job)
        if task_name and self._by_event[task_name]:
            self.emit(task_name, self._find_task(event.job))

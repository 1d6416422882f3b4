"""One pass over a queue with a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import ItemNotFoundError, ItemTakenError
from .items import QueueItem

if TYPE_CHECKING:
    from .memory import MemoryQueue

Processor = Callable[[QueueItem], Any]


def run_pass(queue: MemoryQueue, processor: Processor, *, include_failed: bool) -> dict[str, int]:
    """Give each pending item, and with `include_failed` each failed one that has attempts left, to the processor once,
    the most urgent first. An item fails if the processor raises an exception or returns False; it then is FAILED, so
    that the next pass tries it again while it has attempts left.

    Returns how many succeeded and failed, and how many were skipped: no attempts left, or taken by somebody else."""
    results = {"success": 0, "failed": 0, "skipped": 0}
    items = queue.list_pending()
    if include_failed:
        failed = queue.list_failed()
        items += [item for item in failed if item.can_retry]
        results["skipped"] += sum(not item.can_retry for item in failed)
    for item in sorted(items, key=lambda item: item.priority):
        item.mark_processing()
        try:
            queue.update(item)
        except (ItemTakenError, ItemNotFoundError):
            results["skipped"] += 1
            continue
        error = _error_of(processor, item)
        if error is None:
            queue.update(item.mark_completed())
            results["success"] += 1
        else:
            queue.fail(item, error)
            results["failed"] += 1
    return results


def _error_of(processor: Processor, item: QueueItem) -> str | None:
    try:
        is_refused = processor(item) is False
    except Exception as error:  # noqa: BLE001 - it is the outcome of the item
        return str(error) or type(error).__name__
    return "the processor returned False" if is_refused else None

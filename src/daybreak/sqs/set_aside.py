"""Keeps messages that cannot be applied, each with the reason, for people: they are not lost and block nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from daybreak.core.text import safe
from daybreak.sqs import queue_names as names
from daybreak.sqs.messages import MAX_INLINE_BYTES, VERSION, SetAside, written
from daybreak.sqs.queues import Received, SqsQueues

_log = logging.getLogger("daybreak.sqs")

MAX_REASON: Final = 1000


async def set_aside(queues: SqsQueues, refused: Sequence[tuple[Received, str]]) -> None:
    """Send the messages to the queue for such messages, then delete them. A kill in between repeats it."""
    if not refused:
        return
    for message, reason in refused:
        _log.warning("%s: message %s is set aside: %s", message.queue, message.id, safe(reason[:MAX_REASON]))
    bodies = [
        written(SetAside(v=VERSION, queue=one.queue, reason=reason[:MAX_REASON], body=one.body[:MAX_INLINE_BYTES]))
        for one, reason in refused
    ]
    await queues.send(names.aside_queue(queues.address.prefix), bodies)
    await queues.delete([message for message, _ in refused])

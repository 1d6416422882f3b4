"""The short way for what is submitted most: a script of its own, for new jobs of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from daybreak.core.model import JobSpec, Options
from daybreak.store.protocol import Inserted
from daybreak.stores.redis import replies
from daybreak.stores.redis.client import Reply
from daybreak.stores.redis.event_codec import Tail, pack_end, pack_tail, sized
from daybreak.stores.redis.gauges import pack_needs
from daybreak.stores.redis.rows import pack_spec
from daybreak.stores.redis.server_clock import ServerClock
from daybreak.stores.redis.specs import Args, check_priority, class_of, kept, task_of

JOBS_PER_SCRIPT: Final = 1000  # jobs in one script, as many as a client sends at once
KINDS: Final = 100  # of which it is remembered what is said of each
LONG_FOR: Final = 10_000_000  # microseconds for which a queue that refused is not asked again


class ShortWay:
    """Which jobs may go it. Queues whose settings forbid it are remembered for a while."""

    def __init__(self, hands: ServerClock) -> None:
        self._hands = hands
        self._long: dict[str, int] = {}
        self._kinds: dict[tuple[object, ...], tuple[Options, Args]] = {}

    def args(self, specs: Sequence[JobSpec]) -> Args | None:
        """For jobs that are due now, tied to nothing, and of one kind; None if they are not."""
        if not 0 < len(specs) <= JOBS_PER_SCRIPT:
            return None
        first = specs[0]
        kind, options = class_of(first), first.options
        if (
            kind[-1] is not False or first.delay is not None or first.run_at is not None or first.fence
            or options.expires_in is not None or first.holder is not None or self._is_long(first.queue)
        ):  # fmt: skip
            return None
        args = self._said_once(kind, first)
        for spec in specs:
            if spec is not first and class_of(spec) != kind:
                return None
            sized(spec.id.encode())
            args.append(spec.id)
            args.append(pack_spec(spec))
        return args

    def _said_once(self, kind: tuple[object, ...], spec: JobSpec) -> Args:
        """What is said of all jobs of a kind. A caller has few kinds, and submits them again and again."""
        known = self._kinds.get(kind)
        if known is not None and known[0] is spec.options:  # a kind knows its options by identity, which may be reused
            return known[1].copy()
        options = spec.options
        check_priority(spec.priority)
        sized(spec.queue.encode())
        args: Args = [
            spec.queue, task_of(spec.task, spec.version),
            pack_end(None, None, spec.by, pack_tail(Tail(task=spec.task, queue=spec.queue))), spec.priority,
            kept(options.keep_completed), kept(options.keep_failed), pack_needs(spec),
        ]  # fmt: skip
        if len(self._kinds) >= KINDS:
            self._kinds.clear()
        self._kinds[kind] = (options, args)
        return args.copy()

    def answered(self, specs: Sequence[JobSpec], reply: Reply) -> list[Inserted] | None:
        """None if nothing was written: then the long way must be taken."""
        _, accepted, is_queue = reply
        if accepted is not None:
            return replies.inserted(specs, accepted)
        if is_queue:
            self._long[specs[0].queue] = self._hands.steady() + LONG_FOR
        return None

    def _is_long(self, queue: str) -> bool:
        until = self._long.get(queue)
        if until is None:
            return False
        if until < self._hands.steady():
            self._long.pop(queue, None)
        return True

"""The fast path for the most frequent submissions: new jobs of one kind, with a script of their own (submit.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from daybreak.core.model import JobSpec, Options, has_links
from daybreak.store.protocol import Inserted
from daybreak.stores.redis import replies
from daybreak.stores.redis.client import Reply
from daybreak.stores.redis.event_codec import Tail, pack_end, pack_tail, sized
from daybreak.stores.redis.gauges import pack_needs
from daybreak.stores.redis.rows import pack_spec
from daybreak.stores.redis.server_clock import ServerClock
from daybreak.stores.redis.specs import Args, check_priority, kind_of, micros_or_none, task_of

MAX_JOBS_PER_SCRIPT: Final = 1000  # as many as a client sends at once
MAX_CACHED_KINDS: Final = 100  # kinds whose arguments are cached
REFUSED_FOR: Final = 10_000_000  # microseconds for which a queue that refused is not tried again


class PlainSubmit:
    """Decides which jobs may take the fast path. Queues whose settings rule it out are remembered for a while."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._refused_queues: dict[str, int] = {}
        self._cached_kinds: dict[tuple[object, ...], tuple[Options, Args]] = {}

    def args(self, specs: Sequence[JobSpec]) -> Args | None:
        """The script's arguments, for jobs of one kind that are due now and have no keys or names; None for others."""
        if not 0 < len(specs) <= MAX_JOBS_PER_SCRIPT:
            return None
        first = specs[0]
        kind, options = kind_of(first), first.options
        if (
            kind[-1] is not False or first.delay is not None or first.run_at is not None
            or options.expires_in is not None or first.holder is not None or has_links(first)
            or self._is_refused(first.queue)
        ):  # fmt: skip
            return None
        args = self._shared_args(kind, first)
        for spec in specs:
            if spec is not first and (kind_of(spec) != kind or has_links(spec)):
                return None
            sized(spec.id.encode())
            args.append(spec.id)
            args.append(pack_spec(spec))
        return args

    def _shared_args(self, kind: tuple[object, ...], spec: JobSpec) -> Args:
        """The arguments that all jobs of a kind share. A caller has few kinds and submits them again and again."""
        cached = self._cached_kinds.get(kind)
        if cached is not None and cached[0] is spec.options:  # the kind contains id(options), which may be reused
            return cached[1].copy()
        options = spec.options
        check_priority(spec.priority)
        sized(spec.queue.encode())
        args: Args = [
            spec.queue, task_of(spec.task, spec.version),
            pack_end(None, None, spec.by, pack_tail(Tail(task=spec.task, queue=spec.queue))), spec.priority,
            micros_or_none(options.keep_completed), micros_or_none(options.keep_failed), pack_needs(spec),
        ]  # fmt: skip
        if len(self._cached_kinds) >= MAX_CACHED_KINDS:
            self._cached_kinds.clear()
        self._cached_kinds[kind] = (options, args)
        return args.copy()

    def to_inserted(self, specs: Sequence[JobSpec], reply: Reply) -> list[Inserted] | None:
        """The answers; None if nothing was written: then the general path must be taken."""
        _, accepted, is_queue_refused = reply
        if accepted is not None:
            return replies.to_inserted(specs, accepted)
        if is_queue_refused:
            self._refused_queues[specs[0].queue] = self._clock.steady() + REFUSED_FOR
        return None

    def _is_refused(self, queue: str) -> bool:
        until = self._refused_queues.get(queue)
        if until is None:
            return False
        if until < self._clock.steady():
            self._refused_queues.pop(queue, None)
        return True

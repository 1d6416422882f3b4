"""Operations as arguments of their scripts. Invalid input is refused here, before anything is sent."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.events import record_event, settled
from daybreak.core.model import Gate, Health, JobSpec, Put, QueueSettings, ResourceSettings, Settlement, State
from daybreak.core.units import EPOCH, clean, span
from daybreak.store.protocol import Amend, Beat, Claim, Exchange, Filter, Purge, Reap
from daybreak.store.sanitize import cleaned_beat, cleaned_settlement
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import EVENT_START, SHORT, Tail, pack_end, pack_tail, sized
from daybreak.stores.redis.gauges import pack_gate, pack_health, pack_settings
from daybreak.stores.redis.rows import pack_failure, pack_progress, pack_result, pack_value
from daybreak.stores.redis.specs import Args, add_specs, check_priority, micros_or_none, task_of

_FATE: Final = struct.Struct("<3BIIIddd")
_BEAT: Final = struct.Struct("<16sddBB")
_SETTINGS: Final = struct.Struct("<BBddddB")
_COMPLETED: Final = State.COMPLETED  # looked up once: access to an enum member runs Python code
TRISTATE: Final = {None: 2, True: 1, False: 0}


def seq_of(number: int) -> bytes:
    """A sequence number as scripts store it: padded, so that its text sorts like the number."""
    return b"%016d" % number


# -- exchange ----------------------------------------------------------------------------------------------------------


SETTLES, FOLLOWUPS, INSERTS, PUTS, CLAIMS, PUT_INSERTS = 1, 2, 4, 8, 16, 32
FAR_FUTURE: Final = 1 << 52  # later than any time


def exchange(request: Exchange) -> Args:
    """The parts of an exchange, after flags that name them."""
    args: Args = [0]
    flags = 0
    if request.settle:
        flags |= SETTLES | add_settlements(args, [cleaned_settlement(settlement) for settlement in request.settle])
    if request.insert:
        flags |= INSERTS
        add_specs(args, request.insert)
    if request.put:
        flags |= PUTS
        if any(put.inserts for put in request.put):
            flags |= PUT_INSERTS
        add_puts(args, request.put)
    if request.claim is not None:
        flags |= CLAIMS
        _add_claim(args, request.claim)
    args[0] = flags
    return args


def insert(specs: Sequence[JobSpec]) -> Args:
    args: Args = [INSERTS]
    add_specs(args, specs)
    return args


# -- settlements -------------------------------------------------------------------------------------------------------


def add_settlements(args: Args, settlements: Sequence[Settlement]) -> int:
    """Add settlements. Equal outcomes are sent once and settled in runs: most jobs that end together
    have equal outcomes.

    Returns FOLLOWUPS if inserts or puts come with them, else 0."""
    fates: dict[tuple[object, ...], int] = {}
    packed_fates: Args = []
    items: Args = []
    ran: list[int] = []
    waited: list[int] = []
    with_followups = []
    runs = at = before = 0
    for number, settlement in enumerate(settlements, 1):
        parts = codes.HAS_RESULT if settlement.result is not None and settlement.state is _COMPLETED else 0
        has_details = settlement.failure is not None or settlement.note or settlement.checkpoint is not None
        # Compared by identity, which is fast. A settlement with details equals no other.
        key = (
            id(settlement.state), id(settlement.reason), parts, settlement.attempt, settlement.lost,
            settlement.timeouts, settlement.fence, id(settlement.delay), id(settlement.keep_for), settlement.by,
            settlement.counts_as, settlement.unused, settlement.unkept, number if has_details else 0,
        )  # fmt: skip
        if (fate := fates.get(key)) is None:
            fate = fates[key] = len(fates) + 1
            _add_fate(packed_fates, settlement, parts)
        if fate != before:
            if runs:
                _end_run(items, at, ran, waited)
            runs, before, at = runs + 1, fate, len(items) + 1
            items += (fate, 0, 0)
        ran.append(settlement.ran)
        waited.append(codes.NONE if settlement.waited is None else settlement.waited)
        name = settlement.job.encode()
        items += (b"%016d" % settlement.seq, SHORT.pack(len(name)) + name)
        if parts:
            items.append(pack_result(settlement.result or b""))
        if has_details:
            _add_parts(items, settlement)
        if settlement.inserts or settlement.puts:
            with_followups.append((number, settlement))
    _end_run(items, at, ran, waited)
    args.append(len(fates))
    args += packed_fates
    args.append(runs)
    args += items
    if not with_followups:
        return 0
    args.append(len(with_followups))
    for number, settlement in with_followups:
        args.append(number)
        add_specs(args, settlement.inserts)
        add_puts(args, settlement.puts)
    return FOLLOWUPS


def _end_run(items: Args, at: int, ran: list[int], waited: list[int]) -> None:
    """Complete a run: its size, and how long its jobs ran and waited, first in total and then for each."""
    size, unknown = len(ran), waited.count(codes.NONE)
    totals = sum(ran), max(ran), size - unknown, sum(waited) - unknown * codes.NONE
    items[at], items[at + 1] = size, struct.pack(f"<4d{2 * size}d", *totals, *ran, *waited)
    ran.clear()
    waited.clear()


def _add_fate(args: Args, settlement: Settlement, parts: int) -> None:
    event = settled(settlement, 0, EPOCH, None)
    if settlement.failure is not None:
        parts |= codes.HAS_FAILURE
    if settlement.checkpoint is not None:
        parts |= codes.HAS_CHECKPOINT
    if settlement.note:
        parts |= codes.HAS_NOTE
    if settlement.unused:
        parts |= codes.IS_UNUSED
    if settlement.unkept:
        parts |= codes.IS_UNKEPT
    state, reason = codes.STATE[settlement.state], codes.REASON[settlement.reason]
    args += (
        _FATE.pack(
            state, reason, parts, settlement.attempt, settlement.lost, settlement.timeouts, settlement.fence,
            micros_or_none(settlement.delay), micros_or_none(settlement.keep_for),
        ),
        EVENT_START.pack(codes.KIND[event.kind], state, reason, codes.NO_PRIORITY),
        pack_end(None, settlement.attempt, settlement.by, pack_tail(Tail(note=event.note, error=event.error))),
        settlement.counts_as,
    )  # fmt: skip


def _add_parts(args: Args, settlement: Settlement) -> None:
    if settlement.failure is not None:
        args.append(pack_failure(settlement.failure))
    if settlement.checkpoint is not None:
        args.append(pack_value(settlement.checkpoint))
    if settlement.note:
        args.append(settlement.note)


# -- records -----------------------------------------------------------------------------------------------------------


def add_puts(args: Args, puts: Sequence[Put]) -> None:
    args.append(len(puts))
    for put in puts:
        args += (
            put.kind, put.name, "" if put.expect is None else put.expect,
            b"" if put.value is None else pack_value(put.value), _pack_settings_of(put), _pack_event_of(put),
            int(bool(put.inserts)),
        )  # fmt: skip
        if put.inserts:
            add_specs(args, put.inserts)


def _pack_settings_of(put: Put) -> bytes:
    """The settings in a record, packed for scripts; empty if it contains none."""
    if put.value is None or put.kind not in _SETTINGS_KINDS:
        return b""
    kind, pack = _SETTINGS_KINDS[put.kind]
    try:
        settings = msgspec.json.decode(put.value, type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{put.kind} {put.name!r}: not valid {put.kind} settings: {error}") from None
    return pack(settings)


def _pack_event_of(put: Put) -> bytes:
    """The event that a put publishes, without its times; empty if it publishes none."""
    if not put.tells:
        return b""
    if put.tells not in codes.KIND:
        raise BadInput(f"{put.kind} {put.name!r}: {put.tells!r} is not a kind of event")
    event = record_event(put, EPOCH)
    start = EVENT_START.pack(codes.KIND[put.tells], codes.NO_STATE, 0, codes.NO_PRIORITY)
    return start + pack_end(None, None, put.by, pack_tail(Tail(queue=event.queue, note=event.note)))


def _pack_queue(settings: QueueSettings) -> bytes:
    return _SETTINGS.pack(
        settings.paused, settings.discipline == "aging",
        codes.NONE if settings.max_running is None else settings.max_running,
        codes.NONE if settings.capacity is None else settings.capacity, span(settings.patience), settings.weight,
        settings.when_full == "shed",
    )  # fmt: skip


_SETTINGS_KINDS: Final[dict[str, tuple[Any, Callable[[Any], bytes]]]] = {
    "queue": (QueueSettings, _pack_queue),
    "resource": (ResourceSettings, pack_settings),
    "gate": (Gate, pack_gate),
    "health": (Health, pack_health),
}


# -- claims and beats --------------------------------------------------------------------------------------------------


def _add_claim(args: Args, claim: Claim) -> None:
    flags = 0 if claim.call is None else codes.CALLED | (codes.REPEATS if claim.repeats else 0)
    if claim.job is not None:
        flags |= codes.CHOSEN
    served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
    for name in (claim.worker, claim.call or ""):
        sized(name.encode())
    args += (claim.worker, claim.call or "", flags, claim.limit, span(claim.lease_for))
    args += (claim.limit if claim.begins is None else claim.begins, len(served))
    for queue, served_before in served.items():
        args += (queue, served_before)
    if claim.tasks is None:
        args.append(-1)
    else:
        args.append(len(claim.tasks))
        args += (task_of(task, version) for task, version in claim.tasks)
    if claim.job is not None:
        args.append(claim.job)
    args.append(len(claim.batches))
    for (task, version), batching in claim.batches.items():
        args += (task_of(task, version), batching.size, micros_or_none(batching.linger))


def reap(request: Reap, asked_at: int, watched: int, even_since: int | None) -> Args:
    sized(request.worker.encode())
    return [
        request.worker,
        asked_at,
        watched,
        request.limit,
        span(request.lease_for),
        codes.NONE if even_since is None else even_since,
    ]


def beats(items: Sequence[Beat]) -> Args:
    args: Args = [len(items)]
    for beat in map(cleaned_beat, items):
        has = (beat.checkpoint is not None) + 2 * (beat.progress is not None)
        has += 4 * beat.detach
        flags = TRISTATE[beat.alone] + 4 * TRISTATE[beat.begun]
        args += (_BEAT.pack(seq_of(beat.seq), beat.fence, span(beat.lease_for), flags, has), beat.job)
        if beat.checkpoint is not None:
            args.append(pack_value(beat.checkpoint))
        if beat.progress is not None:
            args += (
                pack_progress(beat.progress, beat.message),
                pack_tail(Tail(progress=beat.progress, note=beat.message)),
            )
        if beat.detach:
            sized(beat.by.encode())
            args.append(beat.by)
    return args


# -- amend and purge ---------------------------------------------------------------------------------------------------


def amend(request: Amend, names: Sequence[str | bytes]) -> Args:
    """A change of jobs by id or, with a filter, by the seqs of jobs that matched it."""
    where = request.filter
    check_priority(request.priority or 0)
    sized(request.by.encode())
    args: Args = [
        request.action, request.by, request.note, pack_tail(Tail(note=request.note)),
        "" if request.priority is None else request.priority, int(where is None),
    ]  # fmt: skip
    args += filter_args(where or Filter())
    args.append(len(names))
    args += names
    return args


def purge(request: Purge) -> Args:
    args: Args = [request.limit, span(request.events_for), span(request.keys_for), len(request.moved)]
    for job, revision in request.moved:
        args += (clean(job), revision)
    return args


def filter_args(where: Filter) -> Args:
    """The part of a filter that scripts apply: states, reason and priority."""
    reason = codes.NONE
    if where.reason is not None:
        reason = next((code for code, code_reason in enumerate(codes.REASONS) if code_reason == where.reason), 99)
    states = "".join(str(codes.STATE[state]) for state in where.states)
    return [states, reason, codes.NONE if where.priority is None else where.priority]

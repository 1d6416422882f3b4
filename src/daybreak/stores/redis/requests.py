"""Operations as the arguments of their scripts. Whatever is wrong with them is found here, before anything is sent."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.events import settled
from daybreak.core.model import Gate, Health, JobSpec, Put, QueueSettings, ResourceSettings, Settlement, State
from daybreak.core.units import EPOCH, clean, span
from daybreak.store.protocol import Amend, Beat, Claim, Exchange, Filter, Purge, Reap
from daybreak.store.sanitize import cleaned_beat, cleaned_settlement
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import EVENT_START, SHORT, Tail, pack_end, pack_tail, sized
from daybreak.stores.redis.gauges import pack_gate, pack_health, pack_settings
from daybreak.stores.redis.rows import pack_failure, pack_progress, squeeze
from daybreak.stores.redis.specs import Args, add_specs, check_priority, kept, task_of

_FATE: Final = struct.Struct("<3BIIIddd")
_BEAT: Final = struct.Struct("<16sddBB")
_SETTINGS: Final = struct.Struct("<BBddddB")
_REPLACED: Final = pack_tail(Tail(note="replaced"))
_COMPLETED: Final = State.COMPLETED  # looked up once: a member of an enum is found by calling code
SAID_ALONE: Final = {None: 2, True: 1, False: 0}


def seq_of(number: int) -> bytes:
    """A sequence number as keys and members spell it: its order is that of its text."""
    return b"%016d" % number


# -- exchange ----------------------------------------------------------------------------------------------------------


SETTLES, FOLLOWS, INSERTS, PUTS, CLAIMS = 1, 2, 4, 8, 16
LATER: Final = 1 << 52  # than any time


def exchange(wanted: Exchange) -> Args:
    """What there is of an exchange, and first which parts that is."""
    args: Args = [0, _REPLACED]
    flags = 0
    if wanted.settle:
        flags |= SETTLES | add_settlements(args, [cleaned_settlement(said) for said in wanted.settle])
    if wanted.insert:
        flags |= INSERTS
        add_specs(args, wanted.insert)
    if wanted.put:
        flags |= PUTS
        add_puts(args, wanted.put)
    if wanted.claim is not None:
        flags |= CLAIMS
        _add_claim(args, wanted.claim)
    args[0] = flags
    return args


def insert(specs: Sequence[JobSpec]) -> Args:
    args: Args = [INSERTS, _REPLACED]
    add_specs(args, specs)
    return args


# -- settlements -------------------------------------------------------------------------------------------------------


def add_settlements(args: Args, settlements: Sequence[Settlement]) -> int:
    """Outcomes that are alike are said once, and settled in runs; most of those that end together are alike.

    Answers whether more follows."""
    fates: dict[tuple[object, ...], int] = {}
    said_fates: Args = []
    items: Args = []
    ran: list[int] = []
    waited: list[int] = []
    followed = []
    runs = at = before = 0
    for number, said in enumerate(settlements, 1):
        parts = codes.HAS_RESULT if said.result is not None and said.state is _COMPLETED else 0
        tells = said.failure is not None or said.note or said.checkpoint is not None
        # By identity, which is found fast; what tells more than its numbers is like no other.
        key = (
            id(said.state), id(said.reason), parts, said.attempt, said.lost, said.timeouts, said.fence, id(said.delay),
            id(said.keep_for), said.by, said.counts_as, said.unused, number if tells else 0,
        )  # fmt: skip
        if (fate := fates.get(key)) is None:
            fate = fates[key] = len(fates) + 1
            _add_fate(said_fates, said, parts)
        if fate != before:
            if runs:
                _end_run(items, at, ran, waited)
            runs, before, at = runs + 1, fate, len(items) + 1
            items += (fate, 0, 0)
        ran.append(said.ran)
        waited.append(codes.NONE if said.waited is None else said.waited)
        name = said.job.encode()
        items += (b"%016d" % said.seq, SHORT.pack(len(name)) + name)
        if parts:
            items.append(squeeze(said.result or b""))
        if tells:
            _add_parts(items, said)
        if said.inserts or said.puts:
            followed.append((number, said))
    _end_run(items, at, ran, waited)
    args.append(len(fates))
    args += said_fates
    args.append(runs)
    args += items
    if not followed:
        return 0
    args.append(len(followed))
    for number, said in followed:
        args.append(number)
        add_specs(args, said.inserts)
        add_puts(args, said.puts)
    return FOLLOWS


def _end_run(items: Args, at: int, ran: list[int], waited: list[int]) -> None:
    """How many they are; and how long they ran and had waited, first together and then each."""
    size, unsaid = len(ran), waited.count(codes.NONE)
    together = sum(ran), max(ran), size - unsaid, sum(waited) - unsaid * codes.NONE
    items[at], items[at + 1] = size, struct.pack(f"<4d{2 * size}d", *together, *ran, *waited)
    ran.clear()
    waited.clear()


def _add_fate(args: Args, said: Settlement, parts: int) -> None:
    told = settled(said, 0, EPOCH, None)
    if said.failure is not None:
        parts |= codes.HAS_FAILURE
    if said.checkpoint is not None:
        parts |= codes.HAS_CHECKPOINT
    if said.note:
        parts |= codes.HAS_NOTE
    if said.unused:
        parts |= codes.IS_UNUSED
    state, reason = codes.STATE[said.state], codes.REASON[said.reason]
    args += (
        _FATE.pack(
            state, reason, parts, said.attempt, said.lost, said.timeouts, said.fence,
            kept(said.delay), kept(said.keep_for),
        ),
        EVENT_START.pack(codes.KIND[told.kind], state, reason, codes.NO_PRIORITY),
        pack_end(None, said.attempt, said.by, pack_tail(Tail(note=told.note, error=told.error))),
        said.counts_as,
    )  # fmt: skip


def _add_parts(args: Args, said: Settlement) -> None:
    if said.failure is not None:
        args.append(pack_failure(said.failure))
    if said.checkpoint is not None:
        args.append(squeeze(said.checkpoint))
    if said.note:
        args.append(said.note)


# -- records -----------------------------------------------------------------------------------------------------------


def add_puts(args: Args, puts: Sequence[Put]) -> None:
    args.append(len(puts))
    for put in puts:
        args += (
            put.kind, put.name, "" if put.expect is None else put.expect,
            b"" if put.value is None else squeeze(put.value), _known_of(put), _told_of(put),
        )  # fmt: skip


def _known_of(put: Put) -> bytes:
    """What scripts need to know of a record, as numbers."""
    if put.value is None or put.kind not in _PACKED:
        return b""
    kind, pack = _PACKED[put.kind]
    try:
        said = msgspec.json.decode(put.value, type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{put.kind} {put.name!r}: these are no {put.kind} settings: {error}") from None
    return pack(said)


def _told_of(put: Put) -> bytes:
    """The event that tells of a record, but for its times; empty if none does."""
    if not put.tells:
        return b""
    if put.tells not in codes.KIND:
        raise BadInput(f"{put.kind} {put.name!r}: {put.tells!r} is no kind of event")
    start = EVENT_START.pack(codes.KIND[put.tells], codes.NO_STATE, 0, codes.NO_PRIORITY)
    return start + pack_end(None, None, put.by, pack_tail(Tail(note=put.name)))


def _pack_queue(said: QueueSettings) -> bytes:
    return _SETTINGS.pack(
        said.paused, said.discipline == "aging", codes.NONE if said.max_running is None else said.max_running,
        codes.NONE if said.capacity is None else said.capacity, span(said.patience), said.weight,
        said.when_full == "shed",
    )  # fmt: skip


_PACKED: Final[dict[str, tuple[Any, Callable[[Any], bytes]]]] = {
    "queue": (QueueSettings, _pack_queue),
    "resource": (ResourceSettings, pack_settings),
    "gate": (Gate, pack_gate),
    "health": (Health, pack_health),
}


# -- claims and beats --------------------------------------------------------------------------------------------------


def _add_claim(args: Args, claim: Claim) -> None:
    flags = 0 if claim.call is None else codes.CALLED | (codes.REPEATS if claim.repeats else 0)
    served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
    for name in (claim.worker, claim.call or ""):
        sized(name.encode())
    args += (claim.worker, claim.call or "", flags, claim.limit, span(claim.lease_for))
    args += (claim.limit if claim.begins is None else claim.begins, len(served))
    for queue, had in served.items():
        args += (queue, had)
    if claim.tasks is None:
        args.append(-1)
    else:
        args.append(len(claim.tasks))
        args += (task_of(task, version) for task, version in claim.tasks)


def reap(wanted: Reap, asked: int, watched: int, even: int | None) -> Args:
    sized(wanted.worker.encode())
    return [wanted.worker, asked, watched, wanted.limit, span(wanted.lease_for), codes.NONE if even is None else even]


def beats(said: Sequence[Beat]) -> Args:
    args: Args = [len(said)]
    for beat in map(cleaned_beat, said):
        has = (beat.checkpoint is not None) + 2 * (beat.progress is not None)
        said_of_it = SAID_ALONE[beat.alone] + 4 * SAID_ALONE[beat.begun]
        args += (_BEAT.pack(seq_of(beat.seq), beat.fence, span(beat.lease_for), said_of_it, has), beat.job)
        if beat.checkpoint is not None:
            args.append(squeeze(beat.checkpoint))
        if beat.progress is not None:
            args += (
                pack_progress(beat.progress, beat.message),
                pack_tail(Tail(progress=beat.progress, note=beat.message)),
            )
    return args


# -- people ------------------------------------------------------------------------------------------------------------


def amend(wanted: Amend, names: Sequence[str | bytes]) -> Args:
    """A change to these ids, or to these seqs of jobs that matched the filter."""
    where = wanted.filter
    check_priority(wanted.priority or 0)
    sized(wanted.by.encode())
    args: Args = [
        wanted.action, wanted.by, wanted.note, pack_tail(Tail(note=wanted.note)),
        "" if wanted.priority is None else wanted.priority, int(where is None),
    ]  # fmt: skip
    args += filtered(where or Filter())
    args.append(len(names))
    args += names
    return args


def purge(wanted: Purge) -> Args:
    args: Args = [wanted.limit, span(wanted.events_for), span(wanted.keys_for), len(wanted.forwarded)]
    for seq, fence in wanted.forwarded:
        args += (seq_of(seq), fence)
    args.append(len(wanted.moved))
    for job, revision in wanted.moved:
        args += (clean(job), revision)
    return args


def filtered(where: Filter) -> Args:
    """What a script can see of a filter: states, reason and priority."""
    reason = codes.NONE
    if where.reason is not None:
        reason = next((code for code, known in enumerate(codes.REASONS) if known == where.reason), 99)
    states = "".join(str(codes.STATE[state]) for state in where.states)
    return [states, reason, codes.NONE if where.priority is None else where.priority]

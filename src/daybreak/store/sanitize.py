"""Clean what a store is given: text is made encodable, and what no store can keep is refused."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import Failure, Settlement, State
from daybreak.core.units import clean
from daybreak.store.protocol import Amend, Beat, Exchange, Moved


def cleaned_settlement(settlement: Settlement) -> Settlement:
    """The settlement with text that every store can encode: the error text of one job must not fail the whole batch."""
    failure = settlement.failure
    if failure is None and settlement.note.isascii():
        return settlement
    return replace(settlement, note=clean(settlement.note), failure=failure and _cleaned_failure(failure))


def cleaned_exchange(exchange: Exchange) -> Exchange:
    """The exchange with settlements that every store can encode."""
    settle = [cleaned_settlement(settlement) for settlement in exchange.settle]
    if all(map(operator.is_, settle, exchange.settle)):
        return exchange
    return replace(exchange, settle=settle)


def _cleaned_failure(failure: Failure) -> Failure:
    return replace(
        failure,
        message=clean(failure.message),
        traceback=clean(failure.traceback),
        kinds=tuple(clean(kind) for kind in failure.kinds),
    )


def cleaned_beat(beat: Beat) -> Beat:
    """The heartbeat with text that every store can encode."""
    if beat.message.isascii() and beat.by.isascii():
        return beat
    return replace(beat, message=clean(beat.message), by=clean(beat.by))


def cleaned_amend(amend: Amend) -> Amend:
    """The change with text that every store can encode."""
    return replace(amend, note=clean(amend.note), by=clean(amend.by))


def cleaned_moved(moved: Moved) -> Moved:
    """The job as any store can adopt it, with its own key among its keys. Raises BadInput for a job that no store can
    keep. A store calls this for all jobs of an `adopt` before it writes the first."""
    job, spec = moved.job, moved.job.spec
    if job.state is State.RUNNING:
        raise BadInput(f"job {spec.id!r} is running; move it when its attempt has ended")
    if job.state is State.SCHEDULED and job.run_at is None:
        raise BadInput(f"job {spec.id!r} is scheduled but has no run_at; give the time it waits for")
    if job.is_final and job.finished_at is None:
        raise BadInput(f"job {spec.id!r} is {job.state} but has no finished_at; give the time it ended")
    if not 0 <= job.priority <= 10:
        raise BadInput(f"job {spec.id!r}: priority {job.priority} is out of range; it is from 0 to 10")
    if not 0 <= spec.version < 1 << 31:
        raise BadInput(f"job {spec.id!r}: version {spec.version} is out of range; it is from 0 to 2,147,483,647")
    if not 0 <= job.fence < 1 << 30:
        raise BadInput(f"job {spec.id!r}: fence {job.fence} is out of range; it is from 0 to 1,073,741,823")
    keys = moved.keys if spec.key is None else {spec.key: spec.digest, **moved.keys}
    names = (spec.id, spec.task, spec.queue, spec.by, spec.unique, spec.run, spec.owner, *spec.tags, *spec.meta.items())
    for name in _flat((*names, *keys.items())):
        if clean(name) != name:
            raise BadInput(f"job {spec.id!r}: {name!r} contains an unpaired surrogate, which cannot be encoded")
    failure = job.failure and _cleaned_failure(job.failure)
    job = replace(job, note=clean(job.note), message=clean(job.message), failure=failure)
    return Moved(job, [_cleaned_event(event) for event in moved.history], keys, moved.holds_name)


def _flat(names: Iterable[str | tuple[str, str] | None]) -> Iterator[str]:
    for name in names:
        if isinstance(name, str):
            yield name
        elif name is not None:
            yield from name


def _cleaned_event(event: Event) -> Event:
    if event.by.isascii() and event.note.isascii() and event.error.isascii():
        return event
    return replace(event, by=clean(event.by), note=clean(event.note), error=clean(event.error))

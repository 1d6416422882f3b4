"""What a store is given, as every store can keep it: half a surrogate pair goes, and what cannot be kept is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import Failure, Settlement, State
from daybreak.core.units import clean
from daybreak.store.protocol import Amend, Beat, Moved


def cleaned_settlement(said: Settlement) -> Settlement:
    """With text that every store can keep: what broke a job must not break the batch that says so."""
    failure = said.failure
    if failure is None and said.note.isascii():
        return said
    return replace(said, note=clean(said.note), failure=failure and _cleaned_failure(failure))


def _cleaned_failure(failure: Failure) -> Failure:
    return replace(
        failure,
        message=clean(failure.message),
        traceback=clean(failure.traceback),
        kinds=tuple(clean(kind) for kind in failure.kinds),
    )


def cleaned_beat(said: Beat) -> Beat:
    return said if said.message.isascii() else replace(said, message=clean(said.message))


def cleaned_amend(said: Amend) -> Amend:
    return replace(said, note=clean(said.note), by=clean(said.by))


def cleaned_moved(said: Moved) -> Moved:
    """As a store can take it over, all its keys named; BadInput for what none can keep. Every store asks this of all
    jobs of an `adopt` before it writes the first."""
    job, spec = said.job, said.job.spec
    if job.state is State.RUNNING:
        raise BadInput(f"job {spec.id!r} is running: it can be moved when its attempt has ended")
    if job.state is State.SCHEDULED and job.run_at is None:
        raise BadInput(f"job {spec.id!r} is scheduled, but nobody says for when: give its run_at")
    if job.is_final and job.finished_at is None:
        raise BadInput(f"job {spec.id!r} has ended, but nobody says when: give its finished_at")
    if not 0 <= job.priority <= 10 or not 0 <= spec.version < 1 << 31 or not 0 <= job.fence < 1 << 30:
        raise BadInput(f"job {spec.id!r}: priority, version or fence is out of range")
    keys = said.keys if spec.key is None else {spec.key: spec.digest, **said.keys}
    names = (spec.id, spec.task, spec.queue, spec.by, spec.unique, spec.run, spec.owner, *spec.tags, *spec.meta.items())
    if odd := next((name for name in _flat((*names, *keys.items())) if clean(name) != name), None):
        raise BadInput(f"job {spec.id!r}: {odd!r} holds half a surrogate pair, which no encoding can carry")
    failure = job.failure and _cleaned_failure(job.failure)
    job = replace(job, note=clean(job.note), message=clean(job.message), failure=failure)
    return Moved(job, [_cleaned_event(event) for event in said.history], keys, said.holds_name)


def _flat(names: Iterable[str | tuple[str, str] | None]) -> Iterator[str]:
    for name in names:
        if isinstance(name, str):
            yield name
        elif name is not None:
            yield from name


def _cleaned_event(told: Event) -> Event:
    if told.by.isascii() and told.note.isascii() and told.error.isascii():
        return told
    return replace(told, by=clean(told.by), note=clean(told.note), error=clean(told.error))

"""I1, I9, I24: the store as it stands at the end, beside all that was told of it."""

from __future__ import annotations

from daybreak.core.events import Event, fold
from daybreak.core.model import Job
from daybreak.store.protocol import Filter, Query, Store
from harness.book import Book
from harness.loop import run_now
from harness.replay import compare


def check(book: Book, store: Store, unfinished: list[Job]) -> None:
    for job in unfinished:
        book.blame("I1", book.jobs.get(job.id) or job.id, f"still {job.state} long after the last trouble")
    _check_rows(book, store)
    _check_tallies(book, store)
    _check_feed(book)


def _check_rows(book: Book, store: Store) -> None:
    ids = sorted(book.jobs)
    for name, stored in zip(ids, run_now(store.get(ids)), strict=True):
        known = book.jobs[name]
        if stored is None:
            book.blame("I1", known, "is gone from the store")
            continue
        compare(book, known, stored)
        history = run_now(store.history(name))
        if history != known.events:
            book.blame("I9", known, f"history has {len(history)} events, the feed had {len(known.events)}")
        try:
            told = fold(history)
        except ValueError as gap:
            book.blame("I9", known, str(gap))
            continue
        if told != known.folded:
            book.blame("I9", known, f"its history folds to {told}, the feed to {known.folded}")
    for name in sorted(book.gone):
        if name not in book.jobs and run_now(store.get([name])) != [None]:
            book.blame("I9", name, "was removed and is still there")


def _check_tallies(book: Book, store: Store) -> None:
    found = run_now(store.find(Query(limit=1000))).jobs
    if extra := sorted({job.id for job in found} - set(book.jobs)):
        book.blame("I2", extra[0], "stored, but no event tells of it")
    for state in sorted({job.state for job in found}):
        counted = sum(tally.n for tally in run_now(store.count(Filter(states=frozenset({state})))))
        if counted != (recount := sum(1 for job in found if job.state is state)):
            book.blame("I24", "", f"{counted} counted as {state}, a recount gives {recount}")


def _check_feed(book: Book) -> None:
    """The reader, who followed through every outage, saw each event once and in order."""
    told = [event for commit in book.history.commits for event in commit.events]
    read = book.history.followed
    if read != told:
        at = next((i for i, (a, b) in enumerate(zip(read, told, strict=False)) if a != b), min(len(read), len(told)))
        what = f"the reader saw {len(read)} events of {len(told)}; they differ from number {at} on: {_at(told, at)}"
        book.blame("I9", "", what)


def _at(events: list[Event], index: int) -> str:
    return repr(events[index]) if index < len(events) else "nothing more"

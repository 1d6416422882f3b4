"""Stories that hypothesis generates. There are few values, so that jobs collide: same keys, same names, same
instants."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from operator import add
from typing import Any, Final

from hypothesis import strategies as st

from daybreak.core.model import (
    Batching,
    Caching,
    Cancelled,
    Done,
    Failed,
    Failure,
    Gate,
    HandedBack,
    Health,
    Lost,
    Need,
    Options,
    Outcome,
    QueueSettings,
    ResourceSettings,
    Retry,
    State,
    Suspended,
    TimedOut,
)
from daybreak.store.protocol import Filter
from daybreak.testing.differential.steps import (
    Advance,
    AskHolders,
    Change,
    ChangeAll,
    ClaimSketch,
    Clean,
    Configure,
    End,
    Forget,
    Heartbeat,
    Nothing,
    Provide,
    PutSketch,
    Read,
    Reopen,
    Shut,
    Sketch,
    Spare,
    Step,
    Submit,
    TakeOver,
    Work,
    Write,
)

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
ZERO: Final = timedelta()

# The first of each row is what a failing story is shrunk to.
WAITS: Final = (ZERO, ZERO, ZERO, SECOND, SECOND, 4 * SECOND, 10 * SECOND, 10 * SECOND, MINUTE, HOUR, -SECOND)
QUEUES: Final = ("a", "a", "b", "c")
TASKS: Final = (("x", 1), ("x", 2), ("y", 1))
ONCE: Final = Retry(attempts=1)
OPTIONS: Final = (
    Options(),
    Options(),
    Options(retry=ONCE),
    Options(retry=Retry(strategy="fixed", attempts=2, delay=5 * SECOND)),
    Options(expires_in=10 * SECOND),
    Options(expires_in=MINUTE, retry=ONCE, keep_failed=MINUTE),
    Options(keep_completed=SECOND, keep_failed=SECOND, deaths=1),
    Options(keep_completed=MINUTE, keep_failed=HOUR),
    Options(keep_completed=None, timeout=SECOND, adaptive=True, escalate=2.0),
    Options(resources=(Need("r"),)),
    Options(resources=(Need("r"),), expires_in=10 * SECOND),
    Options(resources=(Need("r", 2),)),
    Options(resources=(Need("r"), Need("s"))),
    Options(resources=(Need("s", 2), Need("t"))),
    Options(resources=(Need("t"),), retry=ONCE),
    Options(resources=(Need("r"),), retry=Retry(strategy="fixed", attempts=4, delay=ZERO)),
    Options(resources=(Need("r"), Need("t")), retry=Retry(strategy="fixed", attempts=4, delay=SECOND)),
    Options(resources=(Need("r"),), fail_fast=True),
    Options(resources=(Need("r"),), retry=Retry(strategy="fixed", attempts=9, delay=ZERO), deaths=9),
    Options(expires_in=MINUTE),
)
HOLDERS: Final = (*(None,) * 8, "ann", "bob")
RESOURCES: Final = ("r", "r", "s", "t")
RESOURCE_SETTINGS: Final = (
    None, ResourceSettings(slots=1), ResourceSettings(slots=1), ResourceSettings(slots=2), ResourceSettings(slots=3),
    ResourceSettings(slots=0), ResourceSettings(every=SECOND), ResourceSettings(every=10 * SECOND, burst=2, slots=2),
    ResourceSettings(slots=1, max_waiting=1), ResourceSettings(slots=2, every=4 * SECOND, burst=3),
)  # fmt: skip
GATES: Final = (
    None, Gate(failures=2), Gate(state="open", shut_for=10 * SECOND, probes=1),
    Gate(state="open", shut_for=MINUTE, probes=2),
)  # fmt: skip
HEALTHS: Final = (
    None, Health(spare_for=MINUTE), Health(spare_for=HOUR), Health(spare_for=HOUR), Health(spare_for=10 * SECOND),
    Health(good=2.5),
)  # fmt: skip
KEYS: Final = (None, None, None, None, ("k", "1"), ("k", "2"), ("l", "1"))
UNIQUES: Final = (
    *(None,) * 6, ("u", "return"), ("u", "replace"), ("u", "raise"), ("u", "refuse"), ("v", "replace"), ("v", "raise"),
    ("u", "return while waiting"), ("u", "replace while waiting"), ("v", "refuse while waiting"),
    ("v", "raise while waiting"),
)  # fmt: skip
FLIGHTS: Final = (
    *(None,) * 8, ("f", Caching()), ("f", Caching()), ("f", Caching(ttl=10 * SECOND)), ("g", Caching(size=8)),
    ("h", Caching(size=8)), ("h", Caching(size=3, ttl=ZERO)),
)  # fmt: skip
BELONGS: Final = ((None, None, ()), ("ann", None, ("t",)), ("bob", "r", ("t", "s")), (None, "r", ()))
OUTCOMES: Final[tuple[Outcome, ...]] = (
    Done(), Done(b"result"), Done(b"result", ran=1.5), Failed(Failure(message="no", kinds=("ValueError",))),
    Failed(Failure(message="oops", kinds=("OSError",))), Failed(Failure(message="busy", retry_after=10 * SECOND)),
    TimedOut(SECOND), Lost(), Lost(alone=True), Cancelled(), Suspended(), Suspended("note", b"half"), HandedBack(),
    HandedBack(delay=SECOND),
    HandedBack(b"part"), HandedBack(unused=True),
)  # fmt: skip
ACTIONS: Final = ("cancel", "suspend", "resume", "retry", "remove", "rerank", "start")
STATES: Final = (
    frozenset[State](), frozenset[State](), frozenset({State.QUEUED}), frozenset({State.SCHEDULED}),
    frozenset({State.RUNNING}), frozenset({State.SUSPENDED}), frozenset({State.FAILED, State.CANCELLED}),
    frozenset({State.COMPLETED}), frozenset({State.QUEUED, State.COMPLETED}), frozenset({State.BLOCKED}),
)  # fmt: skip
SETTINGS: Final = (
    None, QueueSettings(), QueueSettings(paused=True), QueueSettings(paused=True), QueueSettings(max_running=1),
    QueueSettings(max_running=1),
    QueueSettings(max_running=1), QueueSettings(max_running=2),
    QueueSettings(capacity=1), QueueSettings(capacity=2), QueueSettings(capacity=3, max_running=1),
    QueueSettings(capacity=2, when_full="shed"), QueueSettings(capacity=3, when_full="shed"),
    QueueSettings(capacity=4, when_full="shed"), QueueSettings(capacity=6),
    QueueSettings(weight=3), QueueSettings(weight=3), QueueSettings(discipline="aging", patience=SECOND),
    QueueSettings(discipline="aging", patience=10 * SECOND), QueueSettings(discipline="aging", weight=2, max_running=3),
)  # fmt: skip


def one(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def several(strategy: st.SearchStrategy[Any], most: int, least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def rarely(strategy: st.SearchStrategy[Any], otherwise: Any = ()) -> st.SearchStrategy[Any]:
    return one((0, 0, 0, 1)).flatmap(lambda chosen: strategy if chosen else st.just(otherwise))


NUMBER: Final = st.integers(0, 40)
SKETCH: Final = st.builds(
    Sketch,
    queue=one(QUEUES),
    task=one(TASKS),
    priority=one((5, 5, 0, 2, 9)),
    delay=one((None, None, None, None, 5 * SECOND, MINUTE, ZERO)),
    run_in=one((None, None, None, None, 10 * SECOND, HOUR, -HOUR)),
    key=one(KEYS),
    unique=one(UNIQUES),
    options=one(OPTIONS),
    belongs=one(BELONGS),
    again=rarely(NUMBER, None),
    holder=one(HOLDERS),
    batch=one((None, None, None, "p")),
    flight=one(FLIGHTS),
)
PUT: Final = st.builds(
    PutSketch,
    name=one(("n", "m")),
    value=one((b"1", b"2", None)),
    expect=one(("any", "absent", "current", "stale")),
    tells=one(("", "", "", "breaker_opened", "breaker_closed", "breaker_probing", "queue_empty", "saga_stuck")),
    inserts=rarely(several(SKETCH, 2, 1)),
)
CLAIM: Final = st.builds(
    ClaimSketch,
    worker=one(("w1", "w2")),
    queues=one((("a",), ("a", "b"), ("c", "a"), ("b", "c", "a"), ("a", "b", "c"))),
    served=one(((), (), (3, 0, 1), (0, 2, 5), (7, 7, 7))),
    tasks=one((None, None, None, frozenset({("x", 1)}), frozenset({("x", 2), ("y", 1)}))),
    limit=one((5, 1, 2, 20)),
    lease_for=one((10 * SECOND, 4 * SECOND, MINUTE)),
    begins=one((None, None, 0, 1, 3)),
    job=one((None, None, None, None, 0, 1, 2, 5, 9)),
    batching=one((None, Batching(size=3), Batching(size=2, linger=4 * SECOND), Batching(size=20))),
)
WHICH: Final = one(("open", "open", "open", "lost", "any"))
LEASE: Final = st.tuples(NUMBER, WHICH)
END: Final = st.builds(
    End,
    lease=NUMBER,
    which=WHICH,
    outcome=one(OUTCOMES),
    inserts=rarely(several(SKETCH, 1, 1)),
    puts=rarely(several(PUT, 1, 1)),
)
FILTER: Final = st.builds(
    Filter,
    states=one(STATES),
    reason=one((*(None,) * 12, "error", "expired")),
    queue=one((*(None,) * 6, "a")),
    task=one((*(None,) * 6, "x")),
    run=one((*(None,) * 6, "r")),
    owner=one((*(None,) * 9, "ann", "bob")),
    key=one((*(None,) * 9, "k")),
    priority=one((*(None,) * 9, 5, 2)),
    tag=one((*(None,) * 9, "t", "s")),
)
WAIT: Final = one(WAITS)

# How often each kind of step comes, and what it is made of; the first is what a step that does not matter shrinks to.
STEPS: Final[tuple[tuple[int, st.SearchStrategy[Step]], ...]] = (
    (1, st.just(Nothing())),
    (6, st.builds(Submit, wait=WAIT, jobs=several(SKETCH, 4, 1))),
    (9, st.builds(
        Work, wait=WAIT, ends=several(END, 3), jobs=rarely(several(SKETCH, 2)), puts=rarely(several(PUT, 2)),
        claim=CLAIM,
    )),
    (4, st.builds(
        Heartbeat, wait=WAIT, leases=several(LEASE, 3, 1), lease_for=one((10 * SECOND, SECOND, MINUTE)),
        progress=one((None, 0.5)), checkpoint=one((None, b"point")), alone=one((None, True, True, False)),
        begun=one((None, None, True, False)), detach=one((False, False, False, True)), by=one(("", "", "ann")),
    )),
    (3, st.builds(
        TakeOver, wait=one((10 * SECOND, ZERO, 4 * SECOND, MINUTE)),
        watched_for=one((HOUR, HOUR, 10 * SECOND, SECOND)), limit=one((100, 1, 2)),
        lease_for=one((10 * SECOND, SECOND)),
    )),
    (1, st.builds(Advance, wait=WAIT, limit=one((500, 1, 2)))),
    (6, st.builds(
        Change, wait=WAIT, action=one(ACTIONS), jobs=several(NUMBER, 4, 2), priority=one((None, 0, 5, 9)),
    )),
    (4, st.builds(AskHolders, action=one(("cancel", "suspend", "suspend", "resume")), leases=several(NUMBER, 3, 1))),
    (2, st.builds(
        ChangeAll, wait=WAIT, action=one(ACTIONS), where=FILTER, limit=one((500, 1, 2, 3)), priority=one((None, 0, 9)),
        meanwhile=several(SKETCH, 2),
    )),
    (3, st.builds(
        Clean, wait=WAIT, limit=one((1, 2, 500)), events_for=one((HOUR, MINUTE, ZERO)),
        keys_for=one((ZERO, MINUTE, HOUR)),
    )),
    (1, st.builds(
        Forget, wait=WAIT, flights=one(((), (), ("f of x 1", "g of y 1", "none"))), task=one((None, "x")),
        limit=one((500, 1, 2)),
    )),
    (1, st.builds(Write, wait=WAIT, puts=several(PUT, 3, 1))),
    (3, st.builds(Configure, wait=WAIT, queue=one((*QUEUES, "lock")), settings=one(SETTINGS))),
    (3, st.builds(Provide, wait=WAIT, resource=one(RESOURCES), settings=one(RESOURCE_SETTINGS))),
    (2, st.builds(Shut, wait=WAIT, resource=one(RESOURCES), gate=one(GATES))),
    (4, st.builds(Spare, wait=WAIT, resource=one(RESOURCES), health=one(HEALTHS))),
    (2, st.builds(Read, wait=WAIT, where=FILTER, limit=one((100, 1, 2, 3)), cursor=NUMBER)),
    (1, st.just(Reopen())),
)  # fmt: skip
# One of several equal strategies counts once in hypothesis; numbers to choose by do not.
CHOICES: Final = tuple(n for n, (weight, _) in enumerate(STEPS) for _ in range(weight))
STEP: Final = one(CHOICES).flatmap(lambda n: STEPS[n][1])

# Limits that hold from the start, and something to do.
OPENING: Final = st.builds(
    lambda settings, provided, jobs: [
        *(Configure(queue=queue, settings=chosen) for queue, chosen in zip("abc", settings, strict=True)),
        *(Provide(resource=resource, settings=chosen) for resource, chosen in zip("rst", provided, strict=True)),
        Submit(jobs=jobs),
    ],
    st.tuples(*[one(SETTINGS)] * 3),
    st.tuples(*[one(RESOURCE_SETTINGS)] * 3),
    several(SKETCH, 8, 4),
)

# A queue that is full from the first, and a resource whose retries must be few: chance alone hardly meets them.
PLAIN: Final = {
    "task": st.just(("x", 1)), "delay": st.none(), "run_in": st.none(), "key": st.none(), "unique": st.none(),
    "belongs": st.just(BELONGS[0]), "again": st.none(), "holder": st.none(),
}  # fmt: skip
CROWDED: Final = st.builds(
    lambda settings, jobs: [Configure(queue="a", settings=settings), *(Submit(jobs=(job,)) for job in jobs)],
    one((
        QueueSettings(capacity=2, when_full="shed"), QueueSettings(capacity=3, when_full="shed"),
        QueueSettings(capacity=6), QueueSettings(capacity=8, when_full="shed"),
    )),
    several(
        st.builds(
            Sketch, queue=st.just("a"), priority=one((9, 9, 7, 5, 2, 0)), **PLAIN,
            options=one((Options(expires_in=MINUTE), Options(), Options(expires_in=10 * SECOND))),
        ), 12, 6,
    ),
)  # fmt: skip
# Queues that are full of jobs that wait: for locks, and for resources that few may wait for.
WAITER: Final = st.builds(
    Sketch, queue=st.just("a"), priority=one((9, 9, 7, 5, 2, 0)),
    **PLAIN | {"holder": one((None, "ann", "bob")), "task": one(TASKS), "unique": one((None, None, ("u", "replace")))},
    options=one((
        Options(resources=(Need("r"),)), Options(resources=(Need("r"), Need("s"))), Options(),
        Options(resources=(Need("s"),), expires_in=10 * SECOND),
    )),
)  # fmt: skip
WAITERS: Final = st.builds(
    lambda settings, provided, jobs, claim, more: [
        *(Configure(queue=queue, settings=chosen) for queue, chosen in zip(("a", "lock"), settings, strict=True)),
        *(Provide(resource=resource, settings=chosen) for resource, chosen in zip("rs", provided, strict=True)),
        Submit(jobs=jobs), Work(claim=replace(claim, queues=("a",), tasks=None)),
        *(Submit(jobs=(job,)) for job in more),
    ],
    st.tuples(*[one((
        QueueSettings(capacity=3, when_full="shed"), QueueSettings(capacity=4, when_full="shed"),
        QueueSettings(when_full="shed"),
        QueueSettings(capacity=3, when_full="shed", discipline="aging", patience=SECOND),
    ))] * 2),
    st.tuples(*[one((
        ResourceSettings(slots=1), ResourceSettings(slots=0), ResourceSettings(slots=1, max_waiting=2),
        ResourceSettings(slots=0, max_waiting=1),
    ))] * 2),
    several(WAITER, 5, 2),
    CLAIM,
    several(WAITER, 12, 6),
)  # fmt: skip
FAILING: Final = st.builds(
    lambda jobs, health, claim: [
        Submit(jobs=jobs),
        Work(claim=replace(claim, queues=("a",), tasks=None, limit=20)),
        Work(ends=tuple(End(0, "open", Failed(Failure(message="oops", kinds=("OSError",))), (), ()) for _ in jobs)),
        Spare(resource="r", health=health),
        Advance(limit=500),
        Work(claim=replace(claim, queues=("a",), tasks=None)),
    ],
    several(
        st.builds(
            Sketch, queue=st.just("a"), priority=one((5, 5, 2)), **PLAIN,
            options=st.just(Options(resources=(Need("r"),), retry=Retry(strategy="fixed", attempts=9, delay=ZERO))),
        ), 6, 2,
    ),
    one((Health(spare_for=HOUR), Health(spare_for=MINUTE))),
    CLAIM,
)  # fmt: skip
SHRINKING: Final = st.builds(
    lambda jobs, last: [
        Configure(queue="a", settings=QueueSettings(capacity=6)), *(Submit(jobs=(job,)) for job in (*jobs, last)),
    ],
    several(st.builds(Sketch, queue=st.just("a"), priority=st.just(5), options=st.just(Options()), **PLAIN), 5, 5),
    st.builds(
        Sketch, queue=st.just("a"), priority=one((9, 7)), options=st.just(Options(expires_in=MINUTE)), **PLAIN
    ),
)  # fmt: skip
HASTY: Final = st.builds(
    lambda jobs, gate, claim: [
        Shut(resource="r", gate=gate), Submit(jobs=jobs), Work(claim=replace(claim, queues=("a",), tasks=None)),
    ],
    several(
        st.builds(
            Sketch, queue=st.just("a"), priority=one((5, 2)), **PLAIN,
            options=one((Options(resources=(Need("r"),), fail_fast=True), Options(resources=(Need("r"),)))),
        ), 4, 1,
    ),
    one(GATES[2:]),
    CLAIM,
)  # fmt: skip
# Jobs whose keys and names are submitted again while they run, and after they were removed or purged.
KNOWN: Final = PLAIN | {
    "key": one((("k", "1"), ("k", "1"), ("l", "1"))),
    "unique": one((None, ("u", "return while waiting"), ("u", "replace while waiting"), ("v", "return"))),
}
REPEATED: Final = st.builds(
    lambda jobs, more, claim, action, clean, last: [
        Submit(jobs=jobs), Work(claim=replace(claim, queues=("a",), tasks=None, limit=20)), Submit(jobs=more),
        Work(ends=tuple(End(0, "open", Done(), (), ()) for _ in jobs)),
        Change(action=action, jobs=(0, 1), priority=None),
        clean, Submit(jobs=more), last, Submit(jobs=more),
    ],
    *[several(
        st.builds(
            Sketch, queue=st.just("a"), priority=one((5, 2)), **KNOWN,
            options=one((Options(keep_completed=SECOND), Options())),
        ), 4, 2,
    )] * 2,
    CLAIM,
    one(("remove", "retry", "cancel")),
    *[st.builds(
        Clean, wait=one((SECOND, MINUTE)), limit=one((500, 1)), events_for=st.just(HOUR), keys_for=one((HOUR, MINUTE)),
    )] * 2,
)  # fmt: skip
# Batch calls: jobs of few keys, some of which wait for a slot that another call holds, and that end in any order.
ELEMENT: Final = st.builds(
    Sketch, queue=st.just("a"), priority=one((5, 5, 5, 2, 9)), **PLAIN, batch=one(("p", "p", "q")),
    options=one((
        Options(), Options(resources=(Need("r"),)), Options(resources=(Need("r"),)), Options(expires_in=10 * SECOND),
        Options(resources=(Need("r"),), retry=Retry(strategy="fixed", attempts=4, delay=ZERO)),
    )),
)  # fmt: skip
BATCHED: Final = st.builds(
    lambda settings, provided, jobs, claims, ends: [
        Configure(queue="a", settings=settings), Provide(resource="r", settings=provided),
        *(step for more, claim, ended in zip(jobs, claims, ends, strict=True) for step in (
            Submit(jobs=more), Work(ends=ended, claim=replace(claim, queues=("a",), tasks=None, job=None)),
        )),
    ],
    one((None, QueueSettings(max_running=5), QueueSettings(discipline="aging", patience=SECOND))),
    one((ResourceSettings(slots=1), ResourceSettings(slots=1, every=4 * SECOND), ResourceSettings(slots=2))),
    st.tuples(several(ELEMENT, 9, 5), several(ELEMENT, 4), several(ELEMENT, 4)),
    st.tuples(*[CLAIM] * 3),
    st.tuples(*[several(st.builds(
        End, lease=NUMBER, which=st.just("open"), outcome=one(OUTCOMES), inserts=st.just(()), puts=st.just(()),
    ), 6)] * 3),
)  # fmt: skip
# Jobs of few flights in two queues, of which one leads each, and that end, leave or come back in any order.
FLYING: Final = st.builds(
    Sketch, queue=one(("a", "a", "a", "b")), priority=one((5, 5, 2, 9)),
    **PLAIN | {
        "delay": one((None, None, None, SECOND)), "unique": one((None, None, ("u", "replace"), ("v", "return"))),
        "key": one((None, None, ("k", "1"))),
    },
    options=one((
        Options(), Options(), Options(expires_in=10 * SECOND), Options(retry=ONCE, keep_completed=SECOND),
        Options(resources=(Need("r"),), retry=Retry(strategy="fixed", attempts=4, delay=SECOND)),
    )),
    flight=one(FLIGHTS[8:]),
)  # fmt: skip
FLOWN: Final = st.builds(
    lambda settings, jobs, claims, ends, actions: [
        Configure(queue="a", settings=settings),
        *(step for more, claim, ended, (action, numbers) in zip(jobs, claims, ends, actions, strict=True) for step in (
            Submit(wait=SECOND, jobs=more),
            Work(ends=ended, claim=replace(claim, queues=("a", "b", "c"), tasks=None, job=None)),
            Change(action=action, jobs=numbers, priority=2),
        )),
    ],
    one((None, None, QueueSettings(capacity=4), QueueSettings(capacity=4, when_full="shed"))),
    st.tuples(several(FLYING, 6, 3), several(FLYING, 4, 1), several(FLYING, 4)),
    st.tuples(*[CLAIM] * 3),
    st.tuples(*[several(st.builds(
        End, lease=NUMBER, which=st.just("open"), outcome=one((*[Done(b"result")] * 12, *OUTCOMES)),
        inserts=rarely(several(FLYING, 1, 1)),
        puts=st.just(()),
    ), 4, 2)] * 3),
    st.tuples(*[st.tuples(one(ACTIONS), several(NUMBER, 3))] * 3),
)  # fmt: skip
BEGINNINGS: Final = (OPENING, CROWDED, FAILING, SHRINKING, HASTY, REPEATED, WAITERS, BATCHED, FLOWN)
BEGINNING: Final = one((0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8)).flatmap(lambda n: BEGINNINGS[n])


def story(least: int = 20, most: int = 60) -> st.SearchStrategy[list[Step]]:
    """Steps in a row. A step that does not matter for a failure shrinks to Nothing."""
    return st.builds(add, BEGINNING, st.lists(STEP, min_size=least, max_size=most))

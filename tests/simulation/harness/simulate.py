"""One seed, one story: run it, then judge it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final

import msgspec

from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.core.flights import is_flight_cause
from daybreak.core.model import FINAL, Job, Put, QueueSettings, Reason, State
from daybreak.core.units import moment
from daybreak.store.protocol import Filter, Purged, Query
from daybreak.tasks.registry import Program
from harness import faults
from harness.actors import Caller, Operator, Wish, client_of, follow
from harness.checker import Violation, judge
from harness.history import History
from harness.loop import START, SimLoop, run_now
from harness.network import Network
from harness.plan import LEASE_SECONDS, QUEUES, Plan, plan_for
from harness.process import discard, own_tasks
from harness.rules_flights import is_from_another
from harness.site import Parts, Site, StoreFactory
from harness.worker import KNOWN, KNOWN_LATER, keep_manned
from harness.world import SimWorld

DRAIN: Final = 240.0  # virtual seconds in which all work must end once nothing goes wrong any more


@dataclass(frozen=True)
class Story:
    """What a simulation is about: who works there, what is set up before, and who wants what."""

    plan_for: Callable[[int], Plan]
    known: Program
    known_later: Program
    set_up: Callable[[Site], None]
    callers: Callable[[Site], list[Caller]]


@dataclass
class Report:
    """What came of a seed. `violations` is empty when every invariant held."""

    seed: int
    violations: list[Violation]
    sometimes: Counter[str]
    virtual: float
    calls: int
    history: History = field(repr=False)

    @property
    def digest(self) -> str:
        return self.history.digest()

    def story(self) -> str:
        """The violations, and all that concerns the job of the first."""
        lines = [str(violation) for violation in self.violations[:10]]
        if self.violations:
            job = self.violations[0].job
            lines += ["", f"the story of {job or 'all'}:", *self.history.story(job)[-400:]]
        return "\n".join(lines)


def simulate(seed: int, store_factory: StoreFactory, parts: Parts | None = None, story: Story | None = None) -> Report:
    """Runs a seed to its end. Everything that happens follows from the seed and its story alone."""
    story = story or JOBS
    plan = story.plan_for(seed)
    loop = SimLoop(Random(f"{seed}:loop"), shuffle=plan.shuffle)
    loop.set_task_factory(own_tasks)
    troubles: list[str] = []
    loop.set_exception_handler(lambda _, context: troubles.append(_describe(context)))
    world = SimWorld(loop, Random(f"{seed}:chance"))
    site = Site(
        plan=plan,
        loop=loop,
        world=world,
        store=run_now(store_factory(world).open()),
        factory=store_factory,
        parts=parts or Parts(),
        history=History(world),
        network=Network(plan, Random(f"{seed}:network")),
        fate=Random(f"{seed}:fate"),
    )
    with _silence():
        try:
            violations = _judged(site, story)
        finally:
            _end(loop)
            for process in site.processes.values():
                process.end()
            run_now(site.store.close())
    site.sometimes.update(_seen(site.history))
    return Report(
        seed=seed,
        violations=violations + [Violation("crash", "", trouble) for trouble in troubles],
        sometimes=site.sometimes,
        virtual=loop.time() - START,
        calls=len(site.history.calls),
        history=site.history,
    )


def _judged(site: Site, story: Story) -> list[Violation]:
    try:
        unfinished = site.loop.run_until_complete(_live(site, story))
    except Exception:  # noqa: BLE001 - whatever it is, the seed that brings it about must be told
        return [Violation("crash", "", traceback.format_exc())]
    return judge(site.history, site.store, unfinished, site.plan)


async def _live(site: Site, story: Story) -> list[Job]:
    """Chaos, then quiet with one last crash, then the drain; answers what is unfinished without excuse."""
    plan, loop = site.plan, site.loop
    story.set_up(site)
    tasks = [loop.create_task(keep_manned(site, story.known)) for _ in range(plan.workers)]
    callers = story.callers(site)
    tasks += [loop.create_task(_keep_calling(site, caller)) for caller in callers]
    operator = site.process("operator")
    operator.spawn(Operator(site, Random(f"{plan.seed}:operator")).run(operator))
    reader = site.process("reader")
    reader.spawn(follow(site, reader))
    tasks.append(loop.create_task(_audit(site)))
    await faults.strike(site)
    faults.calm(site)
    operator.kill()  # or a change it has under way would undo the order that is made now
    person = site.process("person")
    await _put_in_order(site, client_of(site, person))
    tasks.append(loop.create_task(keep_manned(site, story.known_later)))
    await asyncio.sleep(1.2 * LEASE_SECONDS)
    faults.crash(site)  # once it is quiet, the bound on recovery holds to the letter
    await asyncio.sleep(1.0)
    faults.stop(site)
    unfinished = await _drain(site, callers)
    await asyncio.sleep(8.0)  # for the reader to catch up
    for task in tasks:
        task.cancel()
    return unfinished


def _tune(site: Site) -> None:
    """One queue ages from the first job on, so that the bound on waiting can be judged."""
    settings = QueueSettings(discipline="aging", patience=timedelta(seconds=2))
    put_first(site, Put(kind="queue", name="aged", value=msgspec.json.encode(settings), expect=0))


def put_first(site: Site, *records: Put) -> None:
    """Write records before anything begins."""
    puts = list(records)
    call = site.history.invoke("world", "put", puts)
    site.history.commit(call, run_now(site.store.put(puts)), site.new_events(), site.world.wall())
    site.history.end(call, "ok", None)


def _callers(site: Site) -> list[Caller]:
    die, plan = Random(f"{site.plan.seed}:wishes"), site.plan
    # Some of the work is wanted only once it is quiet: the last crash must find something to interrupt.
    times = sorted(START + die.uniform(0, plan.chaos_for) for _ in range(plan.jobs))
    times += sorted(START + plan.chaos_for + die.uniform(4, 12) for _ in range(4))
    wishes = [(at, Wish(site, die, number)) for number, at in enumerate(times[:-4])]
    together = die.uniform(5, plan.chaos_for + 12)
    for number in plan.quick:
        wish = Wish(site, die, number)
        wish.options |= {"run_at": moment(site.world.wall() + round(together * 1e6)), "queue": "mail"}
        for option in ("delay", "expires_in", "unique", "on_conflict"):
            wish.options.pop(option, None)
        wishes.append((START + together - die.uniform(1, 5), wish))
    for at in times[-4:]:
        wish = Wish(site, die, -1)
        wish.task, wish.options["tags"] = "work", ("long",)
        wishes.append((at, wish))
    wishes.sort(key=lambda wish: wish[0])
    return [Caller(site, wishes[i::2], Random(f"{plan.seed}:caller{i}")) for i in range(2)]


JOBS: Final = Story(plan_for=plan_for, known=KNOWN, known_later=KNOWN_LATER, set_up=_tune, callers=_callers)


async def _keep_calling(site: Site, caller: Caller) -> None:
    while not caller.done:
        process = site.process("caller")
        task = process.spawn(caller.run(process))
        gone = site.loop.create_task(process.gone.wait())
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if process.alive:
            task.result()
            return
        await asyncio.sleep(0.5)
        caller.restart()


async def _put_in_order(site: Site, client: Client) -> None:
    """What a person would do in the morning: no queue stays shut."""
    for queue in QUEUES:
        while True:
            try:
                await client.set_queue(queue, paused=False, max_running=2 if queue == "bulk" else None, capacity=None)
                break
            except StoreError:
                await asyncio.sleep(0.5)


async def _audit(site: Site) -> None:
    """Now and then the whole store is counted, straight and in one instant."""
    process = site.process("auditor")
    while True:
        await asyncio.sleep(9.0)
        call = site.history.invoke(process.name, "audit", None)
        tallies, jobs = run_now(site.store.count()), everything(site)
        site.history.commit(call, (tallies, jobs), site.new_events(), site.world.wall())
        site.history.end(call, "ok", None)


def everything(site: Site) -> list[Job]:
    jobs: list[Job] = []
    cursor = None
    while True:
        page = run_now(site.store.find(Query(limit=7, cursor=cursor)))
        jobs += page.jobs
        if (cursor := page.cursor) is None:
            return jobs


async def _drain(site: Site, callers: list[Caller]) -> list[Job]:
    ends_at = site.loop.time() + DRAIN
    while True:
        await asyncio.sleep(2.0)
        left = [
            job
            for state in sorted(set(State) - FINAL - {State.SUSPENDED})
            for job in run_now(site.store.find(Query(filter=Filter(states=frozenset({state})), limit=1000))).jobs
            if job.spec.task != "never"
        ]
        if site.loop.time() > ends_at or (not left and all(caller.done for caller in callers)):
            return left


def _seen(history: History) -> Counter[str]:
    seen: Counter[str] = Counter()
    for commit in history.commits:
        for event in commit.events:
            if event.kind in {"lease_expired", "expired", "retried", "removed", "resumed", "reprioritised", "due"}:
                seen[f"event {event.kind}"] += 1
            elif event.kind == "batch_started":
                seen["batch call"] += 1
            elif event.kind == "blocked":
                seen["follower" if is_flight_cause(event.note) else "waits for a slot"] += 1
            elif is_from_another(event):
                seen["result of another"] += 1
            if event.reason is Reason.LOST:
                seen["ended through deaths"] += 1
        if commit.call.op == "purge" and isinstance(commit.answer, Purged) and commit.answer.jobs:
            seen["job purged"] += 1
    return seen


def _end(loop: SimLoop) -> None:
    async def discard_all() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            discard(task)

    loop.run_until_complete(discard_all())
    for task in asyncio.all_tasks(loop):  # that a finally block has started
        discard(task)
    loop.close()


def _describe(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"


@contextmanager
def _silence() -> Iterator[None]:
    """Services log what goes wrong, and here everything does."""
    logger = logging.getLogger("daybreak")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)

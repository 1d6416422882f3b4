"""A second story, with seeds of its own: jobs of batch tasks that share a licence, and equal jobs of a cached task."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from daybreak.client.client import Client
from daybreak.core.model import Caching, JobSpec, Need, Options, Put, QueueSettings, ResourceSettings, Retry
from daybreak.tasks.batches import BatchDefinition
from daybreak.tasks.registry import Program
from harness.actors import Caller
from harness.loop import START
from harness.plan import CHAOS_MARGIN, Plan, faults_for
from harness.rules_batches import SIZE
from harness.simulate import Story, put_first
from harness.worker import KNOWN_LATER

if TYPE_CHECKING:
    from harness.site import Site

LICENCE: Final = "licence"
LATE: Final = 4  # wishes that come once it is quiet: the last crash must find something to interrupt
_TROUBLES: Final = (
    "crash", "freeze", "outage", "stall", "lost_request", "lost_reply", "slow", "operator", "reaper_crash",
    "freeze_before_settle", "client_crash", "no_start", "stop", "freeze_child", "fatal", "settings",
)  # fmt: skip


def measure(items: list[int]) -> list[Any]:
    """A sync batch task."""
    return items


async def probe(items: list[int]) -> list[Any]:
    """An async batch task."""
    return items


def _program() -> Program:
    program = Program()
    for definition in KNOWN_LATER:
        program.add(definition)
    program.add(BatchDefinition(measure, size=SIZE))
    program.add(BatchDefinition(probe, size=SIZE, linger="0.4s"))
    return program


def plan_for(seed: int) -> Plan:
    die = Random(f"{seed}:batches and cache")
    troubles = frozenset(trouble for trouble in _TROUBLES if die.random() < 0.65)
    chaos_for = die.uniform(CHAOS_MARGIN + 8.0, CHAOS_MARGIN + 16.0)
    jobs = die.randint(55, 75)
    return Plan(
        seed=seed,
        jobs=jobs,
        workers=2,
        slots=die.randint(1, 3),
        chaos_for=chaos_for,
        troubles=troubles,
        deaf=die.random() < 0.3,
        shuffle=die.random() < 0.5,
        deadly=frozenset(),
        fatal=frozenset(die.sample(range(20), 2) if "fatal" in troubles else ()),
        quick=range(0),
        faults=faults_for(die, troubles, chaos_for),
        limits={LICENCE: die.randint(1, 3)},
    )


class _Wish:
    """An element of a batch or a job of the cached task, said again as often as it takes."""

    def __init__(self, site: Site, die: Random, number: int) -> None:
        self.id: str | None = None
        self.options: dict[str, Any] = {
            "priority": die.choice((4, 5, 5, 5, 5, 6)),
            "retry": Retry(attempts=die.randint(1, 3), delay=timedelta(seconds=die.choice((0.2, 1)))),
        }
        self._more: dict[str, Any] = {}
        self._defaults = Options(deaths=3)
        if number in site.plan.fatal:
            self.options["tags"] = ("fatal",)
        if die.random() < 0.1:
            self.options["delay"] = timedelta(seconds=die.uniform(0.1, 8))
        if die.random() < 0.06:
            self.options["expires_in"] = timedelta(seconds=die.uniform(1, 15))
        if die.random() < 0.1:
            self.options["key"] = f"key-{number}"
        if die.random() < 0.55:
            self._be_element(die)
        else:
            self._be_equal(die)
        self._args = {"n": number}

    def _be_element(self, die: Random) -> None:
        self._task = die.choice(("measure", "measure", "probe"))
        self.options["queue"] = "bulk" if die.random() < 0.9 else "mail"
        self._more["batch"] = die.choice(("a", "b"))
        self._defaults = msgspec.structs.replace(self._defaults, resources=(Need(LICENCE),))
        # The longest limit of those in a call counts, so a call has one only if all of them have.
        self.options["timeout"] = timedelta(seconds=die.choice((4, 6)))
        if "tags" not in self.options:
            self.options["tags"] = die.choices(((), ("poison",), ("hangs",)), (80, 12, 8))[0]

    def _be_equal(self, die: Random) -> None:
        self._task = die.choice(("work", "wait"))
        self.options["queue"] = "mail" if die.random() < 0.85 else "aged"
        which = die.randint(1, 5)
        self._more["flight"] = f"flight-{self._task}-{which}"
        ttl = timedelta(seconds=6) if which % 2 else None
        self._defaults = msgspec.structs.replace(self._defaults, cache=Caching(ttl=ttl))
        if "tags" not in self.options and die.random() < 0.3:
            self.options["tags"] = (die.choice(("stumbles", "stumbles", "poison", "long")),)

    def spec(self, client: Client) -> JobSpec:
        """The same id while the caller lives; a caller that starts anew has only its key to go by."""
        spec = client.spec(self._task, self._args, id=self.id, defaults=self._defaults, **self.options)
        self.id = spec.id
        return msgspec.structs.replace(spec, **self._more)


def _set_up(site: Site) -> None:
    aging = QueueSettings(discipline="aging", patience=timedelta(seconds=2))
    slots = ResourceSettings(slots=site.plan.limits[LICENCE])
    put_first(
        site,
        Put(kind="queue", name="aged", value=msgspec.json.encode(aging), expect=0),
        Put(kind="resource", name=LICENCE, value=msgspec.json.encode(slots), expect=0),
    )


def _callers(site: Site) -> list[Caller]:
    """Most is wanted in a few bursts, so that calls are full and flights have followers."""
    plan, die = site.plan, Random(f"{site.plan.seed}:elements")
    bursts = [die.uniform(0, plan.chaos_for) for _ in range(4)]
    times = sorted(START + die.choice(bursts) + die.uniform(0, 1.5) for _ in range(plan.jobs - LATE))
    times += sorted(START + plan.chaos_for + die.uniform(4, 12) for _ in range(LATE))
    wishes = [(at, _Wish(site, die, number)) for number, at in enumerate(times)]
    return [Caller(site, wishes[i::3], Random(f"{plan.seed}:caller{i}")) for i in range(3)]


BATCHES_AND_CACHE: Final = Story(
    plan_for=plan_for, known=_program(), known_later=_program(), set_up=_set_up, callers=_callers
)

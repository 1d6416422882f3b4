"""Those who use the system: callers who submit and try again, an operator who changes things, a reader of the feed."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from daybreak.client.client import Client
from daybreak.core.errors import DaybreakError, KeyConflict, KeySpent, QueueFull, StoreUnavailable, UniqueConflict
from daybreak.core.model import JobSpec, Options, Retry, State
from daybreak.core.units import moment
from harness.plan import QUEUES
from harness.process import Process

if TYPE_CHECKING:
    from harness.site import Site

PATIENCE: Final = timedelta(seconds=4)


def client_of(site: Site, process: Process) -> Client:
    return site.parts.client(site.wire(process), by=process.name, world=site.world_of(process), patience=PATIENCE)


class Wish:
    """A job that somebody wants: the words of its submission, said again as often as it takes."""

    def __init__(self, site: Site, die: Random, number: int) -> None:
        self.task = die.choice(("work", "wait")) if die.random() < 0.85 else "late" if die.random() < 0.8 else "never"
        if number in site.plan.quick:
            self.task = "quick"
        self.args = {"n": number if die.random() < 0.9 else 0}
        self.id: str | None = None
        self.options: dict[str, Any] = {
            "queue": die.choice(QUEUES),
            "priority": die.choice((0, 2, 5, 5, 5, 7, 10)),
            "retry": Retry(attempts=die.randint(1, 4), delay=timedelta(seconds=die.choice((0.2, 1, 3)))),
        }
        if die.random() < 0.15:
            self.options["delay"] = timedelta(seconds=die.uniform(0.1, 12))
        elif die.random() < 0.12:
            self.options["run_at"] = moment(site.world.wall() + round(die.uniform(-2, 15) * 1e6))
        if die.random() < 0.15:
            self.options["expires_in"] = timedelta(seconds=die.uniform(0.3, 15))
        if die.random() < 0.2:
            self.options["key"] = f"key-{die.randint(1, 6)}"
        elif die.random() < 0.2:
            self.options["unique"] = f"only-{die.randint(1, 3)}"
            self.options["on_conflict"] = die.choice(("return", "replace", "raise", "refuse"))
        self.defaults = Options(deaths=die.choice((1, 3, 3, 5)))
        if number in site.plan.deadly:
            self.options["tags"] = ("deadly", "quick") if number in site.plan.quick else ("deadly",)
        elif number in site.plan.quick:
            self.options["tags"] = ("quick",)
        elif number in site.plan.fatal:
            self.options["tags"] = ("fatal",)
        elif die.random() < 0.12:
            self.options["tags"] = ("hangs",)
            self.options[die.choice(("timeout", "hang"))] = timedelta(seconds=die.choice((1, 4)))
        elif die.random() < 0.2:
            self.options["tags"] = ("long",)
        if die.random() < 0.15:
            self.options["keep"] = timedelta(seconds=die.uniform(1, 20))

    def spec(self, client: Client) -> JobSpec:
        """The same id while the caller lives; a caller that starts anew has only its key to go by."""
        spec = client.spec(self.task, self.args, id=self.id, defaults=self.defaults, **self.options)
        self.id = spec.id
        return spec


class Caller:
    """Submits its wishes at random times, and each again until it is heard or a person would give up."""

    def __init__(self, site: Site, wishes: list[tuple[float, Wish]], die: Random) -> None:
        self._site = site
        self._wishes = wishes
        self._die = die
        self.done = False

    async def run(self, process: Process) -> None:
        client = client_of(self._site, process)
        world = self._site.world_of(process)
        while self._wishes:
            at, wish = self._wishes[0]
            await world.sleep(timedelta(seconds=max(0.0, at + self._site.shift - self._site.loop.time())))
            tries = 0
            while not await self._submit(client, wish) and tries < 8:
                tries += 1
                await world.sleep(timedelta(seconds=self._die.uniform(0.05, 2)))
            if self._die.random() < 0.1:  # some ask again though they were answered
                await self._submit(client, wish)
            self._wishes.pop(0)
        self.done = True

    def restart(self) -> None:
        """Its memory is gone: only wishes with a key can be said again as the same."""
        if self._wishes and self._wishes[0][1].options.get("key") is None:
            self._wishes.pop(0)
        elif self._wishes:
            self._wishes[0][1].id = None

    async def _submit(self, client: Client, wish: Wish) -> bool:
        history, spec = self._site.history, wish.spec(client)
        call = history.invoke(client.by, "submit", spec)
        try:
            job = await client.submit(spec)
        except (QueueFull, KeyConflict, KeySpent, UniqueConflict) as trouble:
            self._site.saw(type(trouble).__name__)
            history.end(call, "fail", type(trouble).__name__)
            return not isinstance(trouble, QueueFull)
        except StoreUnavailable:
            self._site.saw("unknown submit")
            history.end(call, "unknown", None)
            return False
        history.end(call, "ok", job)
        if job != spec.id:
            self._site.saw("submitted before")
        return True


class Operator:
    """Changes jobs and queues at random, by id and by filter."""

    def __init__(self, site: Site, die: Random) -> None:
        self._site = site
        self._die = die

    async def run(self, process: Process) -> None:
        client = client_of(self._site, process)
        world = self._site.world_of(process)
        while True:
            await world.sleep(timedelta(seconds=self._die.expovariate(0.6)))
            if self._site.calm:
                return
            try:
                if self._site.plan.has("settings") and self._die.random() < 0.3:
                    await self._tune(client)
                elif self._site.plan.has("operator"):
                    await self._change(client)
            except DaybreakError:
                self._site.saw("operator met an error")

    async def _change(self, client: Client) -> None:
        die = self._die
        action = die.choice(("cancel", "suspend", "resume", "resume", "retry", "remove", "rerank"))
        to = die.randint(0, 10) if action == "rerank" and die.random() < 0.8 else None
        if die.random() < 0.25:
            where: dict[str, Any] = {"queue": die.choice(QUEUES)}
            if action in {"cancel", "remove"}:
                where["priority"] = die.choice((0, 2, 7, 10))
            await client.amend_all(action, to=to, **where)  # type: ignore[arg-type]
            self._site.saw(f"bulk {action}")
            return
        wanted = {"resume": State.SUSPENDED, "retry": State.FAILED, "remove": State.COMPLETED}.get(action)
        running = action in {"cancel", "suspend"} and die.random() < 0.5
        page = await client.find(limit=50, state=State.RUNNING if running else wanted)
        if not page.jobs:
            return
        job = die.choice(page.jobs).id
        if action == "rerank":
            await client.reprioritise(job, die.randint(0, 10))
        else:
            answer = await getattr(client, action)(job)
            self._site.saw(f"{action} {answer.verdict}")

    async def _tune(self, client: Client) -> None:
        die, queue = self._die, self._die.choice(QUEUES)
        change: dict[str, Any]
        match die.choice(("pause", "max_running", "capacity", "discipline", "discipline", "weight")):
            case "pause":
                change = {"paused": die.random() < 0.4}
            case "max_running":
                change = {"max_running": die.choice((None, 0, 1, 2, 3))}
            case "capacity":
                change = {"capacity": die.choice((None, 3, 8, 20))}
            case "discipline":
                change = {
                    "discipline": die.choice(("fifo", "aging")),
                    "patience": timedelta(seconds=die.choice((2, 5, 30))),
                }
            case _:
                change = {"weight": die.randint(1, 4)}
        await client.set_queue(queue, **change)
        self._site.saw(f"queue {next(iter(change))}")


async def follow(site: Site, process: Process) -> None:
    """Reads the feed from its beginning to its end over the same bad network, from where it got to."""
    client = client_of(site, process)
    cursor: str | None = None
    while True:
        try:
            async for event, after in client.events(cursor, poll=timedelta(seconds=3)):
                site.history.followed.append(event)
                cursor = after
        except StoreUnavailable:
            await site.world_of(process).sleep(timedelta(seconds=1))

"""What a person can do with jobs in `top`: each action, its key, and its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from daybreak.api.job_changes import CHANGES, amend_ids, preview
from daybreak.api.job_release import release_job
from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound, WrongState
from daybreak.core.model import State
from daybreak.core.text import any_of, counted, number
from daybreak.store.protocol import Amendment


class JobAction(Struct, frozen=True, kw_only=True):
    """An action on jobs. `done` and `requested` say what happened to a job, and to a running job that was only asked.
    An action that `asks` wants a confirmation also for one job, because it cannot be undone."""

    key: str
    name: str
    label: str
    done: str
    requested: str = ""
    asks: bool = False


ACTIONS: Final = (
    JobAction(key="c", name="cancel", label="cancel", done="cancelled", requested="asked to stop", asks=True),
    JobAction(key="r", name="retry", label="retry", done="queued again"),
    JobAction(key="s", name="suspend", label="suspend", done="suspended", requested="asked to suspend"),
    JobAction(key="u", name="resume", label="resume", done="resumed"),
    JobAction(key="p", name="priority", label="change the priority", done="moved"),
    JobAction(key="n", name="start-now", label="start now", done="queued now"),
    JobAction(key="b", name="release", label="release", done="returned to the queue", asks=True),
    JobAction(key="d", name="remove", label="remove", done="removed", asks=True),
)
BY_NAME: Final = {action.name: action for action in ACTIONS}


class Plan(Struct, frozen=True):
    """What an action would do: to the jobs `ids`, and by verdict and state to all that were selected."""

    action: JobAction
    ids: list[str]
    expected: list[Amendment]

    @property
    def refused(self) -> Counter[str]:
        """The states of the jobs that stay as they are."""
        answers = [answer for answer in self.expected if answer.verdict not in ("done", "requested")]
        return Counter(answer.state.value if answer.state else "removed" for answer in answers)

    def question(self) -> str:
        """`Cancel 12 jobs?` with the exact number. If only one job was selected, its id."""
        if len(self.expected) == 1:
            return f"{self.action.label.capitalize()} job {self.ids[0][-8:]}?"
        return f"{self.action.label.capitalize()} {counted(len(self.ids), 'job')}?"

    def lines(self, to: str = "") -> list[str]:
        """What the action does to these jobs, and which of the selected ones stay as they are."""
        requested = sum(answer.verdict == "requested" for answer in self.expected)
        done = len(self.ids) - requested
        lines = []
        if done:
            lines.append(f"{counted(done, 'job')} will be {self.action.done}{to}.")
        if requested:
            lines.append(f"{counted(requested, 'running job')} will be {self.action.requested}.")
        if self.refused:
            lines.append(self.refusal())
        return lines

    def refusal(self) -> str:
        """Why jobs stay as they are."""
        states = any_of([f"{number(n)} {state}" for state, n in self.refused.items()], "and")
        stays = "stays" if self.refused.total() == 1 else "stay"
        return f"{counted(self.refused.total(), 'job')} {stays} unchanged: {states}."


async def plan(client: Client, action: JobAction, ids: Sequence[str]) -> Plan:
    """Find out what an action would do to these jobs as they are now. Changes nothing."""
    if action.name == "release":
        expected = [
            Amendment(job_id, "missing") if job is None
            else Amendment(job_id, _release_verdict(job.state, is_lock=job.spec.holder is not None), job.state)
            for job_id, job in zip(ids, await client.store.get(ids), strict=True)
        ]  # fmt: skip
    else:
        expected = await preview(client, CHANGES[action.name], ids)
    return Plan(action, [answer.job for answer in expected if answer.verdict in ("done", "requested")], expected)


def _release_verdict(state: State, *, is_lock: bool) -> Literal["done", "refused"]:
    return "done" if state is State.RUNNING and not is_lock else "refused"


async def carry_out(client: Client, chosen: Plan, priority: int | None = None) -> list[Amendment]:
    """Do it to the jobs of the plan. The answers say what really happened: jobs may have changed meanwhile."""
    if chosen.action.name == "release":
        return [await _release(client, job_id) for job_id in chosen.ids]
    return await amend_ids(client, CHANGES[chosen.action.name], chosen.ids, priority=priority)


async def _release(client: Client, job_id: str) -> Amendment:
    try:
        return await release_job(client, job_id)
    except JobNotFound:
        return Amendment(job_id, "missing")
    except WrongState:
        return Amendment(job_id, "refused", State.RUNNING)


def outcome(action: JobAction, answers: Iterable[Amendment], to: str = "") -> str:
    """What happened, in one sentence."""
    verdicts = Counter(answer.verdict for answer in answers)
    parts = []
    if verdicts["done"]:
        parts.append(f"{counted(verdicts['done'], 'job')} {action.done}{to}")
    if verdicts["requested"]:
        parts.append(f"{counted(verdicts['requested'], 'running job')} {action.requested}")
    if others := verdicts["refused"] + verdicts["missing"]:
        stayed = "stayed as it was" if others == 1 else "stayed as they were"
        parts.append(f"{counted(others, 'job')} had changed meanwhile and {stayed}")
    return ", ".join(parts).capitalize() + "."

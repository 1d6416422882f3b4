"""The state machine of sagas, over every way in which jobs can end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.model import State
from daybreak.policy import sagas
from daybreak.policy.sagas import FIRST_UNDO_DELAY, LONGEST_UNDO_DELAY, Decision, JobEnd, begin, undo_delay

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ENDS = st.sampled_from([State.COMPLETED, State.COMPLETED, State.FAILED, State.CANCELLED])


class World:
    """Runs the jobs that the machine asks for, and remembers what they did."""

    def __init__(self, steps, undo_tries):
        self.steps, self.undo_tries, self.ids = steps, undo_tries, count()
        self.done: list[int] = []
        self.undone: list[int] = []
        self.jobs: dict[str, tuple[int, bool]] = {}
        self.keys: set[tuple[int, bool, int]] = set()
        self.ended: list[JobEnd] = []
        self.progress = None
        self.take(begin(steps, "j", NOW), "j")

    def take(self, decision: Decision | None, new_id: str) -> None:
        if decision is None:
            return
        self.progress = decision.progress
        if decision.job is not None:
            key = (decision.job.step, decision.job.is_undo, decision.job.number)
            assert key not in self.keys, "the key of a job was used before"
            self.keys.add(key)
            self.jobs[new_id] = (decision.job.step, decision.job.is_undo)
            assert self.progress.current_job == new_id

    def end(self, job: str, state: State, refused: str = "") -> None:
        step, is_undo = self.jobs[job]
        if state is State.COMPLETED:
            (self.undone if is_undo else self.done).append(step)
        self.tell(JobEnd(job=job, state=state, at=NOW, error="broken", refused=refused))

    def tell(self, end: JobEnd) -> None:
        self.ended.append(end)
        new_id = f"j{next(self.ids)}"
        self.take(sagas.after_end(self.progress, end, new_id, undo_tries=self.undo_tries), new_id)


@given(data=st.data())
def test_completed_steps_are_undone_in_reverse_or_the_saga_completes(data):
    steps = data.draw(st.lists(st.tuples(st.just("s"), st.booleans()), min_size=1, max_size=5))
    world = World([(f"s{n}", can_undo) for n, (_, can_undo) in enumerate(steps)], data.draw(st.integers(1, 3)))
    for _ in range(200):
        if world.progress.is_finished:
            break
        what = data.draw(st.sampled_from(["end", "end", "end", "again", "cancel", "resume"]))
        if what == "end" and world.progress.phase != "stuck":
            refused = data.draw(st.sampled_from(["", "", "", "too large"]))
            world.end(world.progress.current_job, data.draw(ENDS), refused)
        elif what == "again" and world.ended:
            before = world.progress
            world.tell(data.draw(st.sampled_from(world.ended)))  # an event that is seen twice changes nothing
            assert world.progress == before
        elif what == "cancel":
            world.progress = sagas.cancel(world.progress, "ann") or world.progress
        elif what == "resume":
            new_id = f"r{next(world.ids)}"
            world.take(sagas.resume(world.progress, new_id, NOW), new_id)
        check(world)
    else:
        assert world.progress.phase in ("stuck", "compensating", "forward")
    finish(world)
    check(world)


def finish(world: World) -> None:
    """All jobs complete from now on: every saga must end."""
    for _ in range(30):
        if world.progress.is_finished:
            break
        if world.progress.phase == "stuck":
            world.take(sagas.resume(world.progress, "again", NOW), "again")
        world.end(world.progress.current_job, State.COMPLETED)
    undoable = [n for n in world.done if world.steps[n][1]]
    if world.progress.phase == "completed":
        assert world.done == list(range(len(world.steps)))
        assert world.undone == []
    else:
        assert world.progress.phase == "compensated"
        assert world.undone == list(reversed(undoable))


def check(world: World) -> None:
    phase = world.progress.phase
    assert world.done == list(range(len(world.done))), "steps run in order, each once"
    undoable = [n for n in reversed(world.done) if world.steps[n][1]]
    assert world.undone == undoable[: len(world.undone)], "undone in reverse, only what completed, once each"
    busy = [step for step in world.progress.steps if step.state in ("running", "undoing")]
    assert len(busy) == (0 if world.progress.is_finished else 1)
    if phase == "forward":
        assert world.undone == []


def world_of(n: int, undo_tries: int = 2) -> World:
    return World([(f"s{i}", True) for i in range(n)], undo_tries)


def test_a_stuck_saga_says_why_and_goes_on_after_resume():
    world = world_of(2)
    world.end(world.progress.current_job, State.COMPLETED)
    world.end(world.progress.current_job, State.FAILED)
    world.end(world.progress.current_job, State.FAILED)
    assert world.progress.phase == "compensating"
    world.end(world.progress.current_job, State.CANCELLED)
    assert (world.progress.phase, world.progress.steps[0].undo_error) == ("stuck", "broken")
    assert sagas.resume(world.progress, "n", NOW).progress.phase == "compensating"
    finish(world)


def test_a_stuck_undo_that_somebody_retries_counts():
    world = world_of(2, undo_tries=1)
    world.end(world.progress.current_job, State.COMPLETED)
    world.end(world.progress.current_job, State.FAILED)
    undo = world.progress.current_job
    world.end(undo, State.FAILED)
    assert world.progress.phase == "stuck"
    world.end(undo, State.COMPLETED)
    assert (world.progress.phase, world.undone) == ("compensated", [0])


def test_a_failed_step_that_is_retried_and_completes_is_undone():
    world = world_of(2)
    world.end(world.progress.current_job, State.COMPLETED)
    failed = world.progress.current_job
    world.end(failed, State.FAILED)
    world.end(world.progress.current_job, State.COMPLETED)
    assert world.progress.phase == "compensated"
    world.end(failed, State.COMPLETED)
    assert (world.progress.phase, world.progress.current) == ("compensating", 1)
    world.end(world.progress.current_job, State.COMPLETED)
    assert (world.progress.phase, world.undone) == ("compensated", [0, 1])


def test_a_cancelled_saga_undoes_a_step_that_completed_all_the_same():
    world = world_of(1)
    world.progress = sagas.cancel(world.progress, "ann")
    world.end(world.progress.current_job, State.COMPLETED)
    assert (world.progress.phase, world.progress.error) == ("compensating", "cancelled by ann")
    assert sagas.cancel(world.progress, "bob") is None


def test_undos_wait_longer_each_time_up_to_a_limit():
    assert [undo_delay(n) for n in (1, 2, 3)] == [FIRST_UNDO_DELAY * n for n in (1, 2, 4)]
    assert undo_delay(1000) == LONGEST_UNDO_DELAY
    assert undo_delay(1) < timedelta(minutes=1)

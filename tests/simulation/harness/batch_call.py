"""A call of a batch task in a fake child: it is bisected as in a real one, and the seed decides how each part ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from daybreak.core.model import Failure
from daybreak.policy.bisection import Bisection
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.wire import Ended, Progress, Report, Work
from harness.history import Held, JobRun

if TYPE_CHECKING:
    from harness.process import Process
    from harness.site import Site

AWAY: Final = Failure(message="the service is away", kinds=("ConnectionError",))
TRY_AGAIN_IN: Final = timedelta(seconds=1)
_STATUS: Final[dict[str, Any]] = {"cancel": "cancelled", "suspend": "suspended", "timeout": "timed out"}


def poison(work: Work) -> Failure:
    """The error of an element that fails alone: it names its own job."""
    return Failure(message=f"poison {work.job}", kinds=("ValueError",))


class RunningCall:
    """`send` sends a message to the supervisor, `die` ends the child, and `over` is told when the call has ended.

    `in_function` are the jobs that are in the function now, by their place in the call."""

    def __init__(
        self,
        site: Site,
        process: Process,
        slot_table: SlotTable,
        runs: Sequence[JobRun],
        *,
        send: Callable[[Any], None],
        die: Callable[[str, str], None],
        over: Callable[[RunningCall], None],
    ) -> None:
        self.runs = runs
        self.in_function: list[int] = []
        self.hangs = False
        self._site = site
        self._process = process
        self._slot_table = slot_table
        self._slot = slot_table.begin(runs[0].work.seq, at=site.world.steady(), jobs=len(runs))
        self._send = send
        self._die = die
        self._over = over
        self._bisection = Bisection(len(runs))
        self._stopped: dict[Held, str] = {}
        self._is_deaf = site.fate.random() < 0.2
        self._is_away = not site.calm and site.fate.random() < 0.15
        self._turn = 0

    def go_on(self) -> None:
        """Call the function with the next part, or end."""
        self.in_function = []
        while (part := self._next_part()) is not None:
            if numbers := self._begin(part):
                self._plan_end(part, numbers)
                return
        self._slot_table.end(self._slot)
        self._over(self)

    def _next_part(self) -> range | None:
        if self._bisection.is_outage:
            self._site.saw("rest of a call handed back")
            self._report([(number, "handed back", None) for number in self._bisection.rest()], delay=TRY_AGAIN_IN)
        return self._bisection.next_part()

    def _begin(self, part: range) -> list[int]:
        numbers = [number for number in part if self.runs[number].held not in self._stopped]
        self._report([(number, self._status(number), None) for number in part if number not in numbers])
        if numbers:
            self.in_function = numbers
            self._turn += 1
            at = self._site.world.steady()
            self._slot_table.begin_part(self._slot, range(numbers[0], numbers[-1] + 1), at=at)
        return numbers

    def _status(self, number: int) -> str:
        return _STATUS.get(self._stopped.get(self.runs[number].held, ""), "handed back")

    def _has(self, tag: str) -> bool:
        return any(tag in self.runs[number].work.tags for number in self.in_function)

    # -- how a part ends -----------------------------------------------------------------------------------------------

    def _plan_end(self, part: range, numbers: list[int]) -> None:
        fate = self._site.fate
        self.hangs = self._has("hangs") and fate.random() < 0.6
        if self.hangs:
            self._site.saw("call hung")
            return
        seconds = fate.uniform(0.1, 1.6) ** 2
        self._process.call_later(seconds, self._reach_end, part, self._turn)
        if fate.random() < 0.2:
            self._send(Progress(*self.runs[numbers[0]].held, round(fate.random(), 3), ""))

    def _reach_end(self, part: range, turn: int) -> None:
        if turn != self._turn or not self.in_function:
            return
        fate, is_calm, is_whole = self._site.fate, self._site.calm, len(self.runs) == len(self.in_function)
        # Deaths in mid-call, when some outcomes are known and others not, tell the most.
        if self._has("fatal") or (not is_calm and fate.random() < (0.08 if is_whole else 0.5)):
            self._site.saw("child died with a whole call" if is_whole else "child died in mid-call")
            self._die("its process was ended by SIGSEGV", "crashed")
        elif not is_calm and fate.random() < 0.06:
            self._site.saw("child died before it reported a part")
            self._die("its process was ended by SIGSEGV", "unreported")
        elif self._has("poison") or self._is_away:
            self._fail(part)
        else:
            self._succeed()

    def _fail(self, part: range) -> None:
        if self._bisection.failed(part, is_transient=self._is_away):
            self._site.saw("call bisected")
        else:
            [number] = self.in_function
            failure = AWAY if self._is_away else poison(self.runs[number].work)
            self._site.saw("element failed alone")
            self._report([(number, "failed", failure)])
        self.go_on()

    def _succeed(self) -> None:
        """The function returns; of an item that failed, its error."""
        self._bisection.succeeded()
        ends: list[tuple[int, str, Failure | None]] = []
        for number in self.in_function:
            fails = not self._site.calm and self._site.fate.random() < 0.06
            ends.append((number, "failed", AWAY) if fails else (number, "done", None))
        self._report(ends)
        self.go_on()

    def _report(self, ends: list[tuple[int, Any, Failure | None]], delay: timedelta | None = None) -> None:
        told = []
        for number, status, failure in ends:
            run = self.runs[number]
            self._site.history.run_ends(run, status, was_alone=len(self.in_function) == 1)
            result = f"{run.work.job}/{run.work.fence}".encode() if status == "done" else None
            told.append(Ended(*run.held, status, 0.1, result, failure, delay=delay))
        if told:
            self._send(Report(told))

    # -- from outside --------------------------------------------------------------------------------------------------

    def stop(self, seq: int, fence: int, reason: str) -> None:
        """A job is asked to stop. The function is, when all that are in it were asked."""
        if all(run.held != (seq, fence) for run in self.runs):
            return
        self._stopped[seq, fence] = reason
        if self.in_function and not self.hangs and not self._is_deaf:
            if all(self.runs[number].held in self._stopped for number in self.in_function):
                self._site.saw("call stopped")
                self._process.call_later(self._site.fate.uniform(0, 0.3), self._end_stopped, self._turn)
            else:
                self._site.saw("element of a call stopped")

    def _end_stopped(self, turn: int) -> None:
        if turn == self._turn and self.in_function:
            self._report([(number, self._status(number), None) for number in self.in_function])
            self.go_on()

    def died(self, how: str, *, was_alone: bool) -> None:
        """The child has died: what was in the function ended as that says, and what was not, untouched."""
        for number, run in enumerate(self.runs):
            if run.ended is None:
                in_function = number in self.in_function
                self._site.history.run_ends(run, how if in_function else "killed", was_alone=in_function and was_alone)

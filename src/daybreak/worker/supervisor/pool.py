"""The slots for sync tasks or for async tasks: gives leases to children and collects the outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from daybreak.core.model import Cancelled, Ending, HandedBack, Lease, Lost, Suspended
from daybreak.store.protocol import Extended
from daybreak.system.ports import Clock
from daybreak.telemetry.attempt_spans import AttemptSpans
from daybreak.worker.launcher import ChildHandle
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.capacity import Capacity
from daybreak.worker.supervisor.child import Child, HeldLease
from daybreak.worker.supervisor.children import Children
from daybreak.worker.supervisor.file_transfers import FileTransfers
from daybreak.worker.supervisor.hang_detector import HangDetector
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.lease_source import Batches, Tasks
from daybreak.worker.supervisor.outcomes import outcome_after_stop, outcome_of
from daybreak.worker.supervisor.prefetch import MIN_DURATION, PrefetchedLeases, may_start_unmarked
from daybreak.worker.supervisor.quarantine import Probation, Quarantine
from daybreak.worker.supervisor.time_limits import TimeLimits, written_limit
from daybreak.worker.supervisor.worker_source import JobOutput
from daybreak.worker.wire import Ended, MoveFile, Output, Progress, SaveCheckpoint, StopReason

SUSPENDED_AFTER: Final = 0.5  # seconds between two checks after which this process must have been suspended
COLLECT_FOR: Final = 0.004  # seconds to wait for more outcomes while children have enough work


class Pool:
    """`changed`: a job ended, or work may be found. `busy`: a lease was given out.

    `may_find_work`: False once the store had no more work, until something changes. `announced`: new work was announced
    since the last claim. `ended`: outcomes to report; `reporting`: outcomes that are being sent to the store."""

    def __init__(
        self,
        *,
        is_async: bool,
        tasks: Tasks,
        children: int,
        slots: int,
        start: Callable[[int], ChildHandle],
        settings: WorkerSettings,
        probation: Probation,
        clock: Clock,
        batches: Batches | None = None,
    ) -> None:
        self.is_async = is_async
        self.tasks = tasks
        self.batches = batches or {}
        self._clock = clock
        self.children = Children(
            kind="async" if is_async else "sync",
            wanted=children,
            slots=slots,
            start=start,
            settings=settings,
            clock=clock,
        )
        self.changed = asyncio.Event()
        self.busy = asyncio.Event()
        self.may_find_work = True
        self.announced = False
        self.ended: list[tuple[Lease, Ending]] = []
        self.reporting: list[tuple[Lease, Ending]] = []
        self._work_announced = asyncio.Event()
        self._heartbeats: Heartbeats | None = None
        self._spans: AttemptSpans | None = None
        self._cancel_grace = settings.cancel_grace.total_seconds()
        self._limits = TimeLimits(self.children, is_async=is_async, end_all=self._end_all)
        self._hang_detector = HangDetector(clock, is_async=is_async, end=self._limits.end_hanging)
        self._quarantine = Quarantine(probation, self.children, clock, is_async=is_async, report=self._report)
        self._prefetched = PrefetchedLeases()
        self.capacity = Capacity(
            self.children, self._quarantine, self._prefetched, clock, claims_ahead=not self.batches
        )
        self._checked_at = self._clock.now()
        self._limit_for: Callable[[Lease], timedelta | None] = written_limit
        self._transfers: FileTransfers | None = None
        self._output: JobOutput | None = None

    def use_heartbeats(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = self._quarantine.heartbeats = heartbeats

    def use_limits(self, limit_for: Callable[[Lease], timedelta | None]) -> None:
        """Take the time limits of jobs from this function."""
        self._limit_for = limit_for

    def use_files(self, transfers: FileTransfers) -> None:
        """Copy contents for children through this."""
        self._transfers = transfers

    def use_output(self, output: JobOutput) -> None:
        """Keep the output of jobs there."""
        self._output = output

    def use_spans(self, spans: AttemptSpans | None) -> None:
        """Trace attempts, unless it is None."""
        self._spans = spans

    def limit_of(self, lease: Lease) -> float | None:
        if lease.spec.options.timeout is None:
            return None
        limit = self._limit_for(lease)
        return None if limit is None else limit.total_seconds()

    def trace_of(self, lease: Lease) -> str | None:
        """The `traceparent` of the attempt's span; that of the submit's if this worker does not trace."""
        return lease.spec.trace if self._spans is None else self._spans.trace_of(lease)

    def look_for_work(self) -> None:
        """Claim as soon as there is room: the store may have new work."""
        self.may_find_work = self.announced = True
        self.changed.set()
        self._work_announced.set()

    async def wait_for_more_outcomes(self) -> bool:
        """Wait a moment for more outcomes to report in the same exchange, while children have enough work. Not when new
        work is announced, which may be urgent. True if it waited."""
        self._work_announced.clear()
        capacity = self.capacity
        if len(self.ended) >= capacity.batch_size.limit // 2:
            return False
        if capacity.seconds_ahead - 1.5 * capacity.batch_size.seconds <= COLLECT_FOR:
            return False
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(COLLECT_FOR):
                await self._work_announced.wait()
        return True

    # -- held leases ---------------------------------------------------------------------------------------------------

    @property
    def held_count(self) -> int:
        """The number of leases whose jobs run here or wait to start."""
        held = sum(len(child.held) for child in self.children.holding)
        return held + len(self._prefetched) + len(self._quarantine)

    def leases(self) -> list[Lease]:
        """Every lease that needs heartbeats."""
        held = [held.lease for child in self.children.holding for held in child.held.values()]
        unsettled = [lease for lease, _ in (*self.reporting, *self.ended)]
        return held + self._prefetched.leases + self._quarantine.leases + unsettled

    def holds(self, lease: Lease) -> bool:
        """Whether a child holds this job under this fence."""
        found = (child.held.get(lease.seq) for child in self.children.holding)
        return any(held is not None and held.lease.fence == lease.fence for held in found)

    def are_urgent(self, leases: list[Lease]) -> bool:
        """Whether one of these goes before all jobs that children hold; if they hold none, before another of these."""
        if not leases:
            return False
        held = [held.lease.priority for child in self.children.holding for held in child.held.values()]
        claimed = [lease.priority for lease in leases]
        return min(claimed) < (min(held) if held else max(claimed))

    # -- giving leases to children -------------------------------------------------------------------------------------

    def hand_out(self, leases: list[Lease]) -> None:
        """Start the jobs of claimed leases, or keep them until they can start."""
        if not self.held_count:
            self._checked_at = self._clock.now()  # an idle pool is not checked; that is not a suspension
        plain, suspects = [], []
        already_here = self._already_here({lease.seq for lease in leases})
        calls: dict[int, list[Lease]] = {}
        for lease in leases:
            if lease.seq in already_here:
                self._stop_older_run(lease)
            if lease.group is not None:
                calls.setdefault(lease.group, []).append(lease)
            elif lease.lost and self._quarantine.is_suspect(lease) and not self.children.closing:
                suspects.append(lease)
            else:
                plain.append(lease)
        for call in calls.values():
            self._hand_out_call(call, suspects)
        if suspects:
            self._quarantine.add(suspects)
        self._share_out(plain)
        self.busy.set()

    def _hand_out_call(self, call: list[Lease], suspects: list[Lease]) -> None:
        """Give all leases of a call to one child. Jobs that must run alone are taken out of it, to `suspects`; the
        first of the call alone holds its slots, so without it the call does not run."""
        rest = call
        if not self.children.closing:
            rest = [lease for lease in call if not (lease.lost and self._quarantine.is_suspect(lease))]
        if rest and rest[0] is call[0]:
            self._quarantine.postpone([lease for lease in call if lease not in rest])
            free = [child for child in self.children.regular if child.room > 0]
            if free and not self.children.closing and all(lease.begun for lease in rest):
                min(free, key=lambda child: child.load).give_call(rest)
                return
        elif len(rest) < len(call):
            suspects.append(call[0])
            rest = call[1:]
        # A call does not wait here for a free slot: it would keep its jobs from a fuller one.
        self.return_unused(rest)

    def _already_here(self, seqs: set[int]) -> set[int]:
        prefetched = {lease.seq for lease in self._prefetched.leases} & seqs
        return prefetched.union(*(child.held.keys() & seqs for child in self.children))

    def _stop_older_run(self, lease: Lease) -> None:
        """Stop a job that still runs here under an older fence: this worker has claimed it again under a new one."""
        for prefetched in self._prefetched.leases:
            if prefetched.seq == lease.seq:
                self._prefetched.drop(prefetched)
        for child in self.children:
            old = child.held.get(lease.seq)
            if old is not None and old.stop_reason is None:
                self._stop(child, old, "lost")

    def _share_out(self, leases: list[Lease]) -> None:
        """Give each lease to the child that holds the fewest: first to free slots, then as work ahead. The rest waits
        for the next free slot."""
        room = {child: room for child in self.children.regular if (room := child.room) > 0}
        if self.children.closing:
            self.return_unused(leases)
            return
        total_room = sum(room.values())
        waiting = [lease for lease in leases if not may_start_unmarked(lease)]
        if waiting:
            leases = [lease for lease in leases if may_start_unmarked(lease)]
        if waiting or len(leases) > total_room:
            self._prefetched.add([*waiting, *leases[total_room:]], self._clock.now())
            leases = leases[:total_room]
        for child, share in spread(leases, room).items():
            child.give(self._mark_started(share))
        for lease in waiting:
            self._start_after_mark(lease)

    def _give_prefetched(self, child: Child) -> None:
        if len(self._prefetched) and not self.children.closing:
            leases = self._prefetched.take(max(child.room, 0))
            if leases:  # those that wait for their mark may not start yet
                child.give(self._mark_started(leases))

    def _mark_started(self, leases: list[Lease]) -> list[Lease]:
        """Tell the store that jobs start which were claimed ahead of time. They need not wait for the reply: see
        `may_start_unmarked`."""
        if all(lease.begun for lease in leases) or self._heartbeats is None:
            return leases
        for lease in leases:
            if not lease.begun:
                self._heartbeats.mark(lease, _ignore_reply, begun=True)
        return [replace(lease, begun=True) for lease in leases]

    def _start_after_mark(self, lease: Lease) -> None:
        """Tell the store that a prefetched job starts, and start it only after the reply."""

        def on_saved(held: bool) -> None:
            if held and self._prefetched.set_started(lease):
                for child in self.children.regular:
                    self._give_prefetched(child)

        assert self._heartbeats is not None
        self._heartbeats.mark(lease, on_saved, begun=True)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def _report(self, ended: list[tuple[Lease, Ending]]) -> None:
        if ended:
            self.ended += ended
            self.changed.set()

    def return_unused(self, leases: list[Lease]) -> None:
        """Hand back leases that no child has started."""
        self._report([(lease, HandedBack(unused=True)) for lease in leases])

    def return_orphaned(self, leases: list[Lease]) -> None:
        """Hand back leases that this worker did not know of: it is unknown whether their jobs have started."""
        self._report([(lease, HandedBack()) for lease in leases])

    def _end_lease(self, held: HeldLease, outcome: Ending) -> None:
        """Report the outcome of a lease, taking into account whether its job was asked to stop."""
        if held.alone:
            self._quarantine.on_ended(held.lease.seq)
        if held.stop_reason is None:
            self.ended.append((held.lease, outcome))
        elif held.stop_reason != "lost":
            self.ended.append((held.lease, outcome_after_stop(held, outcome, self._clock.now())))

    def on_ended(self, child: Child, ended: list[tuple[HeldLease, Ended]]) -> None:
        for held, end in ended:
            if end.at and self._spans is not None:
                self._spans.ran(held.lease, end.at - end.ran_for, end.at)
            if end.ran_for >= MIN_DURATION and held.call is None:
                self.capacity.forecast.record(held.lease.spec.task, end.ran_for)
            self._end_lease(held, outcome_of(held, end))
        self.children.recycle(child)
        if len(self._quarantine):
            self._quarantine.start_waiting()
        self._give_prefetched(child)
        self.changed.set()

    def on_returned(self, child: Child, returned: list[HeldLease]) -> None:
        for held in returned:
            self._end_lease(held, HandedBack(unused=True))
        self.children.recycle(child)
        self.changed.set()

    def on_progress(self, lease: Lease, progress: Progress) -> None:
        assert self._heartbeats is not None
        self._heartbeats.progress(lease, progress.fraction, progress.message)

    def on_output(self, lease: Lease, output: Output) -> None:
        assert self._output is not None
        self._output.add(lease, output.data, output.skipped)

    def on_checkpoint(self, child: Child, lease: Lease, request: SaveCheckpoint) -> None:
        assert self._heartbeats is not None
        self._heartbeats.save_checkpoint(
            lease, request.checkpoint, lambda held: child.confirm_checkpoint(request, held=held)
        )

    def on_move_file(self, child: Child, held: HeldLease, request: MoveFile) -> None:
        assert self._transfers is not None
        self._transfers.begin(child, held, request)

    # -- children that start and end -----------------------------------------------------------------------------------

    def on_ready(self, child: Child, tasks: Tasks) -> None:
        missing = sorted({name for name, _ in self.tasks - tasks})
        if missing:
            child.ready = child.was_ready = False  # so that the next start is delayed
            child.kill()
            self.children.on_setup_failed(
                f"a child process that imported your code did not find the tasks {', '.join(missing)}: define them "
                "at the top of a module, or name their module in Daybreak(imports=[...])"
            )
            return
        self.children.on_child_ready()
        self._quarantine.start_waiting()
        self.look_for_work()

    def on_setup_failed(self, child: Child, error: str) -> None:  # noqa: ARG002
        self.children.on_setup_failed(error)

    def on_disconnected(self, child: Child) -> None:
        self.children.remove(child, lambda end: self._end_all(child, end))

    def _end_all(self, child: Child, end: str) -> None:
        """End all leases of a child that has died, as described by `end`.

        Jobs that it had not started go back uncharged. Jobs that ran are lost. So are jobs that had ended without a
        report: a job that breaks the connection of its child must not run again forever."""
        running = child.running()
        unreported = child.unreported()
        alone = len(running) + len(unreported) == 1
        blamed = set()
        if child.blamed is not None and child.blamed[0] in child.held:
            blamed = {fellow.lease.seq for fellow in child.fellows(child.held[child.blamed[0]])}
        leases, child.held = list(child.held.values()), {}
        child.calls = {}
        for held in leases:
            seq = held.lease.seq
            if held.ended is not None:
                self._end_lease(held, outcome_of(held, held.ended))
                continue
            if self._spans is not None and seq in running:
                now = self._clock.wall()
                self._spans.ran(held.lease, now - (self._clock.now() - running[seq]), now)
            if child.blamed is not None:
                self._end_lease(held, child.blamed[1] if seq in blamed else HandedBack())
            elif seq in running:
                self._end_lease(held, Lost(end, alone=alone))
            elif seq in unreported:
                self._end_lease(held, Lost(f"{end}; the job had ended, but its outcome was not reported", alone=alone))
            else:
                self._end_lease(held, HandedBack())
        if child.blamed is None:
            self._quarantine.record_crash(
                [held.lease for held in leases if held.lease.seq in running or held.lease.seq in unreported]
            )
        self.changed.set()

    # -- requests and limits -------------------------------------------------------------------------------------------

    def on_heartbeat(self, lease: Lease, reply: Extended) -> None:
        """Stop a job whose lease is lost, or that someone wants to cancel or suspend."""
        reason: StopReason
        if not reply.held:
            reason = "lost"
        elif reply.cancel:
            reason = "cancel"
        elif reply.suspend:
            reason = "suspend"
        else:
            return
        for child in self.children.holding:
            held = child.held.get(lease.seq)
            if held is not None and held.lease.fence == lease.fence:
                if held.stop_reason is None:
                    self._stop(child, held, reason)
                return
        if (self._quarantine.drop(lease) or self._prefetched.drop(lease)) and reason != "lost":
            self._report([(lease, Cancelled() if reason == "cancel" else Suspended())])

    def _stop(self, child: Child, held: HeldLease, reason: StopReason) -> None:
        """Ask a job to stop. A call in which others are goes on; it is asked to stop when all of them were."""
        held.stop_reason = reason
        fellows = child.fellows(held)
        if all(fellow.stop_reason is not None for fellow in fellows):
            for fellow in fellows:
                fellow.kill_at = self._clock.now() + self._cancel_grace
        child.stop_job(held.lease, reason)
        if not child.has_started(held):
            child.recall()

    async def check(self) -> None:
        """Called several times a second: enforce time limits, find jobs that hang, and replace dead children."""
        now = self._clock.now()
        # Do not count time during which the supervisor itself was suspended.
        since_last = now - self._checked_at
        if since_last > SUSPENDED_AFTER:
            for child in self.children:
                child.extend_deadlines(since_last)
        self._checked_at = now
        for child in self.children:
            self._limits.check(child, now)
        self._hang_detector.check(self.children, now)
        self.return_unused(self._prefetched.take_overdue(now))
        self._quarantine.check(now)
        await self.children.check(now)

    # -- stopping ------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Start no more jobs: hand back all that have not started."""
        self.children.closing = True
        self.return_unused([*self._quarantine.clear(), *self._prefetched.clear()])
        for child in self.children:
            child.recall()

    def cancel_running(self) -> None:
        """Cancel running async tasks where they await something; sync tasks cannot be cancelled."""
        if self.is_async:
            for child in self.children:
                for held in child.held.values():
                    child.stop_job(held.lease, "shutdown")

    def kill_children(self) -> None:
        """Kill all children; their jobs go back uncharged."""
        self.children.closing = True
        for child in self.children:
            child.leaving = True
            child.blamed = child.blamed or (0, HandedBack())
            if not child.kill():
                self._end_all(child, "")


def spread(leases: list[Lease], room: dict[Child, int]) -> dict[Child, list[Lease]]:
    """Share leases out to children that have room for all of them, each to the child that holds the fewest."""
    if len(room) == 1 and leases:
        return dict.fromkeys(room, leases)
    shares: dict[Child, list[Lease]] = {}
    by_load = [(len(child.held), n, child) for n, child in enumerate(room)]
    heapq.heapify(by_load)
    for lease in leases:
        held, n, child = by_load[0]
        share = shares.setdefault(child, [])
        share.append(lease)
        if len(share) < room[child]:
            heapq.heapreplace(by_load, (held + 1, n, child))
        else:
            heapq.heappop(by_load)
    return shares


def _ignore_reply(_: bool) -> None:
    """For marks whose reply changes nothing."""

"""The context of a running job: what it can read, and what it can report while it runs."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import math
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from daybreak import values
from daybreak.core.errors import BadInput, DaybreakError, TooLarge
from daybreak.core.units import ZERO, duration
from daybreak.values.errors import Refusal, step
from daybreak.values.tagged_json import from_tagged, to_tagged, write_dict, write_json

MAX_STORED_BYTES: Final = 256 * 1024 * 1024  # of a result or a checkpoint; stores keep them whole
STATE: Final = ("state",)
STEPS: Final = "steps"
_UNREAD: Final = object()

P = ParamSpec("P")
R = TypeVar("R")


class TaskReporter(Protocol):
    """The way from a running job to the holder of its lease."""

    def progress(self, fraction: float, message: str) -> None:
        """Report progress. Does not wait."""
        ...

    def output(self, text: str) -> None:
        """Keep what the job printed or logged. Does not wait."""
        ...

    def keep(self, checkpoint: bytes) -> None:
        """Store a checkpoint. It is durable when this returns. Raises LeaseLost if the job's lease has ended."""
        ...

    async def akeep(self, checkpoint: bytes) -> None:
        """As `keep`."""
        ...

    def move_file(self, digest: str, *, up: bool) -> None:
        """Copy a content from the store to the cache of this machine, or `up` to the store. Raises what prevents it."""
        ...

    async def amove_file(self, digest: str, *, up: bool) -> None:
        """As `move_file`."""
        ...


class NoReporter:
    """Reports nothing: for a task that is called as a plain function."""

    def progress(self, fraction: float, message: str) -> None: ...

    def output(self, text: str) -> None: ...

    def keep(self, checkpoint: bytes) -> None: ...

    async def akeep(self, checkpoint: bytes) -> None: ...

    def move_file(self, digest: str, *, up: bool) -> None: ...

    async def amove_file(self, digest: str, *, up: bool) -> None: ...


class Context:
    """The context of a running job. A task whose first parameter is annotated `Context` receives it; code that the task
    calls can get it with `daybreak.context()`."""

    def __init__(
        self,
        *,
        job: str = "",
        task: str = "",
        queue: str = "default",
        priority: int = 5,
        attempt: int = 1,
        max_attempts: int = 1,
        fence: int = 0,
        tags: tuple[str, ...] = (),
        meta: Mapping[str, Any] | None = None,
        owner: str | None = None,
        run: str | None = None,
        checkpoint: bytes | None = None,
        shared: SimpleNamespace | None = None,
        reporter: TaskReporter | None = None,
        scratch: str | None = None,
    ) -> None:
        self.job = job
        self.task = task
        self.queue = queue
        self.priority = priority
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.fence = fence
        self.tags = tags
        self.meta: dict[str, Any] = dict(meta) if meta else {}
        self.owner = owner
        self.run = run
        self.shared = shared or SimpleNamespace()
        self.note = ""  # what the job's record says about a success, for people
        self._reporter = reporter or NoReporter()
        self._stop: str | None = None
        self._detached_for: timedelta | None = None
        self._scratch: Path | None = None
        self._scratch_in = scratch
        # Values by their path, already encoded, so that a task can change its own objects later without effect.
        self._kept: dict[tuple[str, ...], object] = {}
        self._durable: dict[tuple[str, ...], object] = {}  # the part of it that is known to be durable
        self._state: Any = None
        self._results: dict[str, Any] = {}
        if checkpoint:
            found = values.decode(checkpoint)
            self._state, self._results = found.get("state"), found.get("steps", {})
            self._kept[STATE] = _written(self._state, STATE)
            for name, result in self._results.items():
                self._kept[STEPS, name] = _written(result, (STEPS, name))
            self._durable |= self._kept

    # -- reporting -----------------------------------------------------------------------------------------------------

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how far the work is, from 0 to 1. Cheap: only the latest report is passed on, a few times a second."""
        check_fraction(fraction)
        self._refuse_detached("progress")
        self._reporter.progress(float(fraction), str(message))

    def checkpoint(self, state: object) -> None:
        """Store `state` for a later attempt, which finds it as `ctx.state`. It is durable when this returns. If it
        cannot be stored, the earlier checkpoint stays. Changing `state` afterwards has no effect on what is stored."""
        self._refuse_detached("checkpoint")
        with self._keeping(state, STATE) as kept:
            self._reporter.keep(kept)

    async def acheckpoint(self, state: object) -> None:
        """As `checkpoint`, for async tasks."""
        self._refuse_detached("acheckpoint")
        with self._keeping(state, STATE) as kept:
            await self._reporter.akeep(kept)

    @property
    def state(self) -> Any:
        """The state of the last checkpoint, from this attempt or an earlier one; None if there is none."""
        if self._state is _UNREAD:
            self._state = from_tagged(self._kept[STATE]) if STATE in self._kept else None
        return self._state

    def step(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and store its result under this name. A later attempt returns the stored result instead of
        calling the function again."""
        if name not in self._results:
            self._refuse_detached("step")
            with self._keeping_step(name, function(*args, **kwargs)) as kept:
                self._reporter.keep(kept)
        return self._results[name]  # type: ignore[no-any-return]

    async def astep(self, name: str, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `step`, for async functions."""
        if name not in self._results:
            self._refuse_detached("astep")
            with self._keeping_step(name, await function(*args, **kwargs)) as kept:
                await self._reporter.akeep(kept)
        return self._results[name]  # type: ignore[no-any-return]

    def detach(self, deadline: object) -> Any:
        """Let the work of this attempt go on elsewhere: call it last, as `return ctx.detach(deadline="24h")`.

        When the task returns, its worker is free, and the job stays `running` and keeps its slots, until
        `app.finish(job, ..., fence=ctx.fence)` or a message ends it. If nobody does before the deadline, counted from
        then, the attempt has timed out. The task must return None, and cannot report anything any more. Nothing is
        detached if it raises an error. Returns None; the annotation lets tasks of any return type write `return`."""
        detached_for = duration(deadline, "detach: deadline")
        if detached_for <= ZERO:
            raise BadInput(f"detach: the deadline {deadline!r:.40} is over at once; write a time such as '24h'")
        self._detached_for = detached_for

    @property
    def detached_for(self) -> timedelta | None:
        """The deadline that was given to `detach`; None if it was not called."""
        return self._detached_for

    def _refuse_detached(self, what: str) -> None:
        if self._detached_for is not None:
            raise DaybreakError(
                f"ctx.{what}() was called after ctx.detach(): the attempt is given up then; report it before, and call "
                "ctx.detach() last"
            )

    @contextlib.contextmanager
    def _keeping_step(self, name: str, result: object) -> Iterator[bytes]:
        with self._keeping(result, (STEPS, name)) as kept:
            self._results[name] = result
            try:
                yield kept
            except Exception:
                if self._results.get(name) is result:
                    del self._results[name]
                raise

    @contextlib.contextmanager
    def _keeping(self, value: object, path: tuple[str, ...]) -> Iterator[bytes]:
        """The encoded checkpoint with this value at its path. If the block fails, the value is taken back."""
        written = _written(value, path)
        kept = _encoded({**self._kept, path: written})
        # Set before it is durable: a checkpoint that another asyncio task makes meanwhile must contain it too.
        self._kept[path] = written
        try:
            yield kept
        except Exception:
            if self._kept.get(path) is written:  # otherwise a newer value is there, and its own block handles it
                self._kept.pop(path)
                if path in self._durable:
                    self._kept[path] = self._durable[path]
            raise
        else:
            self._durable[path] = written
        finally:
            if path == STATE:
                self._state = _UNREAD

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether the job was asked to stop. The task should then end soon: after the grace time its process is
        ended."""
        return self._stop is not None

    @property
    def scratch(self) -> Path:
        """A folder for this attempt alone, which is deleted when the attempt ends."""
        if self._scratch is None:
            if self._scratch_in is not None:
                Path(self._scratch_in).mkdir(mode=0o700, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix="daybreak-", dir=self._scratch_in))
        return self._scratch

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger `daybreak.job`, which adds the job's task, id and attempt to each line."""
        return _JobLog(logging.getLogger("daybreak.job"), {"job": self.job, "task": self.task, "attempt": self.attempt})

    # -- for the runner ------------------------------------------------------------------------------------------------

    def ask_to_stop(self, why: str) -> None:
        """Set `cancelled`. The task sees it when it looks."""
        self._stop = why

    def output(self, text: str) -> None:
        """Keep what the job printed or logged."""
        self._reporter.output(text)

    def move_file(self, digest: str, *, up: bool) -> None:
        """Copy a content from the store to the cache of this machine, or `up` to the store."""
        self._reporter.move_file(digest, up=up)

    async def amove_file(self, digest: str, *, up: bool) -> None:
        """As `move_file`, for async tasks."""
        await self._reporter.amove_file(digest, up=up)

    @property
    def stopping(self) -> str | None:
        """Why the job was asked to stop; None if it was not."""
        return self._stop

    def clear(self) -> None:
        """Delete the scratch folder."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


def check_fraction(fraction: float) -> None:
    """Refuse progress that is no number from 0 to 1."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or math.isnan(fraction):
        raise BadInput(f"progress: {fraction!r} is not a number from 0 to 1")
    if not 0 <= fraction <= 1:
        raise BadInput(f"progress: {fraction!r} is outside 0 to 1; divide percent by 100")


def _written(value: object, path: tuple[str, ...]) -> object:
    try:
        return to_tagged(value, len(path))
    except Refusal as refusal:
        raise refusal.at("".join(map(step, path))).as_error("checkpoint") from None


def _encoded(parts: Mapping[tuple[str, ...], object]) -> bytes:
    """A checkpoint as it is stored: {"state": ..., "steps": {name: ...}}."""
    steps = {path[1]: written for path, written in parts.items() if path[0] == STEPS}
    try:
        named = write_dict(steps, to_tagged, lambda written, _: written, 1)
    except Refusal as refusal:  # the name of a step cannot be encoded
        raise refusal.at(step(STEPS)).as_error("checkpoint") from None
    kept = write_json({"state": parts.get(STATE), STEPS: named})
    if len(kept) > MAX_STORED_BYTES:
        raise TooLarge(
            f"checkpoint: it has {len(kept):,} bytes, the limit is {MAX_STORED_BYTES:,}; store a file and keep its path"
        )
    return kept


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        job = self.extra or {}
        kwargs["extra"] = {**job, **(kwargs.get("extra") or {})}
        return f"{job.get('task')} {job.get('job')}: {msg}", kwargs


current: contextvars.ContextVar[Context] = contextvars.ContextVar("daybreak.context")


def context() -> Context:
    """The context of the job that runs in the current thread or asyncio task."""
    try:
        return current.get()
    except LookupError:
        raise DaybreakError(
            "daybreak.context() was called outside of a job: call it inside a task, in the thread that runs the task"
        ) from None

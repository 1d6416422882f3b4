"""What a running job knows, and what it may say while it runs."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import math
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from daybreak import values
from daybreak.core.errors import BadInput, DaybreakError, TooLarge
from daybreak.values.errors import Refusal, step
from daybreak.values.tagged_json import pairs, plain, rich, write_json

LARGEST: Final = 256 * 1024 * 1024  # bytes of a result or a checkpoint; stores keep them whole
STATE: Final = ("state",)
STEPS: Final = "steps"
_UNREAD: Final = object()

P = ParamSpec("P")
R = TypeVar("R")


class TaskReporter(Protocol):
    """How a job reaches whoever holds its lease."""

    def progress(self, fraction: float, message: str) -> None: ...

    def keep(self, checkpoint: bytes) -> None:
        """Durable when this returns; LeaseLost if the job is someone else's by now."""
        ...

    async def akeep(self, checkpoint: bytes) -> None: ...


class Silent:
    """For a task that is called as a plain function."""

    def progress(self, fraction: float, message: str) -> None: ...

    def keep(self, checkpoint: bytes) -> None: ...

    async def akeep(self, checkpoint: bytes) -> None: ...


class Context:
    """Given to a task whose first parameter is annotated `Context`; from deeper code: `daybreak.context()`."""

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
        meta: Mapping[str, str] | None = None,
        owner: str | None = None,
        run: str | None = None,
        checkpoint: bytes | None = None,
        shared: SimpleNamespace | None = None,
        voice: TaskReporter | None = None,
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
        self.meta = dict(meta) if meta else {}
        self.owner = owner
        self.run = run
        self.shared = shared or SimpleNamespace()
        self._voice = voice or Silent()
        self._stop: str | None = None
        self._scratch: Path | None = None
        self._scratch_in = scratch
        # Each under its path, in the form in which it is written: what a task does with a value later changes nothing.
        self._kept: dict[tuple[str, ...], object] = {}
        self._durable: dict[tuple[str, ...], object] = {}  # what of it is known to be
        self._state: Any = None
        self._results: dict[str, Any] = {}
        if checkpoint:
            found = values.decode(checkpoint)
            self._state, self._results = found.get("state"), found.get("steps", {})
            self._kept[STATE] = _written(self._state, STATE)
            for name, result in self._results.items():
                self._kept[STEPS, name] = _written(result, (STEPS, name))
            self._durable |= self._kept

    # -- saying --------------------------------------------------------------------------------------------------------

    def progress(self, fraction: float, message: str = "") -> None:
        """How far the work is, from 0 to 1. Cheap: only the latest of many is passed on, a few times a second."""
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or math.isnan(fraction):
            raise BadInput(f"progress: {fraction!r} is no number from 0 to 1")
        if not 0 <= fraction <= 1:
            raise BadInput(f"progress: {fraction!r} lies outside 0 to 1; for percent divide by 100")
        self._voice.progress(float(fraction), str(message))

    def checkpoint(self, state: object) -> None:
        """Keep `state` for a later attempt, which finds it as `ctx.state`. Durable when this returns. What cannot be
        kept changes nothing; nor does what becomes of `state` afterwards."""
        with self._keeping(state, STATE) as kept:
            self._voice.keep(kept)

    async def acheckpoint(self, state: object) -> None:
        with self._keeping(state, STATE) as kept:
            await self._voice.akeep(kept)

    @property
    def state(self) -> Any:
        """What the last checkpoint of this job kept, in this attempt or an earlier one; None without one."""
        if self._state is _UNREAD:
            self._state = rich(self._kept[STATE]) if STATE in self._kept else None
        return self._state

    def step(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result; in a later attempt the kept one, without calling it again."""
        if name not in self._results:
            with self._keeping_step(name, function(*args, **kwargs)) as kept:
                self._voice.keep(kept)
        return self._results[name]  # type: ignore[no-any-return]

    async def astep(self, name: str, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        if name not in self._results:
            with self._keeping_step(name, await function(*args, **kwargs)) as kept:
                await self._voice.akeep(kept)
        return self._results[name]  # type: ignore[no-any-return]

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
        """All that is to be kept, with this value at its place; what cannot be kept leaves all as it was."""
        written = _written(value, path)
        kept = _encoded({**self._kept, path: written})
        # Before it is durable: what another task of the loop keeps meanwhile must hold it, too.
        self._kept[path] = written
        try:
            yield kept
        except Exception:
            if self._kept.get(path) is written:  # else another stands there, which says for itself what became of it
                self._kept.pop(path)
                self._kept |= {place: part for place, part in self._durable.items() if place == path}
            raise
        else:
            self._durable[path] = written
        finally:
            if path == STATE:
                self._state = _UNREAD

    # -- asking --------------------------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Someone wants this job to stop: end soon. What does not end within the grace time is ended."""
        return self._stop is not None

    @property
    def scratch(self) -> Path:
        """A folder of this attempt's own, gone when it ends."""
        if self._scratch is None:
            if self._scratch_in is not None:
                Path(self._scratch_in).mkdir(mode=0o700, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix="daybreak-", dir=self._scratch_in))
        return self._scratch

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Writes to the logger `daybreak.job`, each line with the job's task, id and attempt."""
        return _JobLog(logging.getLogger("daybreak.job"), {"job": self.job, "task": self.task, "attempt": self.attempt})

    # -- for the runner ------------------------------------------------------------------------------------------------

    def ask_to_stop(self, why: str) -> None:
        self._stop = why

    @property
    def stopping(self) -> str | None:
        return self._stop

    def clear(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


def _written(value: object, path: tuple[str, ...]) -> object:
    try:
        return plain(value, len(path))
    except Refusal as refusal:
        raise refusal.at("".join(map(step, path))).named("checkpoint") from None


def _encoded(parts: Mapping[tuple[str, ...], object]) -> bytes:
    """A checkpoint as it is stored: {"state": ..., "steps": {name: ...}}."""
    steps = {path[1]: written for path, written in parts.items() if path[0] == STEPS}
    try:
        named = pairs(steps, plain, lambda written, _: written, 1)
    except Refusal as refusal:  # of a name
        raise refusal.at(step(STEPS)).named("checkpoint") from None
    kept = write_json({"state": parts.get(STATE), STEPS: named})
    if len(kept) > LARGEST:
        raise TooLarge(f"checkpoint: {len(kept):,} bytes are more than {LARGEST:,}; keep a file's path instead")
    return kept


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"{about.get('task')} {about.get('job')}: {msg}", kwargs


current: contextvars.ContextVar[Context] = contextvars.ContextVar("daybreak.context")


def context() -> Context:
    """The context of the job that runs here."""
    try:
        return current.get()
    except LookupError:
        raise DaybreakError(
            "no job runs here: daybreak.context() works inside a task, in the thread it was called in"
        ) from None

"""The steps of a saga, as the code declares them, and its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.api.portal import Portal, blocking
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.api.task import Task
from daybreak.client.client import Client
from daybreak.client.saga_changes import start_saga
from daybreak.client.saga_record import (
    MAX_CONTEXT,
    MAX_ID,
    MAX_STEPS,
    StepDefinition,
    definition_digest,
    job_of,
    queues_of,
)
from daybreak.client.saga_record import Saga as StoredSaga
from daybreak.core.errors import BadInput, TooLarge
from daybreak.core.model import JobSpec
from daybreak.core.units import bytes_text, moment
from daybreak.policy.admit import admit, check_name
from daybreak.policy.sagas import UNDO_TRIES, begin
from daybreak.sagas.saga_run import SagaRun
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.values.items import ITEM

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

# A saga decides these options of its jobs itself.
_OWN_OPTIONS: Final = ("id", "tx", "key", "unique", "unique_while", "on_conflict", "delay", "run_at", "run")


class _Step(Struct, frozen=True):
    name: str
    task: Task[..., Any]
    undo: Task[..., Any] | None


class Saga:
    """Steps that run one after the other: `Saga("execute").step(allocate, undo=release).step(create, undo=delete)`.

    Each step is a job of a task. Its function gets the context, a dict, as its argument; the dict that it returns is
    merged into the context. If a step does not complete, or the saga is cancelled, the completed steps are undone in
    reverse order. `undo_tries` jobs may fail to undo a step; then the saga is stuck until somebody resumes it."""

    def __init__(self, name: str, *, undo_tries: int = UNDO_TRIES, app: Daybreak | None = None) -> None:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_ID:
            raise BadInput(f"saga {name!r:.60}: its name is a text of 1 to {MAX_ID} characters")
        check_name("saga", name)
        if isinstance(undo_tries, bool) or not isinstance(undo_tries, int) or undo_tries < 1:
            raise BadInput(f"saga {name!r}: undo_tries={undo_tries!r:.40}: write how many jobs may fail, such as 5")
        self.name = name
        self.undo_tries = undo_tries
        self._app = app
        self._steps: list[_Step] = []

    def __repr__(self) -> str:
        return f"<saga {self.name}: {', '.join(step.name for step in self._steps) or 'no steps'}>"

    @property
    def steps(self) -> list[str]:
        """The names of its steps, in order."""
        return [step.name for step in self._steps]

    def step(self, task: Task[..., Any], *, undo: Task[..., Any] | None = None, name: str | None = None) -> Saga:
        """Add a step. `undo` is the task that undoes it after it has completed; it gets the context too. A step is
        named after its task, unless a `name` is given."""
        for one in (task,) if undo is None else (task, undo):
            self._check_task(one)
        if len(self._steps) >= MAX_STEPS:
            raise BadInput(f"saga {self.name!r} has {MAX_STEPS} steps, and takes no more")
        named = name or task.name
        if named in self.steps:
            raise BadInput(f"saga {self.name!r} has two steps named {named!r}: write .step({task.name}, name=...)")
        check_name("step", named)
        self._steps.append(_Step(named, task, undo))
        return self

    def _check_task(self, task: object) -> None:
        if not isinstance(task, Task):
            raise BadInput(f"saga {self.name!r}: {task!r:.60} is no task: write @app.task above the function")
        given = [option for option in _OWN_OPTIONS if option in task._options]  # noqa: SLF001 - the app, its tasks and sagas are one part
        if given:
            raise BadInput(
                f"saga {self.name!r}: using({given[0]}=...) is decided by the saga, for each job: leave it out"
            )
        parameter_of(task)
        app: Any = task._app  # noqa: SLF001
        if self._app is None:
            self._app = app
        elif self._app is not app:
            raise BadInput(f"saga {self.name!r}: task {task.name!r} belongs to another app than the steps before it")
        app.program.fed_queues.append(task.queue)
        app.declared_sagas[self.name] = self

    @property
    def _sessions(self) -> Sessions:
        if self._app is None or not self._steps:
            raise BadInput(f"saga {self.name!r} has no steps: write .step(task, undo=other_task)")
        return self._app._sessions  # noqa: SLF001

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    @on_store_loop
    async def astart(self, context: Mapping[str, Any] | None = None, *, id: str | None = None) -> SagaRun:  # noqa: A002
        """Start the saga with this context; it is durable when this returns. With an `id` of your own, starting it
        again with the same steps and context returns the same saga; with others it is a KeyConflict."""
        refuse_during_import("saga.start")
        run_id, _ = await begin_saga(self, await self._sessions.client(), context, id)
        assert self._app is not None
        return SagaRun(self._app, run_id)

    start = blocking(astart)

    async def _write(
        self, client: Client, run_id: str, definition: tuple[StepDefinition, ...], context: bytes
    ) -> bool:  # fmt: skip
        now, new_id = moment(client.wall()), client.new_id()
        names = [(step.name, step.undo is not None) for step in self._steps]
        decision = begin(names, new_id, now)
        saga = StoredSaga(
            name=self.name,
            definition=definition,
            context=msgspec.Raw(context),
            progress=decision.progress,
            started_with=definition_digest(self.name, definition, context),
            created_at=now,
            changed_at=now,
            by=client.by,
            undo_tries=self.undo_tries,
        )
        assert decision.job is not None
        first = job_of(run_id, saga, decision.job, new_id)
        for step in definition:
            for spec in (step.spec, step.undo):
                if spec is not None:
                    admit(replace(first, task=spec.task, queue=spec.queue, options=spec.options, tags=spec.tags),
                          client.store.traits.features)  # fmt: skip
        return await start_saga(client, run_id, saga, first)

    async def _definition(self, step: _Step, context: dict[str, Any]) -> StepDefinition:
        return StepDefinition(
            spec=await _spec_of(step.task, context),
            takes=parameter_of(step.task),
            undo=None if step.undo is None else await _spec_of(step.undo, context),
            undo_takes="" if step.undo is None else parameter_of(step.undo),
        )

    async def _encoded(self, context: dict[str, Any]) -> bytes:
        """The context as the store keeps it. Files in it are stored."""
        from daybreak.values import encode  # noqa: PLC0415

        encoded = await self._steps[0].task._aencoded(partial(encode, context, "context"))  # noqa: SLF001
        if len(encoded) > MAX_CONTEXT:
            raise TooLarge(
                f"saga {self.name!r}: its context has {bytes_text(len(encoded))}, the limit is "
                f"{bytes_text(MAX_CONTEXT)}; pass a File, or where the data is"
            )
        return encoded


async def begin_saga(
    saga: Saga,
    client: Client,
    context: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    *,
    check_queue: Callable[[str], None] = lambda _: None,
) -> tuple[str, bool]:
    """Start a saga in the name of this client, on its loop. `check_queue` is called with the queue of each job first,
    and may raise. Returns the id, and whether the saga is new."""
    run_id = client.new_id() if run_id is None else _checked_id(run_id)
    first = dict(_checked_context(saga.name, context))
    definition = tuple([await saga._definition(step, first) for step in saga._steps])  # noqa: SLF001 - one part
    for queue in sorted(queues_of(definition)):
        check_queue(queue)
    encoded = await saga._encoded(first)  # noqa: SLF001
    return run_id, await saga._write(client, run_id, definition, encoded)  # noqa: SLF001


def parameter_of(task: Task[..., Any]) -> str:
    """The parameter of a task that gets the context; empty if it takes none."""
    described = task.definition.arguments.describe()
    if task.definition.batching is not None and [one["name"] for one in described] != [ITEM]:
        raise BadInput(
            f"batch task {task.name!r} takes items whose fields are its arguments: a step of a saga takes one, the "
            "context; annotate the items as list[Any]"
        )
    if len([one for one in described if one["required"]]) > 1:
        names = ", ".join(one["name"] for one in described)
        raise BadInput(
            f"task {task.name!r} takes {names}: a step of a saga takes one argument, the context, which is a dict"
        )
    return str(described[0]["name"]) if described else ""


async def _spec_of(task: Task[..., Any], context: dict[str, Any]) -> JobSpec:
    """The job of a step without its arguments. The app's rules are applied, and what it needs of resources depends on
    the first context."""
    takes = parameter_of(task)
    named = {takes: context} if takes else {}
    spec = task._with_resources(task._spec(b"{}", (), named), (), named)  # noqa: SLF001
    if spec.options.resources:
        await task._aprovide(spec)  # noqa: SLF001
    return replace(spec, id="", by="")


def _checked_id(run_id: object) -> str:
    if not isinstance(run_id, str) or not run_id.strip() or len(run_id) > MAX_ID or "/" in run_id:
        raise BadInput(f"saga: id={run_id!r:.60}: write a text of 1 to {MAX_ID} characters without a slash")
    check_name("saga", run_id)
    return run_id


def _checked_context(name: str, context: object) -> Mapping[str, Any]:
    if context is None:
        return {}
    if not isinstance(context, Mapping) or not all(isinstance(key, str) for key in context):
        raise BadInput(f"saga {name!r}: its context is a dict whose keys are texts, not {context!r:.60}")
    return context

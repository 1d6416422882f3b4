"""Jobs that callers submit: from a request body to an accepted job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from daybreak.api.task import prepare
from daybreak.core.errors import BadInput
from daybreak.core.model import Adaptive, JobSpec, Retry
from daybreak.core.units import duration
from daybreak.policy.admit import admit, digest
from daybreak.server.bodies.submissions import RetryBody, SubmitBody
from daybreak.server.idempotency import JOB_KEY
from daybreak.server.problems import FORBIDDEN, Problem
from daybreak.server.routing import Call
from daybreak.tasks.command_tasks import COMMAND_TASKS

_ADAPTIVE: Final = "adaptive:"


async def spec_for(call: Call[Any, Any], body: SubmitBody, key: str | None) -> JobSpec:
    """Build and check the job that a body describes, in the caller's name. `key` is its key if the body has none.

    A server with an app takes the tasks of the app, checks arguments by their functions, and applies its rules. A
    server without an app accepts any task."""
    if body.task in COMMAND_TASKS and not call.caller.may("admin"):
        raise Problem(FORBIDDEN, "a job that runs a command line needs the role 'admin'")
    if body.key is not None and body.key.startswith(JOB_KEY):
        raise BadInput(f"key: keys that begin with {JOB_KEY!r} are made from Idempotency-Key headers")
    options = _options(body)
    if "key" not in options and key is not None:
        options["key"] = key
    if len(call.server.app.program):
        spec = await _of_app(call, body, options)
    elif body.cache:
        raise BadInput("cache: this server has no app, and only the code of a task says what its results depend on")
    else:
        spec = await _of_any_task(call, body, options)
    call.check_queue(spec.queue)
    return admit(spec, (await call.client()).store.traits.features)


async def _of_app(call: Call[Any, Any], body: SubmitBody, options: dict[str, Any]) -> JobSpec:
    if body.cache is not None:
        options["cache"] = body.cache
    task = call.server.app.find_task(body.task).using(**options)
    definition = task.definition
    if body.version not in (None, definition.version):
        raise BadInput(f"task {definition.name!r} is at version {definition.version} here, not at {body.version}")
    return await prepare(task, definition.arguments.accept(body.args), by=call.caller.by)


async def _of_any_task(call: Call[Any, Any], body: SubmitBody, options: dict[str, Any]) -> JobSpec:
    client = await call.client()
    version = 1 if body.version is None else body.version
    spec = client.spec(body.task, body.args, version=version, **options)
    return spec if spec.key is None else replace(spec, digest=digest(spec))


def _options(body: SubmitBody) -> dict[str, Any]:
    """The job options of the body, as `task.using` takes them."""
    names = (
        "queue", "priority", "delay", "run_at", "expires_in", "key", "unique", "unique_while", "on_conflict", "keep",
        "run", "owner",
    )  # fmt: skip
    options: dict[str, Any] = {name: value for name in names if (value := getattr(body, name)) is not None}
    if body.tags:
        options["tags"] = tuple(body.tags)
    if body.meta:
        options["meta"] = body.meta
    if body.retry is not None:
        options["retry"] = _retry(body.retry)
    if body.timeout is not None:
        options["timeout"] = _timeout(body.timeout)
    return options


def _retry(value: int | str | RetryBody) -> int | str | Retry:
    if not isinstance(value, RetryBody):
        return value
    return Retry(**{name: getattr(value, name) for name in RetryBody.__struct_fields__})


def _timeout(text: str) -> timedelta | Adaptive:
    if text.startswith(_ADAPTIVE):
        return Adaptive(duration(text.removeprefix(_ADAPTIVE), "timeout"))
    return duration(text, "timeout")

"""The context of a call of a batch task, which several jobs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from daybreak.core.errors import BadInput
from daybreak.tasks.context import Context


class CallContext(Context):
    """The context of one call of a batch task. `jobs` are the ids of its jobs, in the order of the items. Everything
    else that a context tells of a job is that of the first of them, in whose log the output of the call is kept.

    Progress is reported for all of them. `cancelled` is True once all of them were asked to stop. A call has no
    checkpoint, because its items may be in different calls the next time, and cannot be detached."""

    def __init__(self, first: Context, jobs: Sequence[str]) -> None:
        super().__init__()
        vars(self).update(vars(first))
        self.jobs = tuple(jobs)

    @property
    def state(self) -> Any:
        """None: a call has no checkpoint."""
        return None

    def checkpoint(self, *_: object) -> NoReturn:
        """Refused: see the class."""
        raise _refusal("checkpoint()")

    async def acheckpoint(self, *_: object) -> NoReturn:
        """Refused: see the class."""
        raise _refusal("acheckpoint()")

    def step(self, *_: object, **__: object) -> NoReturn:
        """Refused: see the class."""
        raise _refusal("step()")

    async def astep(self, *_: object, **__: object) -> NoReturn:
        """Refused: see the class."""
        raise _refusal("astep()")

    def detach(self, *_: object, **__: object) -> NoReturn:
        """Refused: what runs elsewhere is one job, and not a call of several."""
        raise BadInput("ctx.detach() in a batch task: write a plain task, whose jobs are detached one by one")


def _refusal(what: str) -> BadInput:
    return BadInput(
        f"ctx.{what} in a batch task: a call of several jobs has no checkpoint; the items that succeed are settled "
        "anyway, and only the others run again"
    )

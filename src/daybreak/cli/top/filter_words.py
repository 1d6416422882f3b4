"""The filter line of `top`: the filter options of `daybreak jobs`, and words that are searched for."""

from __future__ import annotations

import shlex
from typing import Final

import click
from msgspec import Struct

from daybreak.cli.options import Where, filters
from daybreak.config import closest
from daybreak.core.errors import BadInput
from daybreak.core.model import Job, State
from daybreak.core.text import safe
from daybreak.policy.job_filter import JobFilter

MAX_LENGTH: Final = 500  # characters of the line


class ListFilter(Struct, frozen=True):
    """Which jobs the list shows: those that match the filter and contain every word."""

    where: Where
    words: tuple[str, ...] = ()

    @property
    def filter(self) -> JobFilter:
        return self.where.filter

    @property
    def is_empty(self) -> bool:
        return self.filter.is_empty and not self.words

    @property
    def is_scan(self) -> bool:
        """Whether the store cannot find these jobs by itself, so that each job has to be read."""
        return bool(self.words) or self.filter.is_timed

    def matches(self, job: Job) -> bool:
        """Whether the job still has one of the states, and is within the times, the cluster and the words."""
        if self.filter.states and job.state not in self.filter.states:
            return False
        if not self.filter.is_within(job):
            return False
        if not self.words:
            return True
        text = _searched(job)
        return all(word.lower().encode() in text for word in self.words)

    def line(self) -> str:
        """The filter as one would write it: `queue=mail state=failed smtp`."""
        options = iter(self.where.words())
        written = [f"{name.removeprefix('--')}={value}" for name, value in zip(options, options, strict=True)]
        return shlex.join([*written, *self.words])

    def __str__(self) -> str:
        """The filter as a phrase: `failed jobs in mail with "smtp"`."""
        text = self.where.jobs()
        return text + (f" with {safe(' '.join(self.words))!r}" if self.words else "")


def _searched(job: Job) -> bytes:
    spec = job.spec
    parts = (spec.id, spec.task, spec.queue, spec.run, spec.owner, spec.key, *spec.tags, job.worker, job.message)
    error = str(job.failure) if job.failure is not None else ""
    return "\n".join((*(part or "" for part in parts), job.note, error)).lower().encode(
        "utf-8", "backslashreplace"
    ) + spec.args.lower()  # fmt: skip


@click.command(add_help_option=False)
@filters
@click.option("--text", multiple=True)
@click.argument("words", nargs=-1)
def _options(where: Where, text: tuple[str, ...], words: tuple[str, ...]) -> ListFilter:
    return ListFilter(where, (*text, *words))


_NAMES: Final = frozenset(str(param.name) for param in _options.params if isinstance(param, click.Option))
EVERYTHING: Final = ListFilter(Where(JobFilter()))


def parse_filter(line: str) -> ListFilter:
    """Read a filter line: `--queue mail`, `queue=mail`, names of states, and words to search for. Raises BadInput."""
    if len(line) > MAX_LENGTH:
        raise BadInput(f"the filter has {len(line)} characters; at most {MAX_LENGTH} are possible")
    try:
        words = [_option(word) for word in shlex.split(line)]
    except ValueError:
        raise BadInput("a quotation mark is not closed") from None
    try:
        with _options.make_context("filter", words) as context:
            found = _options.invoke(context)
    except click.ClickException as error:
        raise BadInput(error.format_message()) from None
    assert isinstance(found, ListFilter)
    return found


def _option(word: str) -> str:
    """`queue=mail` as the option it means, and the name of a state as `--state`."""
    name, equals, value = word.partition("=")
    if equals and name in _NAMES:
        return f"--{name}={value}"
    if equals and (meant := closest(name, _NAMES)) is not None:
        raise BadInput(f"there is no filter {name!r}; did you mean {meant}? To search for the text: text={word!r}")
    if word in [state.value for state in State]:
        return f"--state={word}"
    return word

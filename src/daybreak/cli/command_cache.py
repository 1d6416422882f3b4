"""`--cache` of `exec` and `sweep`: known results of command lines. A command names the files that its result depends
on, because nobody else can know them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from daybreak.cli.options import Place
from daybreak.core.errors import BadFile, BadInput
from daybreak.system.file_content import digest_of
from daybreak.tasks.cache import Cache
from daybreak.tasks.command_tasks import INPUTS

F = TypeVar("F", bound=Callable[..., Any])

VERSION: Final = "1"  # of what a result of a command line contains
MAX_INPUTS: Final = 100  # each job keeps their digests


def cache_options(command: F) -> F:
    """Add --cache and --input to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = [
    click.option(
        "--cache", "use_cache", is_flag=True,
        help="Use a known result of the same command line on the same files, and keep this one. What it reads besides "
        "the files that are words of it is named with --input.",
    ),
    click.option(
        "--input", "-i", "inputs", type=Place(), multiple=True, metavar="FILE",
        help="With --cache: a file whose content the result depends on. May be repeated.",
    ),
]  # fmt: skip


class CommandCache(NamedTuple):
    """The cache of a command line, and the entry of `meta` by which the worker sees that no file has changed since."""

    cache: Cache
    meta: dict[str, Any]


def command_cache(
    words: Iterable[str], inputs: Iterable[str], folder: Path, *, also: Mapping[str, Any], ignore: str = ""
) -> CommandCache:
    """The cache of a command line. The contents of the named files count, and of those that are words of it; and what
    else is given in `also`."""
    named = [folder / path for path in inputs]
    for path in named:
        if not path.is_file():
            raise BadInput(f"--input {path}: {'it is a folder: name files' if path.is_dir() else 'no such file'}")
    found = {_name(path, folder): path for path in [*(folder / w for w in words if _is_file(folder, w)), *named]}
    if len(found) > MAX_INPUTS:
        raise BadInput(f"--input: {len(found)} files; the limit is {MAX_INPUTS}")
    try:
        digests = {name: digest_of(path)[0] for name, path in found.items()}
    except BadFile as error:
        raise BadInput(f"--cache: {error}") from None
    environment: dict[str, Any] = {**also, **{f"file {name}": digest for name, digest in digests.items()}}
    cache = Cache(version=VERSION, environment=environment, ignore=ignore or ())
    return CommandCache(cache, {INPUTS: {str(folder / name): digest for name, digest in digests.items()}})


def _name(path: Path, folder: Path) -> str:
    """The file by its path from the folder, if it is in it: so the same command is the same in another folder."""
    full = Path(os.path.normpath(path))
    return str(full.relative_to(folder) if full.is_relative_to(folder) else full)


def _is_file(folder: Path, word: str) -> bool:
    try:
        return bool(word) and not word.startswith("-") and (folder / word).is_file()
    except (OSError, ValueError):
        return False

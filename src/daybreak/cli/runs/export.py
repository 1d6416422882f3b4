"""`daybreak runs export`: the results of a run as one table."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

import click

from daybreak.api.views.scalars import finite
from daybreak.cli import completions
from daybreak.cli.options import NAME, Place
from daybreak.cli.output import note, tell
from daybreak.cli.root import store_options
from daybreak.cli.runs.found import find_run
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.config import here
from daybreak.core.errors import BadInput
from daybreak.core.text import counted, safe
from daybreak.tasks.command_tasks import EXEC_POINT

STDOUT: Final = "-"

Row = dict[str, Any]


@click.command(short_help="Write the results of a run as CSV, JSON or Parquet.")
@click.argument("name", type=NAME, shell_complete=completions.runs)
@click.option("--csv", type=Place(), metavar="FILE", help="Write CSV to this file; - is standard output.")
@click.option("--json", "json_", type=Place(), metavar="FILE", help="Write a JSON list with an object per point; or -.")
@click.option("--parquet", type=Place(), metavar="FILE", help="Write Parquet to this file; needs pyarrow.")
def export(name: str, csv: str | None, json_: str | None, parquet: str | None) -> int:
    """Write a row for each point of a run, also while it runs: its arguments, the fields of its result, its state,
    error and duration, and the id of its job. Without an option, CSV is written to standard output. A file appears only
    when it is complete.

    Examples:
      daybreak runs export overnight --csv results.csv
      daybreak runs export overnight --json - | jq '.[].vout'
      daybreak runs export overnight | column -s, -t | less

    """
    given = {form: path for form, path in (("csv", csv), ("json", json_), ("parquet", parquet)) if path is not None}
    if len(given) > 1:
        raise click.UsageError("write one file at a time: give one of --csv, --json and --parquet")
    [(form, path)] = given.items() or [("csv", STDOUT)]
    if form == "parquet" and path == STDOUT:
        raise BadInput("a Parquet file cannot be written to standard output; name a file")

    from daybreak.cli.runs.command_rows import readable_rows  # noqa: PLC0415 - `daybreak runs` starts faster

    async def apply(client: Client) -> int:
        run = await find_run(client, name)
        info = await run.ainfo()
        readable = readable_rows(info.columns) if info.task == EXEC_POINT else _unchanged
        rows = await _spooled(run.arows(), readable)
        with rows:
            try:
                written = _write(form, path, _read(rows))
            except OSError as error:
                if path == STDOUT:
                    raise
                raise BadInput(f"cannot write {path}: {error.strerror}") from None
        shown = name if "#" in name else run.name
        if path != STDOUT:
            tell(f"{counted(written, 'row')} of run {safe(shown)} written to {safe(path)}.")
        elif not written:
            note(f"run {safe(shown)} has no jobs yet")
        return 0

    return session().run(apply)


store_options(export)


async def _spooled(rows: AsyncIterator[Row], readable: Callable[[Row], Row]) -> IO[bytes]:
    """The rows, one JSON text per line, in memory or a temporary file: tables are written by blocking code."""
    from daybreak.runs.run_pages import json_row  # noqa: PLC0415

    file: IO[bytes] = SpooledTemporaryFile(8 * 2**20)  # noqa: SIM115 - closed by the caller
    async for row in rows:
        file.write(json.dumps(readable(json_row(row))).encode() + b"\n")
    return file


def _unchanged(row: Row) -> Row:
    return row


def _read(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    file.seek(0)
    for line in file:
        yield json.loads(line)


def _write(form: str, path: str, rows: Iterable[Mapping[str, Any]]) -> int:
    from daybreak.runs.tables import replaced, write_csv, write_parquet  # noqa: PLC0415

    target: Any = path if path == STDOUT else str(here() / path)
    if form == "parquet":
        return write_parquet(rows, target)
    if form == "csv":
        return write_csv(rows, sys.stdout if path == STDOUT else target)
    if path == STDOUT:
        return _write_json(rows, sys.stdout)
    with replaced(target, binary=False) as file:
        return _write_json(rows, file)


def _write_json(rows: Iterable[Mapping[str, Any]], file: IO[str]) -> int:
    """A JSON list with one row per line."""
    written = 0
    for row in rows:
        file.write("[\n" if not written else ",\n")
        file.write(json.dumps(finite(row), allow_nan=False))
        written += 1
    file.write("\n]\n" if written else "[]\n")
    return written

"""`daybreak jobs logs`: prints what a job has printed and logged."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click

from daybreak.api.views.job_logs import logs_view
from daybreak.cli import completions, errors
from daybreak.cli.jobs.show import found
from daybreak.cli.options import as_json
from daybreak.cli.output import as_json as to_json
from daybreak.cli.output import say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.client.job_logs import JobLogs
from daybreak.core.text import counted, safe

READ_INTERVAL: Final = timedelta(milliseconds=500)


@click.command(short_help="Print what a job has printed and logged.")
@click.argument("job_id", metavar="ID", shell_complete=completions.jobs)
@click.option("--attempt", type=click.IntRange(1), help="Only the output of this attempt.")
@click.option("--follow", "-f", is_flag=True, help="Print new output as it arrives, until the job has ended.")
@as_json
def logs(job_id: str, attempt: int | None, follow: bool, as_json: bool) -> int:
    """Print what a job has printed and logged: the first and the last 64 KiB of each of its latest 5 attempts. Control
    characters are shown as escapes. With --json and --follow, each line is one JSON document.

    Examples:
      daybreak jobs logs 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d
      daybreak jobs logs last --follow

    """

    async def print_logs(client: Client) -> int:
        job = await found(client, job_id)
        printed = _Printer()
        after = ""
        while True:
            is_final = job.is_final  # read before the output: the output is stored before the job ends
            read = await client.logs(job.id, attempt=attempt, after=after)
            after = read.next
            if as_json and not follow:
                say_json(logs_view(read))
            elif as_json and read.pieces:
                say(to_json(logs_view(read), indent=None))
            elif not as_json:
                printed.add(read)
            if is_final or not follow:
                break
            try:
                job = await client.wait(job.id, READ_INTERVAL)
            except TimeoutError:
                continue
        printed.end()
        return 0

    return session().run(print_logs)


store_options(logs)


class _Printer:
    """Prints pieces of output. A line before each attempt but a first one says which it is."""

    def __init__(self) -> None:
        self._run: tuple[int, int] | None = None
        self._is_at_line_start = True

    def add(self, logs: JobLogs) -> None:
        for piece in logs.pieces:
            run = (piece.fence, piece.attempt)
            if run != self._run and run[0] > 1:
                self._line(f"--- attempt {piece.attempt} ---")
            self._run = run
            if piece.skipped:
                self._line(f"... {counted(piece.skipped, 'byte')} left out ...")
            self._print(safe(piece.text, lines=True))

    def end(self) -> None:
        if not self._is_at_line_start:
            self._print("\n")

    def _line(self, text: str) -> None:
        self.end()
        self._print(f"{text}\n")

    def _print(self, text: str) -> None:
        click.echo(text, nl=False, color=errors.color())
        self._is_at_line_start = text.endswith("\n")

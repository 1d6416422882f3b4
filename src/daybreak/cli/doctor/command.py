"""`daybreak doctor`: checks settings, store, workers and jobs, and prints problems with their fixes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import click
from rich.text import Text

from daybreak.cli.doctor.sagas import about_sagas
from daybreak.cli.doctor.schedules import about_schedules
from daybreak.cli.doctor.setup import about_settings, about_store, about_writing
from daybreak.cli.doctor.spool import about_spool
from daybreak.cli.doctor.watches import about_watches
from daybreak.cli.doctor.work import about_work
from daybreak.cli.errors import Exit
from daybreak.cli.options import as_json
from daybreak.cli.output import console, say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.client.client import Client
from daybreak.config import shown
from daybreak.core.errors import StoreError
from daybreak.core.text import counted, safe
from daybreak.store.protocol import Finding, ok_finding


@click.command("doctor", short_help="Find problems and suggest fixes.")
@as_json
def command(as_json: bool) -> int:
    """Check the settings, the store, the workers, the waiting jobs, and the jobs that failed in the last day. Print
    each problem with a fix. The exit code is 0 without problems, 1 with problems, and 3 if the store cannot be reached.

    Example:
      daybreak doctor

    """
    here = session()
    findings, code = _examine(here)
    if as_json:
        data = [{"well": one.is_well, "what": one.what, "cure": one.cure or None} for one in findings]
        say_json({"store": shown(here.settings.url), "from": here.settings.origins.get("url"), "findings": data})
    else:
        _say(findings)
    return int(code)


store_options(command)


def _examine(here: Session) -> tuple[list[Finding], Exit]:
    findings = [*about_settings(here), *about_spool(here)]
    if not here.store.traits.persistent:
        what = f"{here.settings.url} is in the memory of one process, and ends with it"
        return [*findings, Finding(what, cure="name another store, for example --url jobs.db")], Exit.FAILED
    try:
        if (absent := here.absent) is not None:
            return [*findings, Finding(absent)], Exit.UNREACHABLE
    except StoreError as error:
        return [*findings, Finding(str(error))], Exit.UNREACHABLE
    try:
        findings += here.run(lambda client: _check(client, here))
    except StoreError as error:
        findings += [*asyncio.run(about_store(here.store)), Finding(str(error))]
        return findings, Exit.UNREACHABLE
    return findings, Exit.OK if all(one.is_well for one in findings) else Exit.FAILED


async def _check(client: Client, here: Session) -> list[Finding]:
    findings = await about_store(client.store)
    findings.append(await about_writing(client))
    findings.append(ok_finding(f"files are kept in {(await here.files(client)).location.removeprefix('file://')}"))
    now = datetime.now(UTC)
    findings += [finding async for finding in about_watches(client, here, now)]
    findings += [finding async for finding in about_schedules(client, here, now)]
    findings += [finding async for finding in about_sagas(client, here, now)]
    return [*findings, *[finding async for finding in about_work(client, here, now)]]


def _say(findings: list[Finding]) -> None:
    out = console()
    for one in findings:
        line = Text("ok       ", "green") if one.is_well else Text("problem  ", "bold red")
        line.append(safe(one.what))
        out.print(line)
        if one.cure:
            out.print(Text(f"         fix: {safe(one.cure)}"))
    problems = sum(not one.is_well for one in findings)
    say()
    say(f"{counted(problems, 'problem')} found." if problems else "No problems found.")

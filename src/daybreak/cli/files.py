"""`daybreak files`: the contents of files and large results that are kept beside the jobs."""

from __future__ import annotations

import contextlib
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from daybreak.api.views.scalars import instant
from daybreak.cli.errors import Exit, NotFound
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, StoreCorrupt
from daybreak.core.text import ago, counted, safe
from daybreak.core.units import bytes_text
from daybreak.files import BlobInfo, FileStore

_SHORTEST: Final = 6  # digits of a digest


@click.group(cls=Group, name="files", short_help="List, fetch and verify the files of jobs.")
def command() -> None:
    """The contents of files that were submitted with jobs or returned by them, and large results. Each is stored once,
    under the sha256 digest of its bytes.

    Examples:
      daybreak files list
      daybreak files get 2cf24dba -o model.plecs
      daybreak files verify

    """


@click.command("list", short_help="List stored contents.")
@as_json
def list_(as_json: bool) -> int:
    """List the contents with their sizes, and when each was last submitted or stored.

    Example:
      daybreak files list --json

    """

    async def apply(client: Client) -> int:
        files = await session().files(client)
        found = await files.infos()
        if as_json:
            say_json({"place": files.location, "files": [_view(info) for info in found]})
            return 0
        if found:
            rows = [[info.digest, bytes_text(info.size), ago(info.touched_at, datetime.now(UTC))] for info in found]
            say_table([Column("SHA256"), Column("SIZE", right=True), Column("TOUCHED", drop=1)], rows)
            say()
        total = bytes_text(sum(info.size for info in found))
        say(f"{counted(len(found), 'file')}, {total}, in {safe(_place(files))}.")
        return 0

    return session().run(apply)


@click.command(short_help="Write a content to a file.")
@click.argument("digest", metavar="DIGEST")
@click.option("-o", "--output", metavar="PATH", required=True, help="The file to write; an existing file is kept.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@as_json
def get(digest: str, output: str, force: bool, as_json: bool) -> int:
    """Write the content with this sha256 digest to a file, after it was verified. The first digits of the digest are
    enough, if no other content has the same ones.

    Example:
      daybreak files get 2cf24dba5fb0 -o model.plecs

    """

    async def apply(client: Client) -> int:
        files = await session().files(client)
        found = await _found(files, digest)
        _write(await files.path(found.digest), Path(output), force=force)
        if as_json:
            say_json({**_view(found), "path": output})
        else:
            say(f"{bytes_text(found.size)} written to {safe(output)}.")
        return 0

    return session().run(apply)


@click.command(short_help="Compare stored contents with their digests.")
@click.argument("digests", metavar="[DIGEST]...", nargs=-1)
@as_json
def verify(digests: tuple[str, ...], as_json: bool) -> int:
    """Read contents, all of them unless some are named, and compare each with its digest. The exit code is 1 if one is
    damaged.

    Example:
      daybreak files verify

    """

    async def apply(client: Client) -> int:
        files = await session().files(client)
        wanted = [await _found(files, digest) for digest in digests] if digests else await files.infos()
        bad: dict[str, str] = {}
        for info in wanted:
            try:
                await files.verify(info.digest)
            except StoreCorrupt as error:
                bad[info.digest] = str(error)
        if as_json:
            say_json({"verified": len(wanted), "damaged": bad})
        else:
            for why in bad.values():
                say(safe(why))
            say(f"{counted(len(wanted), 'file')} verified, {len(bad)} damaged.")
        return int(Exit.FAILED if bad else Exit.OK)

    return session().run(apply)


for made in (list_, get, verify):
    command.add_command(made)
    store_options(made)
store_options(command)


def _view(info: BlobInfo) -> dict[str, Any]:
    return {"sha256": info.digest, "size": info.size, "touched_at": instant(info.touched_at)}


def _place(files: FileStore) -> str:
    return files.location.removeprefix("file://")


async def _found(files: FileStore, digest: str) -> BlobInfo:
    wanted = digest.lower().removeprefix("sha256:")
    if not re.fullmatch(f"[0-9a-f]{{{_SHORTEST},64}}", wanted):
        raise BadInput(f"{digest!r} is not a digest: write at least {_SHORTEST} of its 64 hexadecimal digits")
    if len(wanted) == 64:
        exact = await files.info(wanted)
        matching = [] if exact is None else [exact]
    else:
        matching = [info for info in await files.infos() if info.digest.startswith(wanted)]
    if len(matching) > 1:
        raise BadInput(f"{counted(len(matching), 'digest')} begin with {wanted}: write more digits")
    if not matching:
        raise NotFound(f"no content has the digest {wanted}; list them with: {session().command('files', 'list')}")
    return matching[0]


def _write(source: Path, target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise BadInput(f"-o {target} is a folder: name a file in it")
    try:
        with source.open("rb") as content, target.open("wb" if force else "xb") as out:
            try:
                shutil.copyfileobj(content, out, 1024 * 1024)
            except OSError:
                with contextlib.suppress(OSError):
                    target.unlink()
                raise
    except FileExistsError:
        raise BadInput(f"{target} exists: add --force to overwrite it, or name another file") from None
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror or error}") from None

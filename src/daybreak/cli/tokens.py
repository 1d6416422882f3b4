"""`daybreak tokens`: who may use the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from daybreak.api.views.scalars import instant
from daybreak.cli import completions
from daybreak.cli.options import DURATION, NAME, OneOf, as_json
from daybreak.cli.output import Column, note, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, counted, safe
from daybreak.server.access.callers import ROLES
from daybreak.server.access.tokens import Token, create_token, list_tokens, revoke_token


@click.group(cls=Group, name="tokens", short_help="Create, list and revoke tokens for the server.")
def command() -> None:
    """Tokens let programs use the server. A token is sent in a header: Authorization: Bearer TOKEN.

    Examples:
      daybreak tokens create ann --role submit --queue mail --expires-in 90d
      daybreak tokens list
      daybreak tokens revoke ann

    """


@click.command(short_help="Create a token and print it, once.")
@click.argument("name", type=NAME)
@click.option(
    "--role", "roles", type=OneOf("role", ROLES), multiple=True, required=True,
    help="read, submit (reads too), work (for workers), or admin (everything); may be repeated.",
)  # fmt: skip
@click.option(
    "--queue", "queues", type=NAME, multiple=True, shell_complete=completions.queues,
    help="Only jobs of this queue; may be repeated.",
)  # fmt: skip
@click.option("--expires-in", type=DURATION, help="It works for so long, such as 90d; without it, until it is revoked.")
@as_json
def create(
    name: str, roles: tuple[str, ...], queues: tuple[str, ...], expires_in: timedelta | None, as_json: bool
) -> int:
    """Create a token and print it. It is stored as a hash only: what is printed now cannot be shown again.

    Example:
      daybreak tokens create ci --role submit --queue builds --expires-in 90d

    """

    async def apply(client: Client) -> int:
        token, text = await create_token(
            client.store,
            name,
            roles,
            now=datetime.now(UTC),
            by=client.by,
            queues=queues or None,
            expires_in=expires_in,
        )
        if as_json:
            say_json({**_view(token), "token": text})
        else:
            say(text)
            revoke_it = session().command("tokens", "revoke", name)
            note(f"keep it now: it cannot be shown again. Take it back with: {revoke_it}")
        return 0

    return session().run(apply, create=True)


@click.command("list", short_help="List tokens, without their secrets.")
@as_json
def list_(as_json: bool) -> int:
    """List tokens: who has which role, for which queues, until when.

    Example:
      daybreak tokens list

    """

    async def apply(client: Client) -> int:
        found = await list_tokens(client.store)
        if as_json:
            say_json({"tokens": [_view(token) for token in found]})
            return 0
        if not found:
            say(f"No tokens. Make one with: {session().command('tokens', 'create', 'NAME', '--role', 'read')}")
            return 0
        say_table(
            [
                Column("NAME"), Column("STATE"), Column("ROLES"), Column("QUEUES", gives=True), Column("CREATED"),
                Column("EXPIRES"), Column("BY", drop=2), Column("ID", drop=1),
            ],
            [_row(token, datetime.now(UTC)) for token in found],
        )  # fmt: skip
        say()
        say(f"{counted(len(found), 'token')}.")
        return 0

    return session().run(apply)


@click.command(short_help="Revoke a token: servers refuse it within two seconds.")
@click.argument("which", metavar="NAME|ID", type=NAME)
@as_json
def revoke(which: str, as_json: bool) -> int:
    """Revoke a token, by its name or its id. Every server refuses it within two seconds.

    Example:
      daybreak tokens revoke ann

    """

    async def apply(client: Client) -> int:
        token = await revoke_token(client.store, which, now=datetime.now(UTC), by=client.by)
        if as_json:
            say_json(_view(token))
        else:
            say(f"Token {safe(token.name)} ({token.id}) is revoked.")
        return 0

    return session().run(apply)


for made in (create, list_, revoke):
    command.add_command(made)
    store_options(made)
store_options(command)


def _row(token: Token, now: datetime) -> list[str]:
    queues = "all" if token.queues is None else safe(", ".join(token.queues))
    expires = "never" if token.expires_at is None else ago(token.expires_at, now)
    return [
        safe(token.name), token.state(now), ", ".join(token.roles), queues, ago(token.created_at, now), expires,
        safe(token.created_by), token.id,
    ]  # fmt: skip


def _view(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "state": token.state(datetime.now(UTC)),
        "roles": list(token.roles),
        "queues": None if token.queues is None else list(token.queues),
        "created_at": instant(token.created_at),
        "created_by": token.created_by,
        "expires_at": instant(token.expires_at),
        "revoked_at": instant(token.revoked_at),
        "revoked_by": token.revoked_by,
    }

"""`daybreak serve`: the REST API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from daybreak.api.app import Daybreak
from daybreak.cli import logs
from daybreak.cli.options import NAME, Place, Whole
from daybreak.cli.output import tell
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, is_there, session
from daybreak.core.text import safe

HOST = "127.0.0.1"
PORT = 8765
_file = Place(exists=True, dir_okay=False, path_type=Path)


@click.command("serve", short_help="Serve the REST API and the dashboard until they are stopped.")
@click.argument("target", type=NAME, required=False)
@click.option("--host", type=NAME, default=HOST, show_default=True, help="The address to listen on.")
@click.option("--port", type=Whole(0), default=PORT, show_default=True, help="The port; 0 takes a free one.")
@click.option("--tls-cert", type=_file, help="The certificate, a PEM file, to serve https.")
@click.option("--tls-key", type=_file, help="The key of the certificate, a PEM file.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front of the server encrypts, and is reached by others.")
@click.option("--allow-host", type=NAME, multiple=True, help="A host name by which it is reached; may be repeated.")
@click.option(
    "--metric-names", type=NAME, multiple=True, metavar="SYSTEMS",
    help="Also emit metrics under the names of pywats, integr8scode or atlantis; separate several by commas.",
)  # fmt: skip
def command(target: str | None, **how: Any) -> int:
    """Serve the REST API and the dashboard until stopped. TARGET is where the tasks are, as for `daybreak worker`; with
    it, arguments of submitted jobs are checked, and without it, jobs of any task are accepted.

    On this machine alone (the default), reading needs no token, and the link that is printed signs a person in, once.
    For any other address there must be a token, and --tls-cert or --behind-proxy.

    Examples:
      daybreak serve tasks.py
      daybreak serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
      daybreak serve --behind-proxy --allow-host jobs.example.com

    """
    here = session()
    if target is not None:
        here.app = target
    with here.command_line():
        app = app_of(here)
        is_there(app.settings)  # only one at which nobody may look is refused
        logs.to_stderr()
        return run(app, how)


store_options(command)


def app_of(here: Session) -> Daybreak:
    """The app of the settings; without one, an app that knows no task and accepts all of them."""
    if here.target is None:
        return Daybreak()
    loaded = here.loaded
    assert isinstance(loaded, Daybreak)
    return loaded


def run(app: Daybreak, how: dict[str, Any]) -> int:
    from daybreak.server.process import Bind, serve  # noqa: PLC0415 - only a server needs them
    from daybreak.server.settings import ServerSettings  # noqa: PLC0415

    bind = Bind(
        host=how["host"],
        port=how["port"],
        tls_cert=how["tls_cert"],
        tls_key=how["tls_key"],
        behind_proxy=how["behind_proxy"],
        allow_hosts=how["allow_host"],
    )

    def on_start(address: str, link: str | None) -> None:
        tell(f"Server on {safe(app.settings.store)} at {address}. Ctrl-C stops it.")
        if link is not None:
            tell(f"Sign in, once, within an hour: {link}")

    names = tuple(name.strip() for text in how.get("metric_names", ()) for name in text.split(","))
    return serve(app, bind, ServerSettings(metric_names=names), on_start)

"""`daybreak serve` as a process: which binds are allowed, and uvicorn."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.api.alerts import AlertWatch
from daybreak.api.alerts.settings import alert_settings
from daybreak.api.app import Daybreak
from daybreak.api.metrics.instruments import StoreMetrics
from daybreak.core.errors import BadInput, StoreUnsuitable
from daybreak.core.units import moment
from daybreak.server import asgi, missing_extra
from daybreak.server.access.sessions import create_code
from daybreak.server.access.tokens import has_usable_token
from daybreak.server.certificate import check_certificate
from daybreak.server.settings import ServerSettings
from daybreak.services import runner as services
from daybreak.services.saga_driver import SagaDriver
from daybreak.services.schedule_ticker import ScheduleTicker
from daybreak.telemetry import sdk

if TYPE_CHECKING:
    from daybreak.server.routing import Routes
    from daybreak.store.protocol import Store
    from daybreak.system.ports import World

HOST: Final = "127.0.0.1"
PORT: Final = 8765
STOP_WITHIN: Final = 10  # seconds for running requests when the server stops
_log = logging.getLogger("daybreak.server")


class Bind(Struct, frozen=True, kw_only=True):
    """Where a server listens. `behind_proxy` says that a proxy in front of it encrypts and is reached by others."""

    host: str = HOST
    port: int = PORT
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def is_private(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return is_loopback(self.host) and not self.behind_proxy


def is_loopback(host: str) -> bool:
    """Whether every address of this name is one of this machine that no other machine can reach."""
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    addresses = {str(address[0]).partition("%")[0] for _, _, _, _, address in found}
    return bool(host) and all(ipaddress.ip_address(address).is_loopback for address in addresses)


def check_bind(bind: Bind, *, has_token: bool) -> None:
    """Raise BadInput if others could reach this server without a token, or read what it sends."""
    if (bind.tls_cert is None) != (bind.tls_key is None):
        raise BadInput("--tls-cert and --tls-key belong together: give both, or none")
    if bind.is_private:
        return
    where = "a server behind a proxy" if bind.behind_proxy else f"a server on {bind.host}"
    if not has_token:
        raise BadInput(
            f"{where} can be reached from other machines, and there is no token yet, so nobody could sign in safely: "
            "create one first with: daybreak tokens create NAME --role admin"
        )
    if not bind.has_tls and not bind.behind_proxy:
        raise BadInput(
            f"{where} would send tokens over the network in plain text: give --tls-cert and --tls-key, or "
            "--behind-proxy if a proxy in front of it encrypts"
        )


def settings_of(bind: Bind, settings: ServerSettings) -> ServerSettings:
    """The settings that follow from where the server listens."""
    names = {"localhost", bind.host.lower(), *(name.lower() for name in bind.allow_hosts)}
    if not bind.is_private:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return replace(
        settings,
        hosts=frozenset(names),
        anonymous_reads=bind.is_private,
        secure_cookies=bind.has_tls or bind.behind_proxy,
    )


def serve(
    app: Daybreak,
    bind: Bind,
    settings: ServerSettings,
    on_start: Callable[[str, str | None], None],
    routes: Sequence[Routes] = (),
) -> int:
    """Serve until SIGTERM or Ctrl-C. `on_start` gets the address, and the sign-in link if there is one. `routes` are
    served beside Daybreak's own."""
    try:
        return asyncio.run(_serve(app, bind, settings, on_start, routes))
    except KeyboardInterrupt:
        return 0


async def _serve(
    app: Daybreak,
    bind: Bind,
    settings: ServerSettings,
    on_start: Callable[[str, str | None], None],
    routes: Sequence[Routes],
) -> int:
    try:
        import uvicorn  # noqa: PLC0415 - only a server needs it
    except ImportError as error:
        raise missing_extra(error) from error
    client = await app.client()
    try:
        if not client.store.traits.persistent:
            raise StoreUnsuitable("a store inside one process cannot be served: name another store with --url")
        now = moment(client.wall())
        check_bind(bind, has_token=await has_usable_token(client.store, now))
        if bind.tls_cert is not None and bind.tls_key is not None:
            check_certificate(bind.tls_cert, bind.tls_key)
        settings = settings_of(bind, settings)
        sockets = [_listen(bind)]
        address = _address(bind, sockets[0])
        link = None
        if bind.is_private:
            code = await create_code(client.store, by=app.by, now=now, valid_for=settings.sign_in_for)
            link = f"{address}/sign-in?code={code}"
        application = asgi(app, settings, routes)

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                application.stop()
                await super().shutdown(sockets)
                await application.close()

        server = Server(
            uvicorn.Config(
                application,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,  # it would write sign-in codes into the log
                server_header=False,
                proxy_headers=False,
                ssl_certfile=None if bind.tls_cert is None else str(bind.tls_cert),
                ssl_keyfile=None if bind.tls_key is None else str(bind.tls_key),
                timeout_graceful_shutdown=STOP_WITHIN,
            )
        )
        on_start(address, link)
        sdk.set_up_traces()
        sdk.set_up_metrics()
        exporting = asyncio.create_task(StoreMetrics(client).run())
        alerts = alert_settings(app.settings.alerts)
        ticking = asyncio.create_task(services.run(_services(client.store, app.world), app.world))
        background = [exporting, ticking]
        if alerts.enabled:
            background.append(asyncio.create_task(AlertWatch(client, alerts, app.world).run()))
        await server.serve(sockets=sockets)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
    finally:
        await app.aclose()
    return 0


def _services(store: Store, world: World) -> list[services.Service]:
    """The services that a server runs too, so that schedules and sagas go on while no worker runs."""
    return [ScheduleTicker(store, world), SagaDriver(store, world, name="server")]


def _listen(bind: Bind) -> socket.socket:
    try:
        family = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((bind.host, bind.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"cannot listen on {bind.host} port {bind.port}: {reason}; choose another --port") from error


def _address(bind: Bind, listener: socket.socket) -> str:
    host = f"[{bind.host}]" if ":" in bind.host else bind.host
    return f"{'https' if bind.has_tls else 'http'}://{host}:{listener.getsockname()[1]}"

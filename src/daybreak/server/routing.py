"""What a route declares, and the steps that every request takes.

A module in `routes/` makes one `Routes` and puts handlers into it:

    routes = Routes("queues")

    @routes.get("/queues/{name}", may("read"), answer=QueueBody, summary="One queue")
    async def show_queue(call: Call[None, None]) -> Any:
        call.check_queue(name := call.path["name"])
        return queue_view(await queue_info(await call.client(), name))

Each request is identified, counted against the caller's rate, judged by the route's policy, and parsed; then the
handler runs. The OpenAPI document and the reference page are made from the same declarations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from daybreak.client.client import Client
from daybreak.server.access.callers import Caller, Role
from daybreak.server.access.identify import needs_token
from daybreak.server.edge import INNER_SLASH
from daybreak.server.problems import (
    BAD_JSON,
    FORBIDDEN,
    INVALID,
    MEDIA_TYPE_NOT_SUPPORTED,
    RATE_LIMITED,
    Problem,
    problem_of,
)
from daybreak.server.replies import Reply, encoded

if TYPE_CHECKING:
    from daybreak.server.application import Server
    from daybreak.server.idempotency import HeldKey, KeptAnswer

API: Final = "/api/v1"

Q = TypeVar("Q")
B = TypeVar("B")
H = TypeVar("H", bound="Callable[[Call[Any, Any]], Awaitable[Any]]")


@dataclass(frozen=True)
class Policy:
    """Who may call a route. A `role` of None means everybody. A route that `needs_all_queues` refuses tokens that are
    limited to some queues; any other route must call `Call.check_queue` before it shows or changes something."""

    role: Role | None
    needs_all_queues: bool = False

    def check(self, caller: Caller) -> None:
        if self.role is None:
            return
        if not caller.may(self.role):
            if caller.kind == "anonymous":
                raise needs_token(self.role)
            raise Problem(
                FORBIDDEN,
                f"this needs the role {self.role!r}; {caller.by!r} has {', '.join(sorted(caller.roles))}",
                hint=f"create a token with: daybreak tokens create NAME --role {self.role}",
            )
        if self.needs_all_queues and caller.queues is not None:
            raise Problem(FORBIDDEN, f"{caller.by!r} is limited to some queues, but this request concerns all queues")


def may(role: Role, *, needs_all_queues: bool = False) -> Policy:
    """A policy for callers with this role; `admin` has every role, and `submit` may read."""
    return Policy(role, needs_all_queues)


PUBLIC: Final = Policy(None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Route:
    """One method of one path. `query`, `body` and `answer` are msgspec structs: the schema, and what is checked. A
    route with a `form` takes what a plain HTML form sends.

    A route that `changes` something takes an Idempotency-Key and is audited, unless it does so by itself
    (`keeps_own_answers`). One that `changes_job` changes the job `{id}` of its path. `others` are further answers, by
    their status; `refuses` are statuses of problems that only this route has."""

    method: str
    path: str
    policy: Policy
    run: Callable[[Call[Any, Any]], Awaitable[Any]]
    name: str
    tag: str
    summary: str
    about: str = ""
    query: type[Struct] | None = None
    body: Any = None
    body_is_optional: bool = False
    form: type[Struct] | None = None
    answer: Any = None
    answer_type: str = "application/json"
    status: int = 200
    others: Mapping[int, str] = field(default_factory=dict)
    refuses: tuple[int, ...] = ()
    keeps_own_answers: bool = False
    changes_job: bool = False

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key may be sent: with every change but those of the sign-in, which have no token."""
        return self.changes and self.tag != "sign-in"

    @property
    def is_page(self) -> bool:
        """Whether it is a page of the dashboard, for people."""
        return self.tag == "dashboard" and self.answer_type == "text/html"

    @property
    def path_names(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


@dataclass
class Call(Generic[Q, B]):
    """One request on its way through a handler. `raw` is the body as it was sent. A request that `takes_over` goes on
    where a server was killed; `held_key` is the lease of its idempotency key."""

    server: Server
    route: Route
    request: Request[Any, Any, Any]
    caller: Caller
    query: Q
    body: B
    path: dict[str, str]
    raw: bytes = b""
    takes_over: KeptAnswer | None = None
    held_key: HeldKey | None = None

    async def client(self) -> Client:
        """A client that writes the caller's name into every change."""
        return await self.server.client(self.caller.by)

    def check_queue(self, queue: str) -> None:
        """Raise a problem if the caller is limited to other queues."""
        if not self.caller.may_use(queue):
            named = ", ".join(sorted(self.caller.queues or ()))
            raise Problem(FORBIDDEN, f"{self.caller.by!r} may use only these queues: {named}; not {queue!r}")


def root_path(call: Call[Any, Any]) -> str:
    """The path under which the server is mounted in another application; empty if it is not."""
    return str(call.request.scope.get("root_path", "")).rstrip("/")


class Routes:
    """The routes of one noun."""

    def __init__(self, tag: str, prefix: str = API) -> None:
        self.tag = tag
        self.prefix = prefix
        self.all: list[Route] = []

    def add(self, method: str, path: str, policy: Policy, **declared: Any) -> Callable[[H], H]:
        """Declare a route: the decorated function handles it, and is its name. Its docstring is the description."""

        def register(run: H) -> H:
            about = " ".join((run.__doc__ or "").split())
            named = {"name": getattr(run, "__name__", ""), "about": about, **declared}
            route = Route(method=method, path=self.prefix + path, policy=policy, run=run, tag=self.tag, **named)
            self.all.append(route)
            return run

        return register

    def get(self, path: str, policy: Policy, **declared: Any) -> Callable[[H], H]:
        return self.add("GET", path, policy, **declared)

    def post(self, path: str, policy: Policy, **declared: Any) -> Callable[[H], H]:
        return self.add("POST", path, policy, **declared)

    def put(self, path: str, policy: Policy, **declared: Any) -> Callable[[H], H]:
        return self.add("PUT", path, policy, **declared)

    def patch(self, path: str, policy: Policy, **declared: Any) -> Callable[[H], H]:
        return self.add("PATCH", path, policy, **declared)

    def delete(self, path: str, policy: Policy, **declared: Any) -> Callable[[H], H]:
        return self.add("DELETE", path, policy, **declared)


# -- one request -------------------------------------------------------------------------------------------------------


def handler_of(route: Route, server: Server) -> HTTPRouteHandler:
    """The route as Litestar takes it. It parses nothing itself: the structs of the route do."""
    path = "/".join(f"{{{part[1:-1]}:str}}" if part.startswith("{") else part for part in route.path.split("/"))

    async def handle(request: Request[Any, Any, Any]) -> Response[Any]:
        return await respond(route, server, request)

    method: Any = route.method
    # The response carries its own status. Litestar would refuse a 204 here, because this function returns something.
    return HTTPRouteHandler(path, http_method=[method], opt={"route": route}, name=route.name, status_code=200)(handle)


async def respond(route: Route, server: Server, request: Request[Any, Any, Any]) -> Response[Any]:
    """The answer to one request: that of the handler, or a problem document."""
    try:
        return await _handled(route, server, request)
    except Exception as error:  # noqa: BLE001 - the one place where an error becomes an answer
        problem = problem_of(error)
        if route.is_page:
            from daybreak.server.dashboard.problems import problem_page  # noqa: PLC0415 - pages import this module

            return problem_page(route, server, request, problem)
        return problem.response()


async def _handled(route: Route, server: Server, request: Request[Any, Any, Any]) -> Response[Any]:
    # Public routes check no credentials, so that the health checks also answer while the store is out of reach.
    caller = server.nobody if route.policy.role is None else await server.identification.caller(request)
    _check_rate(server, request, caller)
    route.policy.check(caller)
    call = await _parsed(route, server, request, caller)
    if route.changes and not route.keeps_own_answers:
        return response_of(route, await server.writes.run(call))
    return response_of(route, await route.run(call))


def _check_rate(server: Server, request: Request[Any, Any, Any], caller: Caller) -> None:
    who = f"{caller.kind} {caller.by}"
    if caller.kind == "anonymous":
        who = f"{who} {request.client.host if request.client else ''}"
    wait = server.rate_limit.wait_for(who, server.app.world.steady())
    if wait is not None:
        raise Problem(RATE_LIMITED, f"{caller.by!r} sends too many requests", retry_after=wait)


async def _parsed(route: Route, server: Server, request: Request[Any, Any, Any], caller: Caller) -> Call[Any, Any]:
    path = {name: str(value).replace(INNER_SLASH, "/") for name, value in request.path_params.items()}
    query = query_of(route.query, request)
    raw = await request.body() if route.changes else b""
    return Call(
        server=server,
        route=route,
        request=request,
        caller=caller,
        query=query,
        body=_body(route, request, raw),
        path=path,
        raw=raw,
    )


def query_of(kind: type[Struct] | None, request: Request[Any, Any, Any]) -> Any:
    """The query string as a struct. A parameter that is not known, or that is given twice, is an error."""
    sent: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        sent.setdefault(name, []).append(value)
    known = {} if kind is None else {info.encode_name: info for info in msgspec.structs.fields(kind)}
    if unknown := [name for name in sent if name not in known]:
        hint = f"the parameters are {', '.join(known)}" if known else "this route takes none"
        raise Problem(INVALID, f"no query parameter is named {unknown[0][:100]!r}: {hint}")
    if kind is None:
        return None
    values: dict[str, Any] = {}
    for name, found in sent.items():
        if _takes_several(known[name]):
            values[name] = [word for value in found for word in value.split(",")]
        elif len(found) > 1:
            raise Problem(INVALID, f"query parameter {name!r} is given {len(found)} times")
        else:
            values[name] = found[0]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(INVALID, f"the query is not valid: {error}") from None


def _takes_several(info: msgspec.structs.FieldInfo) -> bool:
    return bool(info.default == ())


def _body(route: Route, request: Request[Any, Any, Any], raw: bytes) -> Any:
    if route.form is not None:
        return _form(route.form, request, raw)
    if route.body is None:
        if raw:
            raise Problem(INVALID, f"{route.method} {route.path} takes no body")
        return None
    if not raw and route.body_is_optional:
        return route.body()
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "application/json" or not _is_utf8(parameters):
        raise Problem(
            MEDIA_TYPE_NOT_SUPPORTED,
            f"the Content-Type of the body is {media_type.strip()[:100] or 'missing'!r}",
            hint="send JSON in UTF-8, with the header: Content-Type: application/json",
        )
    try:
        return msgspec.json.decode(raw, type=route.body)
    except UnicodeDecodeError as error:
        raise Problem(BAD_JSON, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def _form(kind: type[Struct], request: Request[Any, Any, Any], raw: bytes) -> Any:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise Problem(MEDIA_TYPE_NOT_SUPPORTED, f"a form is expected, not {media_type[:100] or 'nothing'!r}")
    fields = dict(parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20))
    return msgspec.convert(fields, kind, strict=False)


def _is_utf8(parameters: str) -> bool:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            return False
    return True


def response_of(route: Route, answer: Any) -> Response[Any]:
    """What a handler returned, as a response."""
    if isinstance(answer, Response):
        return answer
    reply = answer if isinstance(answer, Reply) else Reply(answer)
    status = reply.status or route.status
    body = b"" if reply.data is None else encoded(reply.data)
    return Response(body, status_code=status, media_type="application/json", headers=dict(reply.headers))

"""An error as a page for people, where the REST API answers with a problem document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Request, Response

from daybreak.server.dashboard.renderer import render
from daybreak.server.problems import Problem
from daybreak.server.routing import Call, Route

if TYPE_CHECKING:
    from daybreak.server.application import Server


def problem_page(route: Route, server: Server, request: Request[Any, Any, Any], problem: Problem) -> Response[Any]:
    """The page for this problem, with the same status. It knows nothing about the caller."""
    call: Call[None, None] = Call(
        server=server, route=route, request=request, caller=server.nobody, query=None, body=None, path={}
    )
    page = render(
        call,
        "problem.html",
        page="",
        status=problem.kind.status,
        code=problem.kind.status,
        title=problem.kind.title,
        detail=problem.detail,
        hint=problem.hint,
    )
    page.headers.update(problem.headers)
    return page

"""Sign-in of a person: the one-time link of `daybreak serve`, the session that it opens, and signing out."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from litestar import Response
from litestar.datastructures import Cookie

from daybreak.core.units import moment
from daybreak.server.access.callers import ROLES
from daybreak.server.access.sessions import is_code, sign_in, sign_out
from daybreak.server.bodies.sign_in import SessionBody, SignInForm, SignInQuery
from daybreak.server.problems import FORBIDDEN, Problem
from daybreak.server.routing import API, PUBLIC, Call, Routes, may, root_path

routes = Routes("sign-in", prefix="")

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Daybreak: sign in</title><link rel="stylesheet" href="static/style.css"></head>
<body><main><h1>Daybreak</h1>
<form method="post" action="sign-in"><input type="hidden" name="code" value="{code}">
<button class="strong" autofocus>Sign in as {by}</button></form></main></body></html>
"""
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'",
    # Without a referrer, browsers send `Origin: null` with a form, which the check of the origin refuses.
    "referrer-policy": "same-origin",
}


@routes.get(
    "/sign-in", PUBLIC, query=SignInQuery, answer=str, answer_type="text/html", refuses=(403,),
    summary="The page behind the sign-in link",
)  # fmt: skip
async def show_sign_in(call: Call[SignInQuery, None]) -> Any:
    """A form that posts the code of the link. Opening the link changes nothing, so a program that previews links cannot
    use up the code."""
    client = await call.client()
    if not await is_code(client.store, call.query.code, now=moment(client.wall())):
        raise _refused()
    page = _PAGE.format(code=escape(call.query.code, quote=True), by=escape(call.server.app.by))
    return Response(page, media_type="text/html", headers=_HEADERS)


@routes.post(
    "/sign-in", PUBLIC, form=SignInForm, answer=None, status=303, refuses=(403, 415), keeps_own_answers=True,
    summary="Exchange the code of a sign-in link for a cookie",
)  # fmt: skip
async def post_sign_in(call: Call[None, SignInForm]) -> Any:
    """Each code works once. The cookie is HttpOnly and SameSite=Strict, and ends after 12 hours."""
    client, settings = await call.client(), call.server.settings
    signed_in = await sign_in(client.store, call.body.code, now=moment(client.wall()), valid_for=settings.session_for)
    if signed_in is None:
        raise _refused()
    secret, _ = signed_in
    return Response(
        b"",
        status_code=303,
        headers={"location": f"{root_path(call)}/"},
        cookies=[_cookie(call, secret, int(settings.session_for.total_seconds()))],
    )


@routes.get(f"{API}/session", may("read"), answer=SessionBody, summary="Who I am, and what I may do")
async def show_session(call: Call[None, None]) -> Any:
    """A page reads the CSRF token here, which it repeats in the header X-CSRF-Token of every change."""
    caller = call.caller
    return SessionBody(
        by=caller.by,
        kind=caller.kind,
        roles=[role for role in ROLES if caller.may(role)],
        queues=None if caller.queues is None else sorted(caller.queues),
        csrf=caller.csrf or None,
    )


@routes.delete(
    f"{API}/session", may("read"), answer=None, status=204, keeps_own_answers=True, summary="Sign out"
)  # fmt: skip
async def delete_session(call: Call[None, None]) -> Any:
    """The session ends at once, on every server. Tokens are not affected."""
    secret = call.request.cookies.get(call.server.identification.cookie)
    if secret:
        await sign_out((await call.client()).store, secret)
    return Response(b"", status_code=204, cookies=[_cookie(call, "", 0)])


def _cookie(call: Call[Any, Any], value: str, max_age: int) -> Cookie:
    return Cookie(
        key=call.server.identification.cookie,
        value=value,
        max_age=max_age,
        path="/",
        secure=call.server.settings.secure_cookies,
        httponly=True,
        samesite="strict",
    )


def _refused() -> Problem:
    return Problem(
        FORBIDDEN,
        "this sign-in link was already used, or it has expired",
        hint="restart the server: it prints a new link",
    )

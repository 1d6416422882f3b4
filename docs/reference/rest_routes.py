# ruff: noqa: INP001
"""Writes the generated part of rest.md from the routes: `python docs/reference/rest_routes.py`. A test compares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from daybreak.server.application import all_routes
from daybreak.server.bodies.examples import EXAMPLES
from daybreak.server.openapi import statuses_of
from daybreak.server.problems import KINDS, URN
from daybreak.server.routing import Route

PAGE = Path(__file__).parent / "rest.md"
MARK = "<!-- Below this line: written by docs/reference/rest_routes.py -->\n"

COMMON = (405, 421, 429, 500, 503)  # of every route: said once, above the mark


def written() -> str:
    """The page as it should be: what stands above the mark stays."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    routes = [route for route in all_routes() if route.tag != "dashboard"]
    yield "## Overview"
    yield ""
    yield "| route | role | what it does |"
    yield "|---|---|---|"
    for route in routes:
        yield f"| [`{route.method} {route.path}`](#{_anchor(route)}) | {_role(route)} | {route.summary} |"
    for tag in dict.fromkeys(route.tag for route in routes):
        yield ""
        yield f"## {tag.capitalize()}"
        for route in routes:
            if route.tag == tag:
                yield from _route(route)
    yield ""
    yield "## Problems"
    yield ""
    yield f"The `type` of each begins with `{URN}`."
    yield ""
    yield "| status | type | title |"
    yield "|---|---|---|"
    for kind in KINDS:
        yield f"| {kind.status} | `{kind.name}` | {kind.title} |"


def _route(route: Route) -> Iterator[str]:
    yield ""
    yield f"### `{route.method} {route.path}`"
    yield ""
    yield f"{route.summary}. {route.about}".rstrip()
    yield ""
    yield f"- Role: {_role(route)}" + (", and a token for all queues" if route.policy.needs_all_queues else "")
    if route.query is not None:
        yield f"- Query: {_fields(route.query)}"
    for what, kind in (("Body", route.body), ("Form", route.form)):
        if kind is not None:
            yield f"- {what}: {_fields(kind)}" + (", or no body" if route.body_is_optional else "")
    answers = {route.status: "", **route.others}
    yield "- Answers: " + "; ".join(f"{status}{f' ({told})' if told else ''}" for status, told in answers.items())
    yield "- Problems: " + ", ".join(str(status) for status in statuses_of(route) if status not in {*answers, *COMMON})
    if route.body in EXAMPLES:
        yield ""
        yield "```json"
        yield json.dumps(EXAMPLES[route.body])
        yield "```"


def _role(route: Route) -> str:
    return "everybody" if route.policy.role is None else f"`{route.policy.role}`"


def _fields(kind: Any) -> str:
    """The fields by name; those that must be there first, in bold."""
    found = msgspec.structs.fields(kind)
    needed = [f"**`{field.encode_name}`**" for field in found if field.required]
    others = [f"`{field.encode_name}`" for field in found if not field.required]
    return ", ".join(needed + others)


def _anchor(route: Route) -> str:
    """As GitHub makes it: lower case, spaces to dashes, everything but letters, digits, dashes and underscores gone."""
    text = f"{route.method} {route.path}".lower().replace(" ", "-")
    return "".join(char for char in text if char.isalnum() or char in "-_")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")

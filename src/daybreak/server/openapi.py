"""The OpenAPI 3.1 document, built from the routes and their structs.

msgspec writes the JSON schemas, so what is documented is what is checked. There is no page that loads scripts from
another host: the document is for programs, and docs/reference/rest.md for people."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from daybreak.server import problems
from daybreak.server.bodies.base import ProblemBody
from daybreak.server.bodies.examples import EXAMPLES
from daybreak.server.routing import Route

REF: Final = "#/components/schemas/{name}"
ABOUT: Final = (
    "Submit, watch and change jobs. Every change takes an `Idempotency-Key`. Errors are RFC 9457 problem documents. "
    "Send a token as `Authorization: Bearer TOKEN`."
)


def document(routes: Sequence[Route]) -> bytes:
    """The document as JSON. It depends on the routes alone, and is made once. Pages for people are not part of it."""
    return _document(tuple(route for route in routes if route.tag != "dashboard"))


@functools.lru_cache(maxsize=8)
def _document(routes: tuple[Route, ...]) -> bytes:
    kinds = _kinds(routes)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    by_kind = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    for kind, example in EXAMPLES.items():
        if kind.__name__ in components:
            components[kind.__name__]["examples"] = [example]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind, components)
    # What only describes parameters is written with them.
    for route in routes:
        if route.query is not None:
            components.pop(route.query.__name__, None)
    return msgspec.json.encode({
        "openapi": "3.1.0",
        "info": {"title": "Daybreak", "version": version("daybreak"), "description": ABOUT},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })  # fmt: skip


def _kinds(routes: Sequence[Route]) -> list[Any]:
    """Every type that stands in a schema, each once."""
    found: list[Any] = [ProblemBody]
    for route in routes:
        found += [kind for kind in (route.query, route.body, route.form, route.answer) if kind is not None]
    return list({repr(kind): kind for kind in found}.values())


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "x-daybreak-role": route.policy.role or "public",
    }
    if route.about:
        operation["description"] = route.about
    if route.policy.role is None:
        operation["security"] = []
    parameters = [*_path_parameters(route), *_query_parameters(route, components), *_header_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None or route.form is not None:
        operation["requestBody"] = _request_body(route, schemas)
    operation["responses"] = _responses(route, schemas)
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.path_names
    ]  # fmt: skip


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = components[route.query.__name__]
    found = []
    for name, written in schema["properties"].items():
        described = _without_null(written)
        parameter: dict[str, Any] = {"name": name, "in": "query", "required": name in schema.get("required", ())}
        if "description" in described:
            parameter["description"] = described["description"]
        found.append({**parameter, "schema": described})
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out, not null."""
    schema = {name: value for name, value in schema.items() if not (name == "default" and value in (None, []))}
    if "anyOf" not in schema:
        return schema
    choices = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**choices[0], **rest} if len(choices) == 1 else {"anyOf": choices, **rest}


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    if not route.takes_key:
        return []
    return [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key within 24 hours: the change happens once, and the first answer is repeated.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
        }
    ]


def _request_body(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.form is not None:
        content = {"application/x-www-form-urlencoded": {"schema": schemas[repr(route.form)]}}
    else:
        content = {"application/json": {"schema": schemas[repr(route.body)]}}
    return {"required": not route.body_is_optional, "content": content}


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {str(route.status): {"description": route.summary, **_content(route, schemas)}}
    for status, description in route.others.items():
        found[str(status)] = {"description": description, **_content(route, schemas)}
    for status in statuses_of(route):
        if str(status) not in found:
            found[str(status)] = {
                "description": "; ".join(kind.title for kind in problems.KINDS if kind.status == status),
                "content": {problems.MEDIA_TYPE: {"schema": schemas[repr(ProblemBody)]}},
            }
    return dict(sorted(found.items()))


def _content(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.answer is None:
        return {}
    return {"content": {route.answer_type: {"schema": schemas[repr(route.answer)]}}}


def statuses_of(route: Route) -> list[int]:
    """The statuses of the problems that a route may answer with."""
    found = {405, 421, 422, 429, 500, 503, *route.refuses}
    if route.policy.role is not None:
        found |= {401, 403}
    if route.path_names:
        found.add(404)
    if route.changes:
        found |= {400, 403, 413}
    if route.body is not None or route.form is not None:
        found.add(415)
    if route.takes_key:
        found.add(409)
    return sorted(found)

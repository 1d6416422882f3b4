"""The reference page and the routes say the same."""

from __future__ import annotations

import runpy
from pathlib import Path

from daybreak.server.application import all_routes

DOCS = Path(__file__).parents[2] / "docs"
WRITER = DOCS / "reference" / "rest_routes.py"


def test_the_reference_page_is_as_the_routes_are():
    page = (DOCS / "reference" / "rest.md").read_text(encoding="utf-8")
    written = runpy.run_path(str(WRITER))["written"]()
    assert page == written, "write it anew with: python docs/reference/rest_routes.py"


def test_every_route_is_described_in_words():
    for route in all_routes():
        assert route.summary, route.path
        assert route.about or route.policy.role is None, f"{route.method} {route.path} has no docstring"

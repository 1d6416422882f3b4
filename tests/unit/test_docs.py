"""What the documents show runs and prints what they say; their links lead somewhere; their tables are complete."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import itertools
import re
from pathlib import Path

import pytest

from daybreak import errors, events
from daybreak.client import BULK, Client
from daybreak.events import Event
from daybreak.model import Options, QueueSettings, Reason, Retry, State
from daybreak.policy.admit import ARGS_LIMIT, NAME_LIMIT, TAGS_LIMIT
from daybreak.policy.retry import PRESETS
from daybreak.store import POSITION_EXACT_TO, PROMOTED_PER_CLAIM, Claim, Purge, Store
from daybreak.units import Priority
from daybreak.values import DEPTH_LIMIT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")


def examples(page: Path) -> list[tuple[int, str, str | None]]:
    """The runnable blocks of a page: line, code, and the text that must be printed, where a `text` block follows."""
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    found = []
    for fence, after in itertools.zip_longest(fences, fences[1:]):
        if fence["info"] == "python runnable":
            told = after is not None and after["info"] == "text" and not text[fence.end() : after.start()].strip()
            found.append((text.count("\n", 0, fence.start()) + 1, fence["body"], after["body"] if told else None))
    return found


WITH_EXAMPLES = [page for page in PAGES if examples(page)]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
async def test_what_a_page_shows_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    async with asyncio.timeout(60):
        for line, code, told in examples(page):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                await run(code, f"{page.relative_to(ROOT)}:{line}", names)
            if told is not None:
                assert printed.getvalue() == told, f"{page.relative_to(ROOT)}:{line} prints something else"


async def run(code: str, where: str, names: dict[str, object]) -> None:
    """As `python -m asyncio` would: `await` is allowed at the top."""
    compiled = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.iscoroutine(running := eval(compiled, names)):  # noqa: S307 - our own pages
        await running


def test_the_tutorial_and_the_how_to_pages_have_examples():
    shown = {page.parent.name for page in WITH_EXAMPLES}
    assert {"tutorial", "how-to"} <= shown
    assert len(WITH_EXAMPLES) >= 4


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.finditer(text):
        path, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", path):
            continue  # the web is not ours to check
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link['target']} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link['target']}: no such heading"


def test_every_page_is_reached_from_the_index():
    reached, open_ = set(), [DOCS / "index.md"]
    while open_:
        page = open_.pop()
        reached.add(page)
        targets = (link["target"].partition("#")[0] for link in LINK.finditer(page.read_text(encoding="utf-8")))
        found = {(page.parent / path).resolve() for path in targets if path.endswith(".md")}
        open_ += [target for target in found - reached if target.exists()]
    written = {page for page in DOCS.rglob("*.md") if "decisions" not in page.parts}
    assert not written - reached


def rows(page: str) -> set[str]:
    """The words in code marks in the first cell of every table row."""
    text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    return {
        word
        for line in text.splitlines()
        if line.startswith("| `")
        for word in re.findall(r"`(\w+)`", line.split("|")[1])
    }


ERRORS = {name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, Exception)}


def public(of: type) -> set[str]:
    return {name for name, member in vars(of).items() if inspect.isfunction(member) and not name.startswith("_")}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("states", {*map(str, State), *map(str, Reason)}),
        ("seam", public(Store)),
        ("events", {*events.KINDS, *Event.__struct_fields__}),
        ("errors", ERRORS - {"DaybreakError"}),
        ("settings", {*Retry.__struct_fields__, *Options.__struct_fields__, *QueueSettings.__struct_fields__}),
        ("settings", {*PRESETS, *Priority.__members__}),
        ("settings", set(inspect.signature(Client.spec).parameters) - {"self", "task", "args"}),
    ],
    ids=["states", "seam", "events", "errors", "settings", "names", "options of submit"],
)  # fmt: skip
def test_the_reference_leaves_nothing_out(page, words):
    assert not words - rows(page)


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("arguments", ARGS_LIMIT // 1024**2),
        ("depth of a value", DEPTH_LIMIT),
        ("names", NAME_LIMIT),
        ("tags, meta entries", TAGS_LIMIT),
        ("jobs in one transaction", BULK),
        ("position", POSITION_EXACT_TO),
        ("due jobs queued by one claim", PROMOTED_PER_CLAIM),
        ("a lease", Claim(worker="w").lease_for.seconds),
        ("the feed of events", Purge().events_for.days),
        ("a key after its job", Purge().keys_for.days),
        ("events in a job's history", events.LONG),
    ],
)
def test_the_limits_are_those_of_the_code(what, limit):
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if line.startswith(f"| {what}")]
    assert re.search(rf"(?<!\d){limit:,}(?!\d)|(?<!\d){limit}(?!\d)", row.split("|")[2]), row


def test_the_tree_of_errors_names_every_error():
    drawn = set(re.findall(r"\w+", errors.__doc__))
    assert drawn >= ERRORS

"""What the documents show runs and prints what they say; their links lead somewhere; their tables are complete."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import io
import itertools
import os
import re
import signal
import socket
import sys
import types
from pathlib import Path
from typing import Literal

import pytest

import daybreak
from daybreak import Context, Daybreak, JobHandle, Task
from daybreak.api.queues import QueueHandle
from daybreak.client.client import BULK
from daybreak.core import errors, events
from daybreak.core.events import Event
from daybreak.core.model import Options, QueueSettings, Reason, Retry, State
from daybreak.core.units import Priority
from daybreak.policy.admit import ARGS_LIMIT, NAME_LIMIT, TAGS_LIMIT
from daybreak.policy.parse_options import SUBMIT_OPTIONS
from daybreak.policy.retry import PRESETS
from daybreak.store.protocol import POSITION_EXACT_TO, PROMOTED_PER_CLAIM, Claim, Purge, Store
from daybreak.tasks.options import JOB_OPTIONS, TASK_OPTIONS, WORKER_OPTIONS
from daybreak.values import DEPTH_LIMIT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/*.md")])

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")


@dataclasses.dataclass
class Example:
    """A block of a page that does something: code to run here, commands for a shell, or a file to write.

    ```python runnable      ```sh runnable      ```sh runnable exit=1      ```python file=tasks.py

    `told` is what it must print, where a `text` block follows at once."""

    line: int
    kind: Literal["python", "sh", "file"]
    body: str
    words: dict[str, str]
    told: str | None


def examples(page: Path) -> list[Example]:
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    found = []
    for fence, after in itertools.zip_longest(fences, fences[1:]):
        language, *rest = fence["info"].split() or [""]
        words = dict(word.partition("=")[::2] for word in rest)
        told = after is not None and after["info"] == "text" and not text[fence.end() : after.start()].strip()
        if words.keys() & {"file", "runnable"}:
            kind = "file" if "file" in words else language
            line = text.count("\n", 0, fence.start()) + 1
            found.append(Example(line, kind, fence["body"], words, after["body"] if told else None))
    return found


WITH_EXAMPLES = [page for page in PAGES if examples(page)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to be in. What its files define is forgotten with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
async def test_what_a_page_shows_runs_and_prints_what_it_says(page, folder, monkeypatch):
    if "python examples/" in page.read_text(encoding="utf-8"):  # as in the folder of a checkout
        (folder / "examples").symlink_to(ROOT / "examples")
    shell = types.ModuleType(f"page_{page.stem}")  # classes of the page have a module, as in a shell of one's own
    monkeypatch.setitem(sys.modules, shell.__name__, shell)
    async with asyncio.timeout(120):
        for example in examples(page):
            printed = await run(example, f"{page.relative_to(ROOT)}:{example.line}", vars(shell))
            if example.told is not None:
                assert is_like(printed, example.told), (
                    f"{page.relative_to(ROOT)}:{example.line} prints something else:\n{printed}"
                )


async def run(example: Example, where: str, names: dict[str, object]) -> str:
    """What it prints."""
    if example.kind == "file":
        Path(example.words["file"]).write_text(example.body, encoding="utf-8")  # noqa: ASYNC240 - a few bytes
        return ""
    if example.kind == "sh":
        return await run_in_shell(example.body, where, int(example.words.get("exit", 0)))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # As `python -m asyncio` would: `await` is allowed at the top.
        compiled = compile(example.body, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if inspect.iscoroutine(running := eval(compiled, names)):  # noqa: S307 - our own pages
            await running
    return printed.getvalue()


async def run_in_shell(commands: str, where: str, code: int) -> str:
    """Return what these lines print. This Daybreak is first on the path, and a shorter lease keeps recovery short.

    A port that a page names is replaced by a free one, because several checkouts may run their tests at once. Processes
    that the lines leave behind are killed."""
    for port in set(re.findall(r"--port (\d+)", commands)):
        commands = commands.replace(port, str(free_port()))
    own = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
    shell = await asyncio.create_subprocess_exec(
        "bash", "-e", "-o", "pipefail", "-c", commands,
        env={
            **own, "PATH": f"{Path(sys.executable).parent}:{own['PATH']}", "COLUMNS": "120", "NO_COLOR": "1",
            "DAYBREAK_WORKER_LEASE": "1s",
        },
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        printed = (await shell.communicate())[0].decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == code, f"{where}: exit code {shell.returncode}\n{printed}"
    return printed


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_like(printed: str, told: str) -> bool:
    """Equal, where `...` stands for anything within a line, and a line of it alone for any number of lines. How wide
    the columns of a table are does not count."""
    lines = [
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in narrow(told).splitlines()
    ]
    return re.fullmatch("".join(lines), narrow(printed)) is not None


def narrow(text: str) -> str:
    return "".join(re.sub(r" +", " ", line).strip() + "\n" for line in text.splitlines())


def test_the_tutorial_and_the_how_to_pages_have_examples():
    shown = {page.parent.name for page in WITH_EXAMPLES}
    assert {"tutorial", "how-to"} <= shown
    bare = {page.name for page in [*DOCS.glob("tutorial/*.md"), *DOCS.glob("how-to/*.md")]} - {
        page.name for page in WITH_EXAMPLES
    }
    assert not bare


@pytest.mark.parametrize(
    ("printed", "told", "fits"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("waited 12 ms\n", "waited ... ms\n", True),
        ("waited 12 s\n", "waited ... ms\n", False),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a\nc\n", "a\n...\nc\n", True),
        ("a\nb\n", "a\n...\nc\n", False),
    ],
)
def test_dots_stand_for_anything(printed, told, fits):
    assert is_like(printed, told) is fits


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


def face(of: type) -> set[str]:
    """What people use of a class, without the async twins, which differ by their first letter alone."""
    names = {name for name in vars(of) if not name.startswith("_")}
    return {name for name in names if not (name[0] == "a" and name[1:] in names)} - {"await_"}


FOR_THE_RUNNER = {"ask_to_stop", "clear", "stopping", "move_file", "output"}  # of Context; tasks do not call them


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("states", {*map(str, State), *map(str, Reason)}),
        ("seam", public(Store)),
        ("events", {*events.KINDS, *Event.__struct_fields__}),
        ("errors", ERRORS - {"DaybreakError"}),
        ("settings", {*Retry.__struct_fields__, *Options.__struct_fields__, *QueueSettings.__struct_fields__}),
        ("settings", {*PRESETS, *Priority.__members__}),
        ("settings", SUBMIT_OPTIONS | {"version"}),
        ("python", set(daybreak.__all__)),
        ("python", {name for of in (Daybreak, Task, JobHandle, QueueHandle) for name in face(of)}),
        ("python", (face(Context) | set(vars(Context()))) - FOR_THE_RUNNER),
        ("python", JOB_OPTIONS | TASK_OPTIONS),
        ("python", WORKER_OPTIONS),
    ],
    ids=[
        "states", "seam", "events", "errors", "settings", "names", "options of submit", "public names", "faces",
        "context", "options of tasks", "worker",
    ],
)  # fmt: skip
def test_the_reference_leaves_nothing_out(page, words):
    assert not {word for word in words if not word.startswith("_")} - rows(page)


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
        ("events in a job's history", events.FOLD_FROM),
    ],
)
def test_the_limits_are_those_of_the_code(what, limit):
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if line.startswith(f"| {what}")]
    assert re.search(rf"(?<!\d){limit:,}(?!\d)|(?<!\d){limit}(?!\d)", row.split("|")[2]), row


def test_the_tree_of_errors_names_every_error():
    drawn = set(re.findall(r"\w+", errors.__doc__))
    assert drawn >= ERRORS

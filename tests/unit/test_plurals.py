"""One job, two jobs: numbers and their nouns agree, in everything that people read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import daybreak
from daybreak import BadInput, Daybreak
from daybreak.core.units import counted

SOURCE = Path(daybreak.__file__).parent
NOUNS = re.compile(
    r"^ (jobs|attempts|tasks|times|items|elements|columns|arguments|workers|slots|events|queues|rows|processes|"
    r"resources|locks|bytes|failures|successes|retries)\b"
)
# The number is a limit, or known to be more than one; or what stands before the noun is no number.
FINE = {
    "cli/arguments.py: ARGS_LIMIT bytes", "cli/jobs/change.py: any_of jobs", "cli/jobs/show.py: len bytes",
    "tasks/context.py: len bytes", "demo/measure.py: accepted jobs", "demo/story.py: submitted jobs",
    "demo/story.py: len jobs", "demo/story.py: events events", "demo/story.py: started jobs",
    "core/events.py: n events",
    "policy/admit.py: len bytes", "policy/admit.py: len resources", "policy/admit.py: slots slots",
    "policy/resources.py: len resources", "policy/resources.py: slots slots", "policy/settle.py: lost times",
    "api/stuck_waits.py: slots slots", "stores/redis/event_codec.py: n events",
    "worker/supervisor/children.py: kind tasks", "worker/child/runner.py: len bytes",
    "worker/settings.py: memory_limit bytes", "server/routing.py: len times",
    "runs/csv_rows.py: most rows", "cli/job_selector.py: number jobs", "adapters/plecs/xml_rpc.py: size bytes",
    "stores/kernel/moves.py: elements jobs", "feeds/bridge/channels/nats.py: max_payload bytes",
    "server/routes/job_changes.py: possible jobs", "server/routes/job_changes.py: join jobs",
}  # fmt: skip


def test_a_number_and_its_noun_agree():
    assert [counted(n, "job") for n in (0, 1, 2, 1234)] == ["0 jobs", "1 job", "2 jobs", "1,234 jobs"]
    assert [counted(n, "retry waits", "retries wait") for n in (1, 2)] == ["1 retry waits", "2 retries wait"]


def bare_plurals(path: Path):
    """Nouns in the plural right after a number that may be one."""
    for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(text, ast.JoinedStr):
            for value, after in zip(text.values, text.values[1:], strict=False):
                noun = NOUNS.match(after.value) if isinstance(after, ast.Constant) else None
                if isinstance(value, ast.FormattedValue) and noun:
                    names = re.findall(r"[A-Za-z_]\w*", ast.unparse(value.value).replace("self.", ""))
                    name = names[0] if "(" in ast.unparse(value.value) else names[-1]
                    yield f"{path.relative_to(SOURCE).as_posix()}: {name} {noun[1]}"


def test_no_plural_follows_a_number_that_may_be_one():
    files = [path for path in SOURCE.rglob("*.py") if not {"testing", "doctor"} & set(path.parts)]
    assert {found for path in files for found in bare_plurals(path)} - FINE == set()


def test_what_newcomers_meet_is_counted(app):
    assert repr(app).endswith(", 1 task>")
    [task] = [app.find_task("double")]
    with pytest.raises(BadInput, match="takes 1 argument; map was given 2 columns"):
        task.map([1], [2])


@pytest.fixture
def app():
    with Daybreak("memory://") as app:

        @app.task
        def double(n: int) -> int:
            return 2 * n

        yield app

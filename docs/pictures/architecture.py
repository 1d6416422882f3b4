# ruff: noqa: INP001, T201
"""Draw the three pictures of docs/explanation/architecture.md: `python docs/pictures/architecture.py`.

The layers are read from the contract in pyproject.toml that import-linter enforces, so the picture cannot disagree with
the code. A job's way names the module of each step; a name that is no module is an error."""

from __future__ import annotations

import sys
import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STYLE = """<style>
  text { font: 14px system-ui, sans-serif; fill: #1b1f24 } .small { font-size: 12px; fill: #57606a }
  .code { font-family: ui-monospace, monospace; font-weight: 600 } rect { fill: #f6f8fa; stroke: #8c959f; rx: 6px }
  .store rect { fill: #ddf4ff }
  path { stroke: #57606a; stroke-width: 1.5; fill: none; marker-end: url(#tip) }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } rect { fill: #161b22; stroke: #6e7681 }
    .store rect { fill: #0c2d6b }
    path { stroke: #9198a1 } }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
  <path d="M0 0L8 4L0 8z" style="fill: #57606a; stroke: none; marker-end: none"/></marker></defs>"""

HOLDS = {
    "cli": "commands",
    "server": "REST API",
    "demo": "a night in half a minute",
    "testing": "inline mode, contract suite",
    "api": "the Python face: app, tasks, queues, locks",
    "runs": "sweeps: points, progress, tables",
    "sagas": "steps that are undone",
    "adapters": "clients of simulators",
    "feeds": "drop folders",
    "sqs": "remote workers",
    "worker": "supervisor and children: claim, run, report",
    "services": "reaper, scheduler, janitor",
    "spool": "jobs that wait for the store",
    "client": "submit, find, amend and wait, over any store",
    "stores": "memory, SQLite, PostgreSQL, Redis, directory",
    "tasks": "what an app declares",
    "files": "pinned files, large results",
    "telemetry": "events as log lines, and spans",
    "values": "arguments and results as JSON",
    "store": "the seam: what every store does",
    "config": "settings",
    "system": "clock, sleep, randomness, platform",
    "policy": "pure decisions: admit, settle, retry, limits",
    "core": "the nouns: job, lease, rank, event, error",
}

# step, module, what happens
WAY = [
    ("submit", "api/task.py", "task.submit(...) encodes the arguments"),
    ("admit", "policy/admit.py", "the job is checked; the client inserts it"),
    ("insert", "stores/kernel/insert.py", "durable: submit returns after the commit"),
    ("claim", "worker/supervisor/claim_loop.py", "free slots ask for the most urgent jobs"),
    ("lease", "stores/kernel/claim.py", "the store grants leases, each with a fence"),
    ("run", "worker/child/sync_loop.py", "a child runs the task; heartbeats keep the lease"),
    ("settle", "policy/settle.py", "the outcome decides the job's fate"),
    ("write", "stores/kernel/settle.py", "written only if the fence still matches"),
    ("tell", "telemetry/job_log.py", "events become log lines, hooks and wake-ups"),
]


def _layers() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip().removeprefix("daybreak.") for name in row.split(":")] for row in rows]


def _box(x: float, y: float, width: float, title: str, text: str, kind: str = "") -> str:
    return (
        f'<g class="{kind}"><rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="44"/>'
        f'<text class="code" x="{x + 10:.0f}" y="{y + 18:.0f}">{escape(title)}</text>'
        f'<text class="small" x="{x + 10:.0f}" y="{y + 35:.0f}">{escape(text)}</text></g>'
    )


def _picture(width: int, height: int, title: str, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n{STYLE}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def layers() -> str:
    rows, parts, width = _layers(), [], 760
    for n, row in enumerate(rows):
        each = (width - 20 - 10 * (len(row) - 1)) / len(row)
        for k, name in enumerate(row):
            parts.append(_box(10 + k * (each + 10), 10 + n * 54, each, name, HOLDS[name]))
    bottom = 10 + len(rows) * 54
    parts.append(f'<text class="small" x="10" y="{bottom + 12}">Imports point downwards only.</text>')
    return _picture(width, bottom + 24, "The layers of Daybreak, each a folder", parts)


def way() -> str:
    parts = []
    for n, (step, module, text) in enumerate(WAY):
        if not (ROOT / "src" / "daybreak" / module).exists():
            raise SystemExit(
                f"docs/pictures/architecture.py: {module} does not exist; name the module of step '{step}'"
            )
        y = 10 + n * 64
        parts.append(f'<text x="10" y="{y + 27}">{step}</text>')
        parts.append(_box(90, y, 540, module, text, "store" if module.startswith("stores/") else ""))
        if n + 1 < len(WAY):
            parts.append(f'<path d="M360 {y + 44}V{y + 62}"/>')
    return _picture(640, 10 + len(WAY) * 64, "A job's way through the modules", parts)


# The boxes of the kernel: x, y, width, module, what it does, and whether it belongs to a store.
KERNEL = [
    (10, 10, 700, "store/protocol.py", "an operation of the seam: insert, exchange, extend, reap, amend, put, ...", ""),
    (10, 84, 340, "stores/kernel/exchange.py", "settle, insert, put, claim; beside it the others", ""),
    (370, 84, 340, "stores/kernel/moves.py", "where a job belongs; leases begin and end", ""),
    (10, 158, 340, "stores/kernel/resource_queue.py", "who waits, and who may try", ""),
    (370, 158, 340, "stores/kernel/gauges.py", "slots, rates and breakers of this transaction", ""),
    (
        10,
        232,
        700,
        "stores/kernel/transaction.py",
        "the rows that were read and changed; from their moves: tallies, wake-ups",
        "",
    ),
    (10, 306, 700, "stores/kernel/port.py", "read what is asked for, and lock it; write changed rows together", ""),
    (10, 380, 165, "stores/memory", "dicts", "store"),
    (185, 380, 165, "stores/directory", "dicts and a journal", "store"),
    (360, 380, 165, "stores/sqlite", "SQL, fast path", "store"),
    (535, 380, 175, "stores/postgres", "SQL, fast path", "store"),
]


def kernel() -> str:
    parts = []
    for x, y, width, module, text, kind in KERNEL:
        if not (ROOT / "src" / "daybreak" / module).exists():
            raise SystemExit(f"docs/pictures/architecture.py: {module} does not exist")
        parts.append(_box(x, y, width, module, text, kind))
    arrows = [(180, 54, 82), (540, 128, 156), (180, 128, 156), (180, 202, 230), (540, 202, 230), (360, 276, 304)]
    arrows += [(x, 350, 378) for x in (92, 267, 442, 622)]
    parts += [f'<path d="M{x} {top}V{bottom}"/>' for x, top, bottom in arrows]
    parts.append('<path d="M350 106H368"/>')
    return _picture(720, 436, "The kernel: one state machine on the tables of four stores", parts)


def main() -> int:
    pictures = {"layers.svg": layers(), "a-jobs-way.svg": way(), "kernel.svg": kernel()}
    if sys.argv[1:] == ["--check"]:
        old = [name for name, text in pictures.items() if (HERE / name).read_text() != text]
        for name in old:
            print(f"docs/pictures/{name} is out of date: run python docs/pictures/architecture.py", file=sys.stderr)
        return bool(old)
    for name, text in pictures.items():
        (HERE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The morning report as one HTML page without scripts, which can be mailed and opened offline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from daybreak.api.report import FailureCluster, Report
from daybreak.core.text import counted, lasted, local, number, safe

MAX_TRACEBACK: Final = 4000  # characters of an example's traceback
MAX_CLUSTERS: Final = 100
WIDTH, HEIGHT = 720, 120

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --bad: #c0392b; --good: #1e8449; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; padding: 0; list-style: none; }
.cards li { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; min-width: 8rem; }
.cards b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.bad b { color: var(--bad); } .good b { color: var(--good); }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .4rem 1rem; margin: .8rem 0; }
svg { width: 100%; height: auto; } svg path { fill: #3b82f680; stroke: #3b82f6; }
svg text { font-size: 11px; fill: currentColor; }
"""


def report_page(report: Report, commands: Mapping[str, str]) -> str:
    """The page. `commands` has the retry command of each cluster."""
    of_run = f" in the run {report.run}" if report.run is not None else ""
    title = f"What happened since {local(report.since)}{of_run}"
    body = "\n".join(_sections(report, commands, title))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _sections(report: Report, commands: Mapping[str, str], title: str) -> Iterator[str]:
    yield f"<h1>{_text(title)}</h1>"
    yield f"<p>Until {_text(local(report.until))}, {_text(lasted(report.until - report.since))}.</p>"
    yield _cards(report)
    clusters = report.failures.clusters
    yield f"<h2>{counted(len(clusters), 'kind')} of failure</h2>" if clusters else "<h2>No failures</h2>"
    for cluster in clusters[:MAX_CLUSTERS]:
        yield _cluster(cluster, commands.get(cluster.fingerprint, ""))
    if len(clusters) > MAX_CLUSTERS or not report.failures.is_all:
        yield "<p>There are more failures than are shown here.</p>"
    if report.slowest:
        rows = [(job.task, lasted(job.ran_for), str(job.attempt), job.id) for job in report.slowest]
        yield "<h2>Slowest jobs</h2>" + _table(("task", "ran", "attempt", "job"), rows)
    if report.gone:
        gone = [(worker.name, worker.host, local(worker.seen_at)) for worker in report.gone]
        yield "<h2>Workers that disappeared</h2>" + _table(("worker", "host", "last seen"), gone)
    running = [point.running for point in report.points]
    if any(running):
        yield f"<h2>Running jobs</h2>{_plot(running, local(report.since), local(report.until))}"


def _cards(report: Report) -> str:
    cards = [
        ("good", report.counts.get("completed", 0), "completed"),
        ("bad" if report.counts.get("failed") else "", report.counts.get("failed", 0), "failed"),
        ("", report.counts.get("cancelled", 0), "cancelled"),
        ("", sum(report.unfinished.values()), "not finished"),
        ("", report.saved, "saved by a retry"),
        *([("good", report.cached, _cached(report))] if report.cached else []),
        ("bad" if report.lost else "", report.lost, "lost attempts"),
    ]
    items = "".join(f'<li class="{kind}"><b>{number(n)}</b>{_text(what)}</li>' for kind, n, what in cards)
    return f'<ul class="cards">{items}</ul>'


def _cached(report: Report) -> str:
    return f"cached, {lasted(report.cache_saved)} saved" if report.cache_saved else "cached"


def _cluster(cluster: FailureCluster, command: str) -> str:
    tasks = ", ".join(f"{task} ({number(n)})" for task, n in list(cluster.tasks.items())[:10])
    parts = [
        f"<h3>{counted(cluster.n, 'job')}: {_text(cluster.kind)}</h3>",
        f"<p>{_text(cluster.error[:500])}</p>",
        f"<p>Tasks: {_text(tasks)}. First {_text(local(cluster.first_at))}, last {_text(local(cluster.last_at))}.</p>",
        f"<p>Retry these jobs:</p><pre>{_text(command)}</pre>" if command else "",
        f"<p>Example: <code>{_text(cluster.example)}</code></p>",
    ]
    if cluster.traceback:
        shown = cluster.traceback[-MAX_TRACEBACK:]
        parts.append(f"<details><summary>Traceback</summary><pre>{_text(shown, lines=True)}</pre></details>")
    return f"<article>{''.join(parts)}</article>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plot(values: Sequence[int], start: str, end: str) -> str:
    top = max(values)
    step = WIDTH / max(len(values) - 1, 1)
    points = " ".join(f"L{n * step:.1f},{HEIGHT - value * HEIGHT / top:.1f}" for n, value in enumerate(values))
    path = f"M0,{HEIGHT} {points} L{WIDTH},{HEIGHT} Z"
    return (
        f'<svg viewBox="0 -4 {WIDTH} {HEIGHT + 24}" role="img" aria-label="running jobs over time, at most {top}">'
        f'<path d="{path}"/><text x="0" y="{HEIGHT + 16}">{_text(start)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 16}" text-anchor="end">{_text(end)}</text>'
        f'<text x="4" y="10">{number(top)}</text></svg>'
    )


def _text(value: str, *, lines: bool = False) -> str:
    """A text that no browser takes for markup, without control characters."""
    return escape(safe(value, lines=lines), quote=True)

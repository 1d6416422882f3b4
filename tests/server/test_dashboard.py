"""The pages of the dashboard: what they show, to whom, and that no text of a job becomes markup."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from urllib.parse import quote

import msgspec
import pytest
from saga_world import Sagas

from daybreak.api.job_history import Attempt
from daybreak.client.job_logs import log_kind, part_name
from daybreak.core.model import Done, Failed, Failure, Put
from daybreak.server.dashboard.drawings import attempt_bars, sparkline
from daybreak.server.dashboard.runs import HeatQuery, heat_map
from daybreak.server.live_feed import EventFilter, LiveFeed

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PAGES = [
    "/",
    "/jobs",
    "/runs",
    "/failures",
    "/queues",
    "/resources",
    "/locks",
    "/schedules",
    "/sagas",
    "/workers",
    "/audit",
    "/submit",
]
CORPUS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "'; alert(1); '",
    "</textarea><svg/onload=alert(1)>",
    "a\u2028b\u2029c",
    "\x1b[31mred\x07\x00",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
]
TAGS = {
    "html", "head", "meta", "title", "link", "script", "body", "a", "header", "img", "nav", "div", "button", "span",
    "main", "h1", "h2", "section", "ul", "li", "b", "p", "pre", "code", "table", "thead", "tbody", "tr", "th", "td",
    "progress", "form", "label", "input", "select", "option", "datalist", "small", "time", "dialog", "details",
    "summary", "article", "ol", "dl", "dt", "dd", "br", "figure", "figcaption", "output", "svg", "rect",
    "polyline",
}  # fmt: skip


class Page(HTMLParser):
    """What a browser would see: tags, attributes, and where scripts come from."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.sources, self.links, self.inline = set(), set(), [], [], []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(found)
        self._in_script = tag == "script"
        if tag == "script":
            self.sources.append(found.get("src"))
        if "href" in found:
            self.links.append(found["href"])

    def handle_endtag(self, tag):
        self._in_script = False

    def handle_data(self, data):
        if self._in_script and data.strip():
            self.inline.append(data)


def check(text):
    """The page has no markup but its own."""
    page = Page(text)
    assert page.tags <= TAGS, page.tags - TAGS
    assert not {name for name in page.attributes if name.startswith("on") or name in ("style", "srcdoc")}
    assert not page.inline
    assert all(source.startswith("/static/") for source in page.sources)
    assert not [link for link in page.links if not link.startswith(("/", "#", "static/"))]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029]", text)
    return page


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_teaches_while_it_is_empty(admin, path):
    answer = await admin.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "unsafe-inline" not in policy
    assert "default-src 'none'" in policy
    check(answer.text)
    if path not in ("/", "/audit"):
        assert 'class="teach"' in answer.text


async def test_pages_need_the_role_and_say_how_to_sign_in(connect, make_token):
    reader = await connect(await make_token("ann", "read"))
    assert (await reader.get("/jobs")).status_code == 200
    refused = await reader.get("/submit")
    assert refused.status_code == 403
    assert refused.headers["content-type"].startswith("text/html")
    check(refused.text)
    nobody = await connect(await make_token("bob", "work"))
    assert (await nobody.get("/")).status_code == 403
    missing = await reader.get("/jobs/01a1ee4c-ea92-78a7-a989-679d5353c9fa")
    assert missing.status_code == 404
    assert "01a1ee4c" in missing.text


@pytest.mark.parametrize("text", CORPUS)
async def test_no_text_of_a_job_becomes_markup(app, admin, jobs, text):
    client = await app.client()
    name = text if text.isprintable() else "plain"  # names with control characters are refused
    options = {"owner": name, "tags": (name,), "meta": {"note": name}, "queue": "mail"}
    failure = Failure(message=text, kinds=("ValueError",), traceback=f'  File "{text}", line 1, in f\n{text}')
    job = await jobs.end(Failed(failure), args={"body": text}, **options)
    held = await jobs.submit(args={text: [text]}, **options)
    for one in (job, held):
        await client.store.put([Put(kind=log_kind(one), name=part_name(1, 1, 0), value=text.encode())])
    await client.suspend(held, note=text)
    await client.set_queue("mail", paused=True)
    sagas = Sagas(app, queue="saga", name=name, step=name)
    run_id = name.replace("/", "|")
    await sagas.start(run_id, {text: [text]})
    await sagas.end(run_id, result=msgspec.json.encode({"said": text}))
    await sagas.end(run_id, text)
    await sagas.end(run_id, text)
    of_saga = [job.id async for job in client.find_all(queue="saga")]
    for path in [*PAGES, f"/jobs/{job}", f"/jobs/{held}", "/jobs?text=alert", "/jobs?queue=mail&state=suspended",
                 f"/sagas/{quote(run_id)}", "/sagas?state=stuck", *(f"/jobs/{one}" for one in of_saga)]:  # fmt: skip
        answer = await admin.get(path)
        assert answer.status_code == 200, path
        check(answer.text)


async def test_jobs_are_found_by_the_text_of_their_arguments(app, admin):
    client = await app.client()
    wanted = await client.submit("mail", {"to": "Ann@example.test"})
    for n in range(60):
        await client.submit("mail", {"to": f"user{n}"})
    page = (await admin.get("/jobs", params={"text": "ann@EXAMPLE"})).text
    assert wanted in page
    assert "61 jobs were searched" in page
    assert (await admin.get("/jobs", params={"text": "user"})).text.count('class="id"') == 50
    assert "No job matches" in (await admin.get("/jobs", params={"text": "nobody"})).text


async def test_a_job_is_found_by_its_id_or_a_part_of_it(app, admin, connect, make_token):
    client = await app.client()
    wanted = await client.submit("mail", queue="mail")
    other = await client.submit("mail", queue="other")
    for text in (wanted, wanted[-6:], wanted[:30].upper()):
        page = (await admin.get("/jobs", params={"text": text, "queue": "mail"})).text
        assert f"/jobs/{wanted}" in page, text
        assert f"/jobs/{other}" not in page
    limited = await connect(await make_token("ann", "read", queues=("mail",)))
    assert "No job matches" in (await limited.get("/jobs", params={"text": other, "queue": "mail"})).text


async def test_the_form_is_filled_with_the_arguments_of_a_job(app, admin, connect, make_token):
    client = await app.client()
    args = {"to": 'a"b<c>', "count": 3}
    job = await client.submit("mail", args, queue="mail")
    page = (await admin.get("/submit", params={"like": job})).text
    check(page)
    assert f'href="/jobs/{job}"' in page
    assert (await admin.get("/submit", params={"like": "nobody"})).status_code == 404


async def test_the_page_of_a_queue_draws_the_last_hour_and_a_job_its_attempts(app, admin, jobs):
    job = await jobs.end(Done(b"1", ran=1.0))
    page = (await admin.get(f"/jobs/{job}")).text
    assert '<rect class="completed"' in page
    check(page)
    check((await admin.get("/queues")).text)


def test_bars_cover_the_time_from_submission_to_the_end():
    def attempt(n, start, end):
        return Attempt(n=n, worker="w", started_at=NOON + start * SECOND, ended_at=end and NOON + end * SECOND)

    first, second = attempt_bars([attempt(1, 20, 40), attempt(2, 50, None)], NOON, NOON + 100 * SECOND)
    assert (first.wait_from, first.wait, first.run_from, first.run) == (0, 20, 20, 20)
    assert (second.wait_from, second.wait, second.run_from, second.run) == (40, 10, 50, 50)
    assert attempt_bars([], NOON, NOON) == []
    [instant] = attempt_bars([attempt(1, 0, 0)], NOON, NOON)
    assert instant.run_from + instant.run <= 100


def test_a_sparkline_has_its_highest_value_at_the_top():
    assert sparkline([0, 2, 4]) == "0.0,19.0 50.0,10.0 100.0,1.0"
    assert sparkline([0, 0]) == ""
    assert sparkline([]) == ""


async def test_a_bulk_action_names_exactly_what_the_page_counted(app, admin):
    client = await app.client()
    for _ in range(7):
        await client.submit("mail", queue="mail")
    await client.submit("mail", queue="other")
    page = (await admin.get("/jobs", params={"queue": "mail"})).text
    assert "<b>7</b> jobs match" in page
    filter_ = re.search(r'data-filter="([^"]*)"', page)
    assert filter_ is not None
    assert "mail" in filter_[1]
    dry = await admin.post("/api/v1/jobs/bulk", json={"action": "cancel", "filter": {"queue": "mail"}, "dry_run": True})
    assert dry.json()["matching"] == 7


async def test_a_filter_that_no_counter_knows_is_not_counted_for_the_page(app, admin, monkeypatch):
    client = await app.client()
    await client.submit("mail", tags=("red",), run="night")

    async def refuse(*_):
        raise AssertionError("it reads every job")

    monkeypatch.setattr("daybreak.server.dashboard.jobs.count_jobs", refuse)
    assert "1 shown" in (await admin.get("/jobs", params={"tag": "red"})).text
    monkeypatch.undo()
    assert "<b>1</b> job matches" in (await admin.get("/jobs", params={"run": "night"})).text


async def test_assets_are_those_of_the_package_and_nothing_else(connect):
    nobody = await connect()
    script = await nobody.get("/static/live.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert (await nobody.get("/static/live.js", headers={"if-none-match": script.headers["etag"]})).status_code == 304
    for name in ("..%2f__init__.py", "nothing.js", "%2e%2e", "uplot-LICENSE.txt"):
        assert (await nobody.get(f"/static/{name}")).status_code == 404


async def test_a_summary_of_the_feed_counts_events(app):
    feed = LiveFeed(app, 10)
    client = await app.client()

    async def allowed():
        return True

    response = await feed.listen(EventFilter(), None, allowed, summary=True)
    chunks = response._chunks
    assert b"event: open" in await anext(chunks)
    for _ in range(3):
        await client.submit("mail")
    found = await anext(chunks)
    assert b"event: summary" in found
    assert b'{"submitted":3}' in found
    feed.stop()
    await chunks.aclose()


def test_a_heat_map_shows_the_mean_of_each_pair():
    rows = [
        {"vin": vin, "duty": duty, "vout": vin * duty, "point": 0}
        for vin in (10, 20)
        for duty in (0.1, 0.5)
        for _ in "ab"
    ]
    heat = heat_map(rows, ("vin", "duty"), HeatQuery())
    assert heat is not None
    assert (heat.x, heat.y, heat.value) == ("vin", "duty", "vout")
    assert heat.cells == [[("1", 0), ("2", 1)], [("5", 4), ("10", 9)]]
    assert heat_map(rows, ("vin",), HeatQuery()) is None
    assert heat_map([], ("vin", "duty"), HeatQuery()) is None


async def test_the_page_of_a_job_shows_its_output_by_attempt(app, admin, jobs):
    client = await app.client()
    job = await jobs.submit(queue="mail")
    assert 'id="log"' not in (await admin.get(f"/jobs/{job}")).text
    parts = {part_name(1, 1, 0): b"first\n", part_name(2, 2, 0): b"a\x1b[31m<b>", part_name(2, 2, 99_999): b"end"}
    await client.store.put([Put(kind=log_kind(job), name=name, value=value) for name, value in parts.items()])
    page = (await admin.get(f"/jobs/{job}")).text
    shown = page.partition('<section id="log">')[2].partition("</section>")[0]
    assert "first\n--- attempt 2 ---\na\\x1b[31m&lt;b&gt;\n... 99,990 bytes left out ...\nend</pre>" in shown

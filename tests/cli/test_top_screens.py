"""`daybreak top` as a terminal program, at 80x24 unless said otherwise: every story with real keys and a real store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from daybreak.cli.top.dialogs import ConfirmDialog
from daybreak.cli.top.filter_words import parse_filter
from daybreak.cli.top.job_list import PAGE, JobList
from daybreak.cli.top.job_screen import JobScreen
from daybreak.cli.top.jobs_screen import JobsScreen
from daybreak.cli.top.log_screen import LogScreen
from daybreak.cli.top.queues_screen import QueuesScreen
from daybreak.client.client import Client
from daybreak.client.job_logs import index_put, log_kind, part_name
from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import Put, State
from daybreak.core.text import safe
from daybreak.stores.sqlite import SqliteStore
from top_screens import Screens, prefix, top

HOSTILE = (
    "[red]red[/red]",
    "[@click=app.quit]click[/]",
    "[bold",
    "[/]",
    "$text {braces} \\[escaped]",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\rb\x08c\x00d",
    "<script>alert(1)</script>",
    "line\u2028separator",
    "\u202eright to left",
    "\u200bzero \ud800surrogate",
)


# -- looking -----------------------------------------------------------------------------------------------------------


async def test_the_first_screen_shows_depth_states_workers_and_jobs(aplace):
    waiting = aplace.submit(queue="mail", priority="low")
    failed = aplace.fail("smtp refused")
    running = aplace.run("simulate", progress=0.4, message="half way", queue="sim")
    aplace.worker("mail")
    async with top(aplace.url) as screens:
        text = screens.text()
        assert "waiting 1  emergency 0  critical 0  high 0  normal 0  low 1  background 0" in text
        assert "[all 3] waiting 1  running 1  failed 1  completed 0  cancelled 0" in text
        assert "1 worker" in text
        assert "oldest queued" in text
        assert "queued" in screens.line(prefix(waiting))
        assert "failed" in screens.line(prefix(failed))
        assert "running" in screens.line(prefix(running))
        assert "40 %" in screens.line(prefix(running))
        await screens.press("down")
        assert " ValueError: smtp refused" in screens.lines()[-3], "what the column cuts is below the list"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_every_key_is_shown_at_the_foot(aplace, size):
    aplace.submit()
    async with top(aplace.url, size) as screens:
        foot = "\n".join(screens.lines()[-2:])
        for words in ("Enter open", "l log", "w why", "/ filter", "Space mark", "? help", "q quit", "c cancel",
                      "r retry", "s suspend", "u resume", "p priority", "n start", "b release",
                      "d remove"):  # fmt: skip
            assert words in foot


async def test_an_empty_store_says_what_to_do(aplace):
    aplace.do(lambda client: client.tallies())
    async with top(aplace.url) as screens:
        assert "There are no jobs yet." in screens.text()
        assert "daybreak submit TASK name=value" in screens.text()
        await screens.press("4")
        assert "No failed jobs." in screens.text()
        assert "Press Esc for all jobs" in screens.text()
        await screens.press("o")
        assert "There are no queues yet." in screens.text()
        assert "Start one with: daybreak worker TARGET" in screens.text()


async def test_help_names_every_key(aplace):
    aplace.submit()
    async with top(aplace.url, (80, 50)) as screens:
        await screens.press("question_mark")
        text = screens.text()
        for words in ("cancel:", "retry:", "suspend", "priority", "start a scheduled job", "release:", "remove",
                      "mark a job", "filter:", "why a job waits", "queues and workers", "quit"):  # fmt: skip
            assert words in text
        await screens.press("escape")
        assert isinstance(screens.screen, JobsScreen)


# -- filters -----------------------------------------------------------------------------------------------------------


async def test_a_filter_takes_the_options_of_jobs_and_words(aplace):
    wanted = aplace.fail("smtp refused", queue="mail")
    other = aplace.fail("disk full", queue="mail")
    elsewhere = aplace.submit(queue="sim")
    async with top(aplace.url) as screens:
        await screens.press("slash", *"SMTP")
        assert screens.screen.query_one("#line").value == "SMTP"
        screens.screen.query_one("#line").value = "state=failed --queue mail SMTP"
        await screens.press("enter")
        assert [row.key for row in screens.table.rows] == [wanted]
        assert "failed jobs in mail with 'SMTP'" in screens.text()
        await screens.press("escape")
        assert {row.key for row in screens.table.rows} == {wanted, other, elsewhere}


async def test_a_bad_filter_says_what_is_wrong_and_stays_open(aplace):
    aplace.submit()
    async with top(aplace.url) as screens:
        await screens.press("slash")
        for line, error in (
            ("state=fialed", "did you mean failed?"), ("'open", "quotation mark"), ("--quue mail", "--queue")
        ):  # fmt: skip
            screens.screen.query_one("#line").value = line
            await screens.press("enter")
            assert error in screens.text(), screens.text()
        await screens.press("escape")
        assert len(screens.table.rows) == 1


async def test_views_filter_by_state(aplace):
    waiting, failed = aplace.submit(), aplace.fail()
    async with top(aplace.url) as screens:
        await screens.press("4")
        assert [row.key for row in screens.table.rows] == [failed]
        assert "[failed 1]" in screens.text()
        await screens.press("left", "left")
        assert [row.key for row in screens.table.rows] == [waiting]


async def test_a_search_reads_a_bounded_number_of_jobs_per_refresh(aplace):
    needle = aplace.submit("mail", {"to": "needle@example.com"})
    aplace.do(lambda client: client.submit_many(client.spec("mail", {"to": str(n)}) for n in range(1500)))
    async with SqliteStore(aplace.path) as store:
        reads = []
        client = Client(store)
        find, client.find = client.find, lambda **how: (reads.append(how["limit"]), find(**how))[1]
        jobs = JobList()
        jobs.change(parse_filter("NEEDLE@"))
        await jobs.refresh(client)
        assert jobs.jobs == []
        assert reads == [PAGE] * 5
        assert jobs.searched == 5 * PAGE
        await jobs.refresh(client)
        assert [job.id for job in jobs.jobs] == [needle]
        assert len(reads) <= 10
        for _ in range(5):  # it begins again, and keeps what it has found
            await jobs.refresh(client)
            assert [job.id for job in jobs.jobs] == [needle]


async def test_pages_hold_200_jobs(aplace):
    aplace.do(lambda client: client.submit_many(client.spec("mail") for _ in range(450)))
    async with top(aplace.url) as screens:
        first = [row.key for row in screens.table.rows]
        assert len(first) == PAGE
        await screens.press("right_square_bracket")
        await screens.press("right_square_bracket")
        assert len(screens.table.rows) == 50
        assert "page 3" in screens.text()
        await screens.press("left_square_bracket", "left_square_bracket")
        assert [row.key for row in screens.table.rows] == first


# -- down to the log ---------------------------------------------------------------------------------------------------


def log(client: Client, job: str, fence: int, attempt: int, start: int, text: str) -> Any:
    put = Put(kind=log_kind(job), name=part_name(fence, attempt, start), value=text.encode("utf-8", "surrogatepass"))
    return client.store.put([index_put(job), put])


async def test_from_a_job_to_its_attempts_to_the_log_that_is_followed(aplace):
    job = aplace.run("simulate", progress=0.5)
    async with top(aplace.url) as screens:
        await log(screens.client, job, 1, 1, 0, "first line\n")
        await screens.press("enter")
        assert isinstance(screens.screen, JobScreen)
        assert job in screens.text()
        assert "1        " in screens.line("running  w1") or "running" in screens.text()
        await screens.press("enter")
        assert isinstance(screens.screen, LogScreen)
        assert "first line" in screens.text()
        assert "new lines appear here" in screens.text()
        await log(screens.client, job, 1, 1, 11, "".join(f"line {n}\n" for n in range(100)))
        await screens.settled()
        assert "line 99" in screens.text()
        await screens.press("home")
        assert "first line" in screens.text()
        await log(screens.client, job, 1, 1, 11 + 790, "the end\n")
        await screens.settled()
        assert "first line" in screens.text(), "the place that is read stays in view"
        await screens.press("end")
        assert "the end" in screens.text()
        await screens.press("escape", "escape")
        assert isinstance(screens.screen, JobsScreen)


async def test_why_names_the_cause_and_the_command(aplace):
    job = aplace.submit(queue="mail")
    aplace.worker("mail", queues=("mail",))
    aplace.do(lambda client: client.pause("mail"))
    async with top(aplace.url) as screens:
        await screens.press("w")
        assert "paused" in screens.text()
        assert "daybreak queues resume mail" in screens.text()
        await screens.press("z")
        assert not (await screens.client.queue("mail")).paused
        assert prefix(job) in screens.text()


# -- actions -----------------------------------------------------------------------------------------------------------


async def state_of(screens: Screens, job: str) -> State | None:
    [found] = await screens.client.store.get([job])
    return None if found is None else found.state


async def by_of(screens: Screens, job: str) -> str:
    return (await screens.client.history(job))[-1].by


@pytest.mark.parametrize(
    ("make", "keys", "after"),
    [
        (lambda place: place.submit(), ["c", "y"], State.CANCELLED),
        (lambda place: place.submit(), ["c", "n"], State.QUEUED),
        (lambda place: place.fail(), ["r"], State.QUEUED),
        (lambda place: place.submit(), ["s"], State.SUSPENDED),
        (lambda place: place.submit(delay=timedelta(hours=1)), ["n"], State.QUEUED),
        (lambda place: place.run(), ["b", "y"], State.QUEUED),
        (lambda place: place.complete(), ["d", "y"], None),
        (lambda place: place.complete(), ["d", "escape"], State.COMPLETED),
    ],
    ids=["cancel", "cancel-no", "retry", "suspend", "start-now", "release", "remove", "remove-no"],
)
async def test_one_key_changes_the_selected_job(aplace, make, keys, after):
    job = make(aplace)
    async with top(aplace.url) as screens:
        await screens.press(*keys)
        assert await state_of(screens, job) is after
        if after is not None and len(keys) == 1:
            assert await by_of(screens, job) == "ann"


async def test_resume_and_priority(aplace):
    job = aplace.submit()
    async with top(aplace.url) as screens:
        await screens.press("s")
        assert await state_of(screens, job) is State.SUSPENDED
        await screens.press("u")
        assert await state_of(screens, job) is State.QUEUED
        await screens.press("p", "h")
        assert (await screens.client.get(job)).priority == 2
        await screens.press("p", "7")
        assert (await screens.client.get(job)).priority == 7
        await screens.press("p", "escape")
        assert "Nothing was changed." in screens.text()


async def test_a_running_job_is_asked_to_stop(aplace):
    job = aplace.run()
    async with top(aplace.url) as screens:
        await screens.press("c")
        assert f"Cancel job {prefix(job)}?" in screens.text()
        assert "1 running job will be asked to stop." in screens.text()
        await screens.press("y")
        assert (await screens.client.get(job)).cancelling
        assert "1 running job asked to stop." in screens.text()


async def test_what_cannot_be_done_is_said(aplace):
    aplace.complete()
    async with top(aplace.url) as screens:
        await screens.press("c")
        assert "Cannot cancel. 1 job stays unchanged: 1 completed." in screens.text()


async def test_marked_jobs_are_changed_together_after_the_exact_count(aplace):
    waiting = [aplace.submit() for _ in range(5)]
    done = aplace.complete()
    async with top(aplace.url) as screens:
        await screens.press("a")
        assert "6 jobs marked" in screens.text()
        await screens.press("end", "space")  # not the oldest one
        assert "5 jobs marked" in screens.text()
        await screens.press("c")
        assert isinstance(screens.screen, ConfirmDialog)
        assert "Cancel 4 jobs?" in screens.text()
        assert "4 jobs will be cancelled." in screens.text()
        assert "1 job stays unchanged: 1 completed." in screens.text()
        await screens.press("y")
        states = [await state_of(screens, job) for job in waiting]
        assert states == [State.QUEUED, *[State.CANCELLED] * 4]
        assert await state_of(screens, done) is State.COMPLETED
        assert "4 jobs cancelled." in screens.text()


async def test_a_queue_is_paused_and_resumed(aplace):
    aplace.submit(queue="mail")
    async with top(aplace.url) as screens:
        await screens.press("z")
        assert "1 waiting job will not start until it is resumed." in screens.text()
        await screens.press("y")
        assert (await screens.client.queue("mail")).paused
        await screens.press("o")
        assert isinstance(screens.screen, QueuesScreen)
        assert "paused" in screens.line("mail")
        await screens.press("z")
        assert not (await screens.client.queue("mail")).paused
        await screens.press("enter")
        assert "jobs in mail" in screens.text()


# -- the cursor --------------------------------------------------------------------------------------------------------


async def test_the_selected_job_stays_selected_and_on_its_line(aplace):
    jobs = [aplace.submit() for _ in range(60)]
    async with top(aplace.url) as screens:
        await screens.pilot.press(*["down"] * 25, *["up"] * 5)  # in the middle of the screen
        await screens.pilot.pause()
        selected = screens.table.selected
        assert selected == jobs[39]
        before = screens.lines().index(screens.line(prefix(selected)))
        for _ in range(7):
            await screens.client.submit("mail")
        await screens.settled()
        assert screens.table.selected == selected
        assert screens.lines().index(screens.line(prefix(selected))) == before
        assert screens.line(prefix(selected)).startswith(">")


async def test_a_selected_job_that_left_the_view_stays_until_the_cursor_leaves_it(aplace):
    jobs = [aplace.submit() for _ in range(3)]
    async with top(aplace.url) as screens:
        await screens.press("2", "down")
        await screens.client.cancel(jobs[1])
        await screens.settled()
        assert screens.table.selected == jobs[1]
        assert "cancelled" in screens.line(prefix(jobs[1]))
        await screens.client.remove(jobs[1])
        await screens.settled()
        assert "removed" in screens.line(prefix(jobs[1]))
        await screens.press("down")
        assert [row.key for row in screens.table.rows] == [jobs[2], jobs[0]]
        assert screens.table.selected == jobs[0]


# -- text of others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
async def test_text_of_jobs_is_inert(aplace, text):
    text = text.encode("utf-8", "ignore").decode()  # a store holds no surrogates
    name = "".join(c for c in text if c.isprintable())[:60]
    job = aplace.fail(text, task=name, args={"to": text, text: 1}, owner=name, meta={"note": text})
    aplace.do(lambda client: client.submit("mail", {}, queue=name))
    running = aplace.run(name, message=text, progress=0.5, queue="sim")
    aplace.worker("mail", name=text, host=text)
    escaped = safe(text)[:8]
    async with top(aplace.url, (120, 40)) as screens:
        await log(screens.client, job, 1, 1, 0, f"{text}\nlast line\n")
        assert screens.table.selected == running
        for keys, shows in (
            ((), escaped), (("slash", "x", "escape"), escaped), (("4", "enter"), escaped), (("enter",), escaped),
            (("escape", "w"), escaped), (("escape", "escape", "r"), ""), (("2", "z"), ""), (("n", "o"), escaped),
        ):  # fmt: skip
            await screens.press(*keys)
            shown = screens.text()
            assert all(c.isprintable() or c == "\n" for c in shown), ascii(shown)
            assert shows in shown, (keys, shown)
        assert screens.app.is_running


# -- colours and trouble -----------------------------------------------------------------------------------------------


async def test_without_colours_everything_is_said_in_words(aplace, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    for _ in range(2):
        aplace.fail()
        aplace.submit()
    async with top(aplace.url) as screens:
        await screens.press("space")
        for strip in screens.app.screen._compositor.render_strips():
            segments = list(strip)
            for each in screens.app._filters:
                if each.enabled:
                    segments = each.apply(segments, screens.app.screen.background_colors[1])
            for segment in segments:
                if segment.style is not None:
                    assert segment.style.color is None or segment.style.color.is_default
                    assert segment.style.bgcolor is None or segment.style.bgcolor.is_default
        assert "failed" in screens.text()
        assert any(line.startswith(">") for line in screens.lines())
        assert any(line.startswith(" *") for line in screens.lines())


async def test_a_store_that_goes_away_is_shown_and_comes_back(aplace):
    job = aplace.submit()
    async with top(aplace.url) as screens:
        store = screens.client.store

        class Away:
            def __getattr__(self, name: str) -> Any:
                raise StoreUnavailable("the store cannot be reached")

        screens.client.store = Away()
        await screens.settled()
        assert "the store cannot be reached" in screens.text()
        assert prefix(job) in screens.text(), "what was read before stays"
        await screens.press("s")
        assert screens.app.is_running
        screens.client.store = store
        await screens.settled()
        assert "cannot be reached" not in screens.text().replace("Could not suspend: the store cannot be reached", "")
        await screens.press("s")
        assert await state_of(screens, job) is State.SUSPENDED

"""The jobs that the list of `top` shows: one page, read in bounded steps."""

from __future__ import annotations

from typing import Final

from daybreak.cli.top.filter_words import EVERYTHING, ListFilter
from daybreak.client.client import Client
from daybreak.core.model import Job, State
from daybreak.store.protocol import Page

PAGE: Final = 200  # jobs on a page, and of one read
MAX_READS: Final = 5  # for one refresh


class JobList:
    """One page of the jobs that match a filter.

    A filter that the store has an index for takes one read. For any other filter, a refresh continues a search behind
    the first page, so a search takes as many refreshes as it needs, but each of them is bounded. It ends with the read
    that fills the page, or with the last job; then it begins again, because older jobs change too."""

    def __init__(self) -> None:
        self.filter = EVERYTHING
        self.jobs: list[Job] = []
        self.next: str | None = None  # the cursor of the next page
        self._cursors: list[str | None] = [None]  # where the pages up to this one begin
        self._search = _Search()

    @property
    def page(self) -> int:
        return len(self._cursors)

    @property
    def searched(self) -> int | None:
        """How many jobs the search has read; None if the store found the jobs by itself, or the search is complete."""
        return None if self._search.is_complete else self._search.read

    def change(self, wanted: ListFilter) -> None:
        """Show the first page of another filter, with the next refresh."""
        self.filter = wanted
        self.jobs, self.next, self._cursors, self._search = [], None, [None], _Search()

    def forward(self) -> bool:
        """Go to the next page, if there is one."""
        if self.next is None:
            return False
        self._cursors.append(self.next)
        self.next, self._search = None, _Search()
        return True

    def back(self) -> bool:
        """Go to the page before, if there is one."""
        if len(self._cursors) == 1:
            return False
        self._cursors.pop()
        self.next, self._search = None, _Search()
        return True

    async def refresh(self, client: Client) -> None:
        """Read the page again. A filter that is changed meanwhile wins."""
        wanted, search = self.filter, self._search
        if search.is_under_way and not wanted.is_scan:
            # The store scans for these jobs itself, thousands in one read: that is enough for one refresh.
            jobs, cursor = await search.advance(client, wanted, reads=1)
            self._keep(wanted, search, jobs, cursor)
            return
        first = await _read(client, wanted, self._cursors[-1])
        found = [job for job in first.jobs if wanted.matches(job)]
        if len(found) >= PAGE or first.cursor is None or (not wanted.is_scan and found):
            jobs, cursor = found, first.cursor
            search.is_complete = True
        else:
            search.begin(wanted, first)
            jobs, cursor = await search.advance(client, wanted, reads=MAX_READS - 1 if wanted.is_scan else 0)
        self._keep(wanted, search, jobs, cursor)

    def _keep(self, wanted: ListFilter, search: _Search, jobs: list[Job], cursor: str | None) -> None:
        if wanted is self.filter and search is self._search:
            self.jobs, self.next = jobs, cursor


async def _read(client: Client, wanted: ListFilter, cursor: str | None) -> Page:
    return await client.find(limit=PAGE, cursor=cursor, **wanted.filter.where())


class _Search:
    """Reads on behind the first page, and keeps the jobs that match."""

    def __init__(self) -> None:
        self.read = 0
        self.is_complete = True
        self._cursor: str | None = None
        self._behind: str | None = None  # where the next page begins, if the last round filled this one
        self._last_round: dict[str, Job] = {}
        self._round: dict[str, Job] = {}

    @property
    def is_under_way(self) -> bool:
        return self._cursor is not None

    def begin(self, wanted: ListFilter, first: Page) -> None:
        """Take the first page. If the search is not under way, it continues behind that page."""
        if self._cursor is None:
            self._cursor, self.read = first.cursor, len(first.jobs)
            self.is_complete = bool(self._last_round)
        self._round |= {job.id: job for job in first.jobs if wanted.matches(job)}

    async def advance(self, client: Client, wanted: ListFilter, *, reads: int) -> tuple[list[Job], str | None]:
        """The jobs found so far, and the cursor behind them once the page is full."""
        for _ in range(reads):
            if self._cursor is None or len(self._round) >= PAGE:
                break
            page = await _read(client, wanted, self._cursor)
            self._round |= {job.id: job for job in page.jobs if wanted.matches(job)}
            self.read += len(page.jobs)
            self._cursor = page.cursor
        found = await self._current(client, wanted)
        is_full = len(self._round) >= PAGE
        if self._cursor is None or is_full:
            self._behind = self._cursor
            self._last_round, self._round, self._cursor, self.is_complete = self._round, {}, None, True
        return found, self._behind

    async def _current(self, client: Client, wanted: ListFilter) -> list[Job]:
        """The jobs of this round and the last one as they are now, in the order of the store."""
        ids = list({**self._last_round, **self._round})[: 2 * PAGE]
        jobs = [job for job in await client.store.get(ids) if job is not None and wanted.matches(job)]
        if wanted.filter.states == (State.QUEUED,):
            return sorted(jobs, key=lambda job: (job.priority, job.seq))
        return sorted(jobs, key=lambda job: -job.seq)

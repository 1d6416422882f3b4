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

    A filter that the store has an index for takes one read. For any other filter, every refresh reads the first page
    and continues a search behind it, so a search takes as many refreshes as it needs, but each of them is bounded. When
    it has reached the end it begins again, because older jobs change too."""

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
        first = await self._read(client, wanted, self._cursors[-1])
        found = [job for job in first.jobs if wanted.matches(job)]
        if len(found) >= PAGE or first.cursor is None or (not wanted.is_scan and found):
            jobs, cursor = found, first.cursor
            search.is_complete = True
        else:
            jobs, cursor = await search.advance(client, self, wanted, first)
        if wanted is self.filter and search is self._search:
            self.jobs, self.next = jobs[:PAGE], cursor

    @staticmethod
    async def _read(client: Client, wanted: ListFilter, cursor: str | None) -> Page:
        return await client.find(limit=PAGE, cursor=cursor, **wanted.filter.where())


class _Search:
    """Reads on behind the first page, and keeps the jobs that match."""

    def __init__(self) -> None:
        self.read = 0
        self.is_complete = True
        self._cursor: str | None = None
        self._last_round: dict[str, Job] = {}
        self._round: dict[str, Job] = {}

    async def advance(
        self, client: Client, jobs: JobList, wanted: ListFilter, first: Page
    ) -> tuple[list[Job], str | None]:
        """The jobs found so far, and the cursor behind them once the page is full."""
        if self._cursor is None:
            self._cursor, self.read = first.cursor, len(first.jobs)
            self.is_complete = bool(self._last_round)
        self._round |= {job.id: job for job in first.jobs if wanted.matches(job)}
        for _ in range(MAX_READS - 1):
            if self._cursor is None or len(self._round) >= PAGE:
                break
            page = await jobs._read(client, wanted, self._cursor)  # noqa: SLF001 - one mechanism in two classes
            self._round |= {job.id: job for job in page.jobs if wanted.matches(job)}
            self.read += len(page.jobs)
            self._cursor = page.cursor
        found = await self._current(client, wanted)
        is_full, cursor = len(self._round) >= PAGE, self._cursor
        if self._cursor is None or is_full:
            self._last_round, self._round, self._cursor, self.is_complete = self._round, {}, None, True
        return found, cursor if is_full else None

    async def _current(self, client: Client, wanted: ListFilter) -> list[Job]:
        """The jobs of this round and the last one as they are now, in the order of the store."""
        ids = list({**self._last_round, **self._round})[: 2 * PAGE]
        jobs = [job for job in await client.store.get(ids) if job is not None and wanted.matches(job)]
        if wanted.filter.states == (State.QUEUED,):
            return sorted(jobs, key=lambda job: (job.priority, job.seq))
        return sorted(jobs, key=lambda job: -job.seq)

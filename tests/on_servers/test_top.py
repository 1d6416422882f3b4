"""`daybreak top` on PostgreSQL and Redis, and while its server is away."""

from __future__ import annotations

import pytest

from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.stores import store_for
from top_screens import prefix, top


async def test_it_lists_filters_and_changes_jobs(url):
    async with store_for(url) as store:
        client = Client(store, by="ann")
        mails = [await client.submit("mail", {"to": f"user{n}@example.com"}, queue="mail") for n in range(3)]
        other = await client.submit("simulate", delay="1h")
    async with top(url) as screens:
        assert {row.key for row in screens.table.rows} == {*mails, other}
        await screens.press("slash", *"USER1")
        await screens.press("enter")
        assert [row.key for row in screens.table.rows] == [mails[1]]
        await screens.press("escape", "a", "c")
        assert "Cancel 4 jobs?" in screens.text()
        await screens.press("y")
        assert (await screens.client.count())[State.CANCELLED] == 4
        await screens.press("enter")
        assert other in screens.text()
        await screens.press("w")
        assert "it has ended: cancelled" in screens.text().lower()


async def test_a_server_that_goes_away_is_shown_and_comes_back(tmp_path):
    pytest.importorskip("hiredis")
    from redis_servers import private

    with private(tmp_path) as server:
        async with store_for(server.url) as store:
            job = await Client(store).submit("mail")
        async with top(server.url) as screens:
            server.kill()
            await screens.app.read()
            assert screens.app.trouble is not None
            assert "cannot be reached" in screens.lines()[-3]
            assert prefix(job) in screens.text(), "what was read before stays"
            server.start()
            await screens.until_read()
            await screens.press("s")
            assert (await screens.client.get(job)).state is State.SUSPENDED

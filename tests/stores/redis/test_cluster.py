"""In a cluster a namespace lives on one node, in one slot; other nodes redirect to it."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from redis_servers import connect, free_port, private

from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, work_topic
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import MINUTE, accept_all, assert_sound, spec


@pytest.fixture
def nodes(tmp_path):
    """Two nodes, of which the second has all slots."""
    with contextlib.ExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            settings = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--appendonly", "no")
            servers.append(stack.enter_context(private(tmp_path / name, *settings)))
        first, second = servers
        with connect(second.url) as connection:
            connection.call(("CLUSTER", "ADDSLOTS", *range(16384)))
            connection.call(("CLUSTER", "MEET", "127.0.0.1", first.port, bus_of(first)))
        wait_until_ready(first)
        wait_until_ready(second)
        yield first, second


def bus_of(server):
    with connect(server.url) as connection:
        return connection.call(("CONFIG", "GET", "cluster-port"))[1]


def wait_until_ready(server):
    for _ in range(400):
        with connect(server.url) as connection:
            info = connection.call(("CLUSTER", "INFO")).decode()
        if "cluster_state:ok" in info and "cluster_slots_ok:16384" in info:
            return
        time.sleep(0.025)
    raise AssertionError("the nodes do not become a cluster")


async def test_a_store_finds_the_node_of_its_namespace_and_lives_there(nodes):
    first, second = nodes
    async with RedisStore(first.url) as store:
        watch = store.watch([work_topic("default")])
        jobs = await accept_all(store, 5, now=None, owner="ann", key=None)
        assert await watch.wait(MINUTE)
        watch.close()
        leases = (await store.exchange(Exchange(claim=Claim(worker="w", limit=3)))).leases
        ends = [settle(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]
        assert (await store.exchange(Exchange(settle=ends))).settled == [True] * 3
        assert [answer.verdict for answer in await asyncio.to_thread(store.insert_now, [spec()])] == ["new"]
        await assert_sound(store, jobs)
        assert str(second.port) in repr(store)

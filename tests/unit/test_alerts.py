"""Alerts: thresholds, hysteresis, one notice per change, and who watches."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from daybreak import Client
from daybreak.api.alerts import AlertWatch, read_alerts, watch
from daybreak.api.alerts.settings import AlertSettings, alert_settings
from daybreak.core.errors import BadInput
from daybreak.core.model import Put
from daybreak.policy.alerts import MAX_ALERTS, MAX_NOTICES, AlertState, Figure, Threshold, judge
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.builders import FATAL, accept_all, claim_jobs, settle

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOOK = timedelta(seconds=15)


def looks(*values, rule="depth", state=None, **how):
    """The levels after each look, and the final state."""
    state, levels, now = state or AlertState(), [], NOON
    for value in values:
        figures = [] if value == "gone" else [Figure(rule, "sims", value)]
        state = judge(state, figures, now, thresholds=how.get("thresholds", {}), sinks=("log",))
        levels.append(next((alert.level for alert in state.alerts), "ok"))
        now += LOOK
    return levels, state


def test_each_level_is_told_once_and_so_is_the_recovery():
    levels, state = looks(99, 100, 130, 500, 501, 700, 100, 90, 10, 10, 10)
    assert levels == ["ok", "warning", "warning", "critical", "critical", "critical", "critical", "warning", "warning",
                      "ok", "ok"]  # fmt: skip
    assert [(notice.before, notice.level) for notice in state.notices] == [
        ("ok", "warning"), ("warning", "critical"), ("critical", "warning"), ("warning", "ok"),
    ]  # fmt: skip
    assert len({notice.id for notice in state.notices}) == 4
    assert "sims" in state.notices[0].advice


def test_a_value_around_its_threshold_does_not_flap():
    levels, state = looks(*[101, 99] * 50)
    assert set(levels) == {"warning"}
    assert len(state.notices) == 1


def test_a_level_is_left_only_after_two_calm_looks():
    levels, _ = looks(100, 10, 100, 10, 10)
    assert levels == ["warning", "warning", "warning", "warning", "ok"]


def test_a_subject_that_is_gone_recovers_and_is_forgotten():
    levels, state = looks(100, "gone", "gone")
    assert levels[-1] == "ok"
    later = judge(state, [], NOON + timedelta(days=8), thresholds={}, sinks=())
    assert later.alerts == ()


def test_too_little_to_judge_changes_nothing():
    levels, state = looks(0.2, None, None, None, rule="timeout_rate")
    assert levels == ["critical"] * 4
    assert len(state.notices) == 1


def test_thresholds_of_one_queue_outrank_those_of_all():
    thresholds = {("depth", "sims"): Threshold(None, 1000), ("depth", None): Threshold(1, 2)}
    assert looks(500, 999, 1000, thresholds=thresholds)[0] == ["ok", "ok", "critical"]


def test_alerts_and_notices_are_bounded():
    figures = [Figure("depth", f"q{n}", 1e6) for n in range(MAX_ALERTS + 100)]
    state = judge(AlertState(), figures, NOON, thresholds={}, sinks=())
    assert (len(state.alerts), len(state.notices)) == (MAX_ALERTS, MAX_NOTICES)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_are_read_with_their_units():
    table = {
        "depth": [10, 20], "average_wait": ["1m", "1h"], "timeout_rate": False, "no_worker": [False, "5m"],
        "queues": {"night": {"average_wait": ["2h", False]}}, "webhook": "https://example.com/x",
        "webhook_secret_env": "S", "command": ["notify", "x"],
    }  # fmt: skip
    found = alert_settings(table, {"S": "secret"})
    assert found.thresholds == {
        ("depth", None): Threshold(10, 20), ("average_wait", None): Threshold(60, 3600),
        ("timeout_rate", None): Threshold(None, None), ("no_worker", None): Threshold(None, 300),
        ("average_wait", "night"): Threshold(7200, None),
    }  # fmt: skip
    assert (found.webhook, found.webhook_secret, found.command) == ("https://example.com/x", "secret", ("notify", "x"))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"deepth": [1, 2]}, "did you mean 'depth'"),
        ({"depth": 5}, "two values"),
        ({"depth": [5, 1]}, "must not be higher"),
        ({"depth": [-1, 5]}, "above 0"),
        ({"average_wait": [30, 60]}, 'write it as "30s"'),
        ({"timeout_rate": [5, 15]}, "5 % is 0.05"),
        ({"webhook": "ftp://x"}, "https://"),
        ({"webhook_secret_env": "NOT_SET"}, "NOT_SET"),
        ({"command": "notify"}, "list of words"),
        ({"enabled": "yes"}, "true or false"),
        ({"queues": {"night": {"x": [1, 2]}}}, "alerts.queues.night.x"),
        ({"queues": []}, "one per queue"),
    ],
)
def test_a_wrong_setting_is_named(table, says):
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        alert_settings(table, {})


# -- the watch ---------------------------------------------------------------------------------------------------------


class Watched:
    """A store on virtual time, and watches on it. Notices end up in `heard`."""

    def __init__(self, **settings) -> None:
        self.clock = HandClock(NOON)
        self.store = MemoryStore(self.clock)
        self.client = Client(self.store, by="watch", world=self.clock)
        self.settings = AlertSettings(**settings)
        self.heard: list[tuple[str, str]] = []

    def watch(self) -> AlertWatch:
        made = AlertWatch(self.client, self.settings, self.clock)

        def hear(notice) -> str:
            self.heard.append((notice.rule, notice.level))
            return ""

        made._sinks = {"log": hear}
        return made


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_five_thousand_equal_failures_give_one_alert_and_one_recovery(watched):
    """Two watches, one of which is started anew in the middle."""
    first, second = watched.watch(), watched.watch()
    failed = 0
    for look in range(60):
        now = watched.clock.now
        if look < 25:
            await accept_all(watched.store, 200, now=now)
            for lease in await claim_jobs(watched.store, 200, now=now):
                await settle(watched.store, lease, FATAL, now=now)
                failed += 1
        else:
            await accept_all(watched.store, 30, now=now)
            for lease in await claim_jobs(watched.store, 30, now=now):
                await settle(watched.store, lease, now=now)
        await asyncio.gather(first.check(), second.check())
        if look == 12:
            first = watched.watch()
        watched.clock.advance(LOOK)
    assert failed == 5000
    rules = {rule for rule, _ in watched.heard}
    assert rules == {"failure_rate"}
    assert watched.heard == [("failure_rate", "critical"), ("failure_rate", "ok")]


async def test_one_watch_looks_and_another_takes_over_when_it_is_silent(watched):
    first, second = watched.watch(), watched.watch()
    assert await first.check()
    assert not await second.check()
    watched.clock.advance(LOOK)
    assert await first.check()
    for _ in range(3):
        assert not await second.check()
        watched.clock.advance(LOOK)
    assert await second.check()
    assert not await first.check()


async def test_a_notice_that_was_recorded_but_not_delivered_is_delivered_by_the_next(watched):
    await accept_all(watched.store, 150, now=watched.clock.now)
    dying = watched.watch()

    async def die(_notices) -> None:
        raise asyncio.CancelledError

    dying._deliver = die
    with pytest.raises(asyncio.CancelledError):
        await dying.check()
    assert watched.heard == []
    watched.clock.advance(timedelta(minutes=1))
    after = watched.watch()
    await after.check()
    watched.clock.advance(timedelta(minutes=1))
    await after.check()
    assert [heard for heard in watched.heard if heard[0] == "depth"] == [("depth", "warning")]
    assert all(not notice.undelivered for notice in (await read_alerts(watched.client)).notices)


async def test_a_delivery_that_fails_is_tried_thrice_and_stays_visible(watched, monkeypatch):
    monkeypatch.setattr(watch, "FIRST_RETRY_DELAY", timedelta(0))
    await accept_all(watched.store, 150, now=watched.clock.now)
    tries = []

    def fails(notice) -> str:
        tries.append(notice.id)
        return "the server answers 500"

    looking = watched.watch()
    looking._sinks = {"webhook": fails}
    await looking.check()
    [notice] = (await read_alerts(watched.client)).notices
    assert notice.errors == {"webhook": "the server answers 500"}
    assert tries == [notice.id] * 3


async def test_jobs_that_nobody_serves_raise_an_alert(watched):
    await accept_all(watched.store, 3, queue="lonely", now=watched.clock.now)
    watched.clock.advance(timedelta(seconds=59))
    looking = watched.watch()
    await looking.check()
    assert watched.heard == []
    watched.clock.advance(timedelta(seconds=2))
    await looking.check()
    assert watched.heard == [("no_worker", "critical")]


async def test_a_record_of_another_version_is_begun_anew(watched):
    await watched.store.put([Put(kind=watch.RECORD_KIND, name=watch.RECORD_NAME, value=b"[1, 2]", expect=0)])
    assert await watched.watch().check()
    [record] = await watched.store.records(watch.RECORD_KIND)
    assert msgspec.json.decode(record.value)["looked_at"]

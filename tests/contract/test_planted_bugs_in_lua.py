"""Redis has a state machine of its own, in Lua: a bug that is planted in it is caught by the contract.

Each row is a bug: what the scripts say, what they say then, and the test that fails."""

from __future__ import annotations

import hashlib

import pytest
from redis_servers import REDIS, fresh, need_redis
from test_planted_bugs import CAUGHT

from daybreak.stores.redis import RedisStore, scripts
from daybreak.stores.redis.scripts import Script
from daybreak.testing import StoreContract

BUGS = {
    "follower_without_leader": (
        "    entry.leader = nil\n    hand_over(entry)\n",
        "    entry.leader = nil\n",
        "test_a_waiting_leader_that_is_cancelled_hands_over",
    ),
    "follower_of_a_failed_job_has_no_leader": (
        "  elseif state > COMPLETED or state == SUSPENDED then\n    M.leave_flight(job)\n",
        "",
        "test_a_leader_that_fails_hands_over",
    ),
    "failure_is_cached": (
        "  if state == COMPLETED then\n    M.deliver(",
        "  if state >= COMPLETED then\n    M.deliver(",
        "test_a_failure_on_the_last_attempt_is_not_kept",
    ),
    "old_result_is_used": (
        "return counts(entry) and (entry.till == NONE or now < entry.till)",
        "return counts(entry)",
        "test_a_result_may_be_used_for_as_long_as_it_was_asked",
    ),
    "result_goes_with_its_jobs": (
        "if entry.flight == '' and entry.refs == 0 then",
        "if entry.refs == 0 then",
        "test_a_result_outlives_the_job_that_computed_it",
    ),
    "hit_takes_room": (
        "return M.is_known(name)",
        "return false",
        "test_a_hit_takes_no_room_in_a_full_queue",
    ),
    "waits_for_another_queue": (
        "if M.queue_of(leader.lane) ~= M.queue_of(job.lane) then return NEW end",
        "",
        "test_a_job_of_another_queue_does_not_wait",
    ),
    "leader_is_not_urged": (
        "job.priority < leader.priority then\n    M.rerank(leader",
        "false then\n    M.rerank(leader",
        "test_a_leader_gets_the_priority_of_a_more_urgent_follower",
    ),
    "followers_are_left_behind": (
        "entry.landing = landed < #waiting",
        "entry.landing = false",
        "test_many_followers_are_completed_in_bounded_chunks",
    ),
    "last_used_makes_room": (
        "local oldest = call('ZRANGE', name",
        "local oldest = call('ZREVRANGE', name",
        "test_what_was_used_longest_ago_makes_room",
    ),
    "due_job_does_not_decide": (
        "    if M.has(job.marks, K.FLIGHT) then M.join(job) end\n  end\n  M.flush()\n  return #due",
        "  end\n  M.flush()\n  return #due",
        "test_a_scheduled_job_is_completed_when_it_falls_due",
    ),
    "retried_hit_is_a_hit": (
        "if entry and entry.flight ~= '' and not entry.landing then drop_entry(entry) end",
        "",
        "test_a_completed_job_that_is_retried_by_hand_runs_again",
    ),
}


@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_in_lua_is_caught(name, monkeypatch):
    need_redis()
    right, wrong, caught_by = BUGS[name]
    planted = 0
    for script in vars(scripts).values():
        if isinstance(script, Script) and right.encode() in script.text:
            text = script.text.replace(right.encode(), wrong.encode())
            monkeypatch.setattr(script, "text", text)
            monkeypatch.setattr(script, "sha", hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
            planted += 1
    assert planted
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store:
            with pytest.raises(CAUGHT):
                await getattr(StoreContract(), caught_by)(store)

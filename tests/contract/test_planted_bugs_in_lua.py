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
    "fence_stays": (
        "attempt, fence, n = attempt + 1, fence + 1, n + 1",
        "attempt, n = attempt + 1, n + 1",
        "test_fences_only_grow",
    ),
    "holders_have_one_fence": (
        "job.fence = math.max(job.fence, M.gauge(needs[i].resource).fence)",
        "job.fence = job.fence",
        "test_every_holder_has_a_higher_fence_than_all_before",
    ),
    "result_is_not_marked": (
        "then marks = marks + 16 end",
        "then marks = marks end",
        "test_every_byte_of_a_result_comes_back",
    ),
    "scheduled_job_has_no_time": (
        "0, 0, 1, 0, 0, x, y, -1)",
        "0, 0, 1, 0, 0, x, -1, -1)",
        "test_a_resumed_job_still_waits_for_its_time",
    ),
    "follower_without_leader": (
        "    entry.leader = nil\n    hand_over(entry)\n",
        "    entry.leader = nil\n",
        "test_a_waiting_leader_that_is_cancelled_hands_over",
    ),
    "follower_of_a_failed_job_has_no_leader": (
        "  elseif state >= COMPLETED or state == SUSPENDED then\n    M.leave_flight(job)\n",
        "",
        "test_a_leader_that_fails_hands_over",
    ),
    "failure_is_cached": (
        "  if state == COMPLETED and not",
        "  if state >= COMPLETED and not",
        "test_a_failure_on_the_last_attempt_is_not_kept",
    ),
    "result_of_other_code_is_cached": (
        "  if state == COMPLETED and not M.has(fate.parts, IS_UNKEPT) then",
        "  if state == COMPLETED then",
        "test_a_result_that_is_not_to_be_kept_is_that_of_its_job_alone",
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
        "if entry and entry.flight ~= '' then forget(entry) end",
        "",
        "test_a_completed_job_that_is_retried_by_hand_runs_again",
    ),
    "result_lives_while_followers_are_left": (
        "  if is_usable(entry) then\n    entry.till = now\n",
        "  if false then\n    entry.till = now\n",
        "test_a_job_that_is_retried_by_hand_while_followers_are_left_runs_again",
    ),
    "SkippedJobIsGone": (
        "    if not claim.batches then\n      removed[lane.name] = (removed[lane.name] or 0) + 1\n",
        "    if true then\n      removed[lane.name] = (removed[lane.name] or 0) + 1 + (mates and #mates or 0)\n",
        "test_jobs_that_a_call_passes_over_stay_as_they_were",
    ),
    "BatchMixesKeys": (
        "  if batching.linger >= 0 and 1 + #mates < size then",
        """  local other = M.hget('batch', head.seq) == 'a' and 'b' or 'a'
  other = search('company:' .. text(head.lane) .. ':' .. other, head, 1, SEARCHED, claim.spoken_for)
  if #mates < size - 1 then mates[#mates + 1] = other[1] end
  if batching.linger >= 0 and 1 + #mates < size then""",
        "test_one_call_never_mixes_keys_tasks_versions_or_queues",
    ),
    "SlotLeaksWithHead": (
        "if left == 0 and job.needs then",
        "if left == 0 and head == job.seq and job.needs then",
        "test_a_call_holds_its_slots_until_its_last_job_is_settled",
    ),
    "slot_is_free_with_the_head": (
        "if left == 0 and job.needs then",
        "if head == job.seq and job.needs then",
        "test_a_call_holds_its_slots_until_its_last_job_is_settled",
    ),
    "two_calls_have_one_number": (
        "if batching and not M.hget('left', seq) then",
        "if batching then",
        "test_a_head_that_left_its_call_begins_no_other_until_that_has_ended",
    ),
    "cancel_only_asks": (
        "if job.state == RUNNING and not M.has(job.flags, K.DETACHED) then",
        "if job.state == RUNNING then",
        "test_cancelling_a_detached_job_ends_it_at_once",
    ),
    "worker_keeps_the_lease": (
        "elseif M.has(job.flags, K.DETACHED) and not beat.detach then",
        "elseif false then",
        "test_a_late_heartbeat_of_the_worker_changes_nothing",
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

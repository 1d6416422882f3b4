"""The contract finds bugs: each row is a promise, a store that breaks it by one planted bug, and the test that fails.

The bugs are those that job queues really have. A contract test that passes on a broken store is worth nothing."""

from __future__ import annotations

import contextlib
import inspect
from datetime import timedelta

import pytest
from bugs import batches, counting, detached, flights, jobs, names, resources, stores, versions
from bugs.planting import Bug
from sqlite_programs import SqlitePrograms

from daybreak.core.errors import StoreTooNew
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing import HandClock, StoreContract
from daybreak.testing.contract import holders, shedding

BUGS = [
    # promise, what is wrong, who notices
    (1, jobs.resumed_job_is_forgotten, "test_a_suspended_job_is_held_until_it_is_resumed"),
    (1, jobs.started_job_is_still_scheduled, "test_a_scheduled_job_can_be_started_before_its_time"),
    (1, jobs.same_id_is_a_new_job, "test_submitting_the_same_id_twice_is_one_job"),
    (1, stores.OneBadItemSinksTheBatch, "test_one_bad_item_sinks_no_other_in_a_batch"),
    (1, jobs.refused_job_keeps_its_key, "test_a_refused_job_leaves_no_trace"),
    (2, jobs.no_fence_in_settle, "test_a_lost_lease_cannot_settle"),
    (2, jobs.no_fence_in_extend, "test_a_lost_lease_cannot_be_extended_nor_write_under_it"),
    (2, jobs.reaper_keeps_the_fence, "test_the_reaper_is_fenced_too"),
    (2, jobs.repeated_settlement_is_refused, "test_repeating_a_settlement_answers_true_and_changes_nothing"),
    (2, jobs.refused_settlement_inserts, "test_what_a_refused_settlement_brings_does_not_happen"),
    (2, jobs.retry_starts_fences_anew, "test_fences_only_grow"),
    (3, jobs.last_in_first_out, "test_one_priority_is_first_in_first_out"),
    (3, jobs.priority_ignored, "test_the_most_urgent_priority_is_claimed_first"),
    (3, jobs.order_by_clock, "test_first_in_first_out_goes_by_sequence_and_not_by_a_clock"),
    (3, jobs.released_job_goes_to_the_back, "test_a_job_that_comes_back_stands_where_it_stood"),
    (3, jobs.queues_in_order_of_naming, "test_the_most_urgent_priority_goes_first_over_several_queues"),
    (3, jobs.weights_ignored, "test_turns_between_queues_follow_their_weights"),
    (3, jobs.served_ignored, "test_turns_go_on_from_what_was_served_before"),
    (3, jobs.choice_is_forgotten, "test_a_claim_that_names_a_job_takes_it_and_leaves_those_before_it"),
    (3, jobs.chosen_job_ignores_its_state, "test_a_job_that_is_not_queued_cannot_be_chosen"),
    (4, jobs.chosen_job_ignores_limits, "test_a_chosen_job_keeps_to_queues_tasks_pauses_and_max_running"),
    (3, jobs.aging_forgotten, "test_aging_passes_a_job_over_only_within_the_stated_bound"),
    (4, jobs.max_running_off_by_one, "test_max_running_is_never_exceeded_and_never_leaks"),
    (4, jobs.max_running_leaks, "test_max_running_is_never_exceeded_and_never_leaks"),
    (4, jobs.lapsed_lease_makes_room, "test_max_running_counts_a_lease_that_ran_out_until_it_is_settled"),
    ("full queues", jobs.full_queue_is_not_told, "test_a_queue_that_refuses_for_its_capacity_tells_so_once"),
    ("full queues", jobs.full_queue_is_not_told, "test_a_queue_that_sheds_tells_so_before_it_does"),
    ("full queues", jobs.full_queue_is_told_each_time, "test_a_queue_that_refuses_for_its_capacity_tells_so_once"),
    (4, jobs.capacity_leaks, "test_capacity_is_free_again_after_every_kind_of_end"),
    (4, jobs.capacity_counts_queued_only, "test_capacity_counts_every_unfinished_job_and_no_other"),
    (4, resources.one_slot_too_many, "test_slots_are_never_exceeded_and_never_leak"),
    (4, resources.suspended_job_keeps_its_slots, "test_slots_are_never_exceeded_and_never_leak"),
    (4, resources.taken_over_lease_frees_its_slots, "test_a_dead_holders_slot_is_free_again_when_its_lease_is_settled"),
    (4, resources.all_but_one_is_taken, "test_several_resources_are_all_or_none"),
    (4, resources.every_second_is_a_burst, "test_in_any_window_at_most_burst_and_rate_start"),
    (4, resources.token_comes_back, "test_a_job_handed_back_returns_no_token"),
    (4, resources.unused_start_is_lost, "test_a_lease_that_was_never_used_returns_its_start_at_once"),
    (4, resources.unused_start_is_lost, "test_several_of_one_claim_return_a_start_each"),
    (4, resources.only_the_latest_start_comes_back, "test_of_a_burst_a_start_returns_though_another_has_started_since"),
    (4, resources.token_comes_back_too_late, "test_no_start_is_returned_once_another_has_started_since"),
    (4, resources.token_comes_back_too_late, "test_the_rate_holds_whatever_is_handed_back"),
    (4, resources.token_comes_back_too_late, "test_the_rate_holds_whatever_is_handed_back"),
    (4, resources.unused_start_comes_back_twice, "test_a_repeated_settlement_returns_no_second_start"),
    (4, resources.unused_start_stays_unoffered, "test_a_lease_that_was_never_used_returns_its_start_at_once"),
    ("shares", resources.blocked_job_is_charged, "test_a_job_that_must_wait_is_blocked_and_not_charged"),
    ("shares", resources.freed_is_not_offered, "test_one_exchange_gives_a_slot_back_and_takes_it_again"),
    ("shares", resources.turn_is_lost_with_its_job,
     "test_a_job_that_goes_while_it_may_try_leaves_its_turn_to_the_next"),
    ("shares", resources.turn_is_lost_with_its_job, "test_what_one_cannot_use_goes_to_the_next"),
    ("shares", resources.offered_to_one_queue_only, "test_a_paused_queue_does_not_sit_on_a_free_slot"),
    ("shares", resources.offered_to_one_queue_only, "test_a_task_that_nobody_knows_does_not_sit_on_a_free_slot"),
    ("shares", resources.nothing_is_kept, "test_a_job_that_needs_two_slots_is_not_passed_over_for_ever"),
    ("shares", resources.nothing_is_kept, "test_a_job_that_needs_two_resources_is_not_passed_over_for_ever"),
    ("shares", resources.reserves_for_the_second, "test_what_is_freed_after_long_goes_to_the_first_in_rank"),
    ("shares", resources.reserves_for_whom_nobody_claims, "test_nothing_is_kept_for_a_paused_queue"),
    ("shares", resources.reserves_for_whom_nobody_claims, "test_nothing_is_kept_for_a_task_that_nobody_knows"),
    ("shares", resources.less_urgent_keeps_what_it_has, "test_a_more_urgent_job_takes_over_what_is_kept"),
    ("shares", resources.less_urgent_keeps_what_it_has, "test_what_was_kept_of_others_is_free_when_one_goes_before"),
    ("shares", resources.whole_line_is_parked_at_once, "test_one_claim_parks_a_bounded_number_and_says_so"),
    ("shares", resources.time_frees_nothing, "test_those_who_wait_for_the_pace_are_queued_when_their_time_comes"),
    ("gates", resources.shut_gate_lets_probes_through, "test_nothing_starts_while_the_gate_is_shut"),
    ("gates", resources.everyone_is_a_probe, "test_nothing_starts_while_the_gate_is_shut"),
    ("locks", resources.whoever_came_first_is_granted, "test_what_is_freed_goes_to_the_best_ranked_of_those_who_wait"),
    ("locks", resources.waiters_deadline_is_forgotten, "test_one_who_waited_too_long_is_never_granted"),
    ("locks", resources.fences_of_a_lock_start_anew, "test_every_holder_has_a_higher_fence_than_all_before"),
    ("locks", resources.waiter_is_not_told, "test_who_waits_is_told"),
    ("budget", resources.retries_are_free, "test_retries_are_a_tenth_of_first_tries_while_a_resource_fails"),
    ("budget", resources.first_tries_wait_too, "test_first_tries_never_wait_for_it"),
    ("budget", resources.retries_never_come_back, "test_retries_go_on_when_it_works_again"),
    ("budget", resources.nothing_is_owed, "test_what_was_tried_beyond_the_budget_is_owed"),
    ("budget", resources.turn_of_a_retry_is_lost, "test_an_offer_that_is_not_taken_goes_to_the_next"),
    ("haste", resources.patience_is_forced, "test_one_that_will_not_wait_fails_at_an_open_breaker"),
    ("haste", resources.haste_is_forced, "test_one_that_waits_already_fails_when_it_opens"),
    ("shedding", counting.sheds_anyone, "test_only_less_urgent_jobs_are_shed"),
    ("shedding", counting.sheds_the_first, "test_a_full_queue_sheds_the_last_in_line_for_a_more_urgent_job"),
    ("shedding", counting.sheds_in_silence, "test_who_waits_for_a_job_that_is_shed_is_told"),
    ("shedding", counting.sheds_in_silence, "test_a_waiter_that_is_shed_is_told"),
    ("shedding", counting.sheds_queued_jobs_only, "test_a_full_lock_queue_sheds_the_least_urgent_waiter"),
    ("shedding", counting.sheds_waiters_only_if_none_is_queued, "test_queued_and_blocked_jobs_are_shed_in_one_order"),
    ("shedding", counting.sheds_the_holder, "test_the_holder_of_a_lock_is_never_shed"),
    ("shedding", counting.shed_waiter_is_still_counted, "test_a_full_lock_queue_sheds_the_least_urgent_waiter"),
    ("shedding", counting.sheds_any_waiter_at_a_resource, "test_a_crowded_resource_sheds_one_who_waits_for_it"),
    ("shedding", counting.sheds_at_one_of_two_resources, "test_no_job_makes_room_at_two_crowded_resources"),
    ("shedding", counting.shrinks_for_everyone, "test_urgent_jobs_and_those_without_a_limit_wait_as_long_as_ever"),
    (10, stores.WorkersGoByTheirHost, "test_a_restarted_worker_is_not_given_what_the_one_before_it_claimed"),
    (12, jobs.long_results_are_cut, "test_a_result_of_four_megabytes_comes_back_whole"),
    (12, jobs.empty_results_are_none, "test_an_empty_result_is_a_result"),
    (9, stores.RunCountForgetsTheSuspended, "test_the_count_of_a_run_equals_a_recount_in_every_state"),
    (9, counting.refused_settlement_counts, "test_a_settlement_that_is_refused_or_repeated_counts_nothing"),
    (9, counting.repeated_settlement_counts, "test_a_settlement_that_is_refused_or_repeated_counts_nothing"),
    (9, counting.duplicates_are_submitted, "test_duplicates_and_refused_jobs_are_not_submitted"),
    (9, counting.totals_go_with_their_jobs, "test_totals_outlive_their_jobs"),
    (9, counting.every_job_is_a_batch, "test_one_exchange_is_one_batch_of_each_kind"),
    (9, counting.latest_is_a_sum, "test_every_way_to_end_is_counted_once"),
    (9, counting.expired_is_not_counted, "test_every_way_to_end_is_counted_once"),
    (5, jobs.hand_back_is_charged, "test_a_job_handed_back_is_not_charged"),
    (5, jobs.reaper_charges, "test_a_reapers_own_lease_charges_nothing"),
    (5, jobs.attempt_counted_at_the_end, "test_an_attempt_is_counted_when_it_is_claimed"),
    (5, jobs.lapsed_lease_cannot_settle, "test_a_lapsed_lease_not_taken_over_can_still_settle"),
    (5, jobs.lapsed_lease_cannot_extend, "test_a_lapsed_lease_not_taken_over_can_still_be_extended"),
    ("deaths", jobs.alone_is_not_kept, "test_what_a_holder_says_of_its_lease_comes_back_when_it_is_taken_over"),
    ("deaths", jobs.alone_is_not_kept, "test_a_job_ends_through_deaths_only_after_it_died_alone"),
    ("deaths", jobs.any_heartbeat_takes_alone_back, "test_a_heartbeat_that_does_not_say_so_leaves_it"),
    ("deaths", jobs.alone_for_good, "test_a_holder_may_take_it_back"),
    ("deaths", jobs.revived_lease_is_not_alone, "test_a_lease_that_ran_out_and_was_revived_keeps_it"),
    ("deaths", jobs.take_over_forgets_alone, "test_what_a_holder_says_of_its_lease_comes_back_when_it_is_taken_over"),
    ("deaths", jobs.second_take_over_forgets_alone, "test_reaper_after_reaper_passes_it_on"),
    ("deaths", jobs.next_claim_is_alone_too, "test_the_next_claim_starts_without_it"),
    ("deaths", jobs.retried_job_is_alone_too, "test_a_retry_by_a_person_starts_without_it"),
    ("deaths", jobs.charged_without_beginning, "test_what_is_claimed_ahead_has_not_begun"),
    ("deaths", jobs.charged_without_beginning, "test_a_death_is_charged_to_what_had_begun_and_to_nothing_else"),
    ("deaths", jobs.charged_without_beginning, "test_a_job_that_never_began_outlives_any_number_of_deaths"),
    ("deaths", jobs.charged_without_beginning, "test_reaper_after_reaper_passes_on_what_had_not_begun"),
    ("deaths", jobs.ahead_from_the_first, "test_a_claim_that_does_not_say_how_many_begin_begins_all"),
    ("deaths", jobs.ahead_from_the_first, "test_work_claimed_ahead_beside_settlements_has_not_begun"),
    ("deaths", jobs.beginning_is_not_kept, "test_what_was_claimed_ahead_begins_when_its_holder_says_so"),
    ("deaths", jobs.any_heartbeat_begins, "test_other_heartbeats_leave_begun_as_it_is"),
    ("deaths", jobs.begun_for_good, "test_a_holder_may_say_that_it_has_not_begun_after_all"),
    ("deaths", jobs.next_claim_is_ahead_too, "test_the_next_claim_begins_whatever_became_of_the_last"),
    ("deaths", jobs.no_fence_in_extend, "test_a_lost_lease_cannot_say_that_it_begins"),
    ("deaths", jobs.no_fence_in_extend, "test_a_lost_lease_cannot_say_so"),
    ("deaths", jobs.no_fence_in_extend, "test_a_lost_lease_cannot_take_it_back"),
    ("lost answers", stores.RepeatedClaimTakesMore, "test_a_claim_whose_answer_was_lost_is_answered_again"),
    ("lost answers", stores.RepeatedClaimTakesFromOthers, "test_a_repeated_claim_knows_its_own_leases_only"),
    ("lost answers", names.reaped_lease_is_answered_again, "test_a_repeated_claim_knows_its_own_leases_only"),
    ("moves", names.adopted_job_keeps_its_fence, "test_a_job_that_ended_stays_as_it_was"),
    ("moves", names.adopted_job_starts_anew, "test_a_waiting_job_is_claimed_in_its_place_under_a_higher_fence"),
    ("moves", names.adopted_job_is_early, "test_a_scheduled_job_is_due_when_it_was"),
    ("moves", names.adopted_twice, "test_asked_again_nothing_changes"),
    ("moves", names.adopted_name_is_not_held, "test_unique_names_go_along"),
    ("moves", names.one_key_goes_along, "test_every_key_of_a_job_goes_along"),
    ("moves", names.adopted_key_is_in_nobodys_way, "test_any_key_that_stands_for_another_is_in_the_way"),
    ("moves", names.moved_key_is_spent_from_its_submit_on, "test_a_job_that_moved_leaves_its_key_spent_for_a_day"),
    ("moves", names.adopted_job_takes_a_name_it_gave_up, "test_a_job_that_gave_up_its_unique_name_moves_without_it"),
    ("moves", names.new_job_keeps_the_time_of_a_spent_key, "test_a_key_lives_as_long_as_its_job_also_there_and_back"),
    ("moves", names.moved_job_does_not_say_when_it_is_due, "test_a_scheduled_job_is_due_when_it_was"),
    ("moves", names.held_job_is_packed_without_its_time, "test_a_suspended_job_waits_on_when_it_is_resumed"),
    ("moves", stores.HalfABatchIsAdopted, "test_what_cannot_be_adopted_is_refused_before_anything_is_written"),
    ("moves", names.history_stays_behind, "test_a_job_that_ended_stays_as_it_was"),
    ("moves", stores.ChangedJobIsDroppedAsMoved, "test_only_what_has_not_changed_since_is_dropped"),
    (6, jobs.cancelled_job_stays_ready, "test_cancelled_before_start_never_starts"),
    (6, jobs.cancel_request_forgotten, "test_a_running_job_asked_to_cancel_ends_cancelled"),
    (6, jobs.running_job_is_cancelled_at_once, "test_cancelling_a_running_job_is_a_request_and_says_so"),
    (6, jobs.final_jobs_can_be_cancelled, "test_final_is_final"),
    (7, names.key_ignored, "test_same_key_with_same_content_is_one_job"),
    (7, names.content_ignored, "test_same_key_with_other_content_is_a_conflict"),
    (7, names.removed_job_keeps_its_key, "test_removing_a_job_frees_its_key"),
    (7, names.removed_job_frees_one_key, "test_removing_a_job_frees_every_key_it_answers_for"),
    (7, names.purged_key_is_forgotten, "test_a_purged_job_leaves_its_key_spent"),
    (7, names.purged_key_answers_a_ghost, "test_a_purged_job_leaves_its_key_spent"),
    (7, names.purged_key_takes_other_content, "test_a_spent_key_with_other_content_is_a_conflict"),
    (7, names.spent_key_waits_for_the_janitor, "test_a_spent_key_is_free_a_day_after_its_submit_also_before_a_purge"),
    (7, names.key_is_spent_from_the_purge_on, "test_the_record_of_a_spent_key_goes_when_its_time_is_over"),
    (7, names.attached_key_is_as_old_as_its_job, "test_a_key_is_spent_from_the_submit_under_it_on"),
    (7, names.new_job_keeps_the_time_of_a_spent_key,
     "test_a_spent_key_is_free_a_day_after_its_submit_also_before_a_purge"),
    (7, names.code_is_not_answered, "test_a_key_says_by_what_code_its_job_was_submitted"),
    (7, names.running_job_keeps_its_name, "test_a_running_job_can_be_submitted_again_under_its_unique_name"),
    (7, names.every_running_job_gives_up_its_name, "test_without_it_a_running_job_keeps_its_name"),
    (7, names.waiting_job_gives_up_its_name, "test_one_waiting_job_stands_in_the_way_of_the_next"),
    (7, names.ended_job_frees_the_name_of_another, "test_the_end_of_a_job_does_not_free_a_name_it_gave_up"),
    (7, names.unique_name_is_kept_for_ever, "test_a_unique_name_is_free_once_its_job_has_ended"),
    (8, names.reaper_ignores_outages, "test_after_an_outage_every_holder_gets_one_lease_to_report"),
    (8, stores.LeasesByWallClock, "test_a_wall_clock_that_jumps_expires_no_lease"),
    (8, stores.LeasesByWallClock, "test_a_wall_clock_that_is_set_back_keeps_no_lease_alive"),
    (8, stores.RunAtBySteadyClock, "test_a_scheduled_instant_goes_by_the_wall_clock"),
    (8, names.clock_jump_expires, "test_a_jump_of_the_clock_ends_no_job_and_deletes_nothing"),
    (8, names.held_job_is_packed_without_its_time,
     "test_a_job_moved_after_a_jump_takes_along_what_is_left_of_its_wait"),
    (8, stores.ClockJumpPurges, "test_a_jump_of_the_clock_ends_no_job_and_deletes_nothing"),
    (8, names.delays_stand_still, "test_a_clock_set_back_leaves_delays_running"),
    (8, stores.RunAtBySteadyClock, "test_a_jump_of_the_clock_moves_what_people_are_shown"),
    (8, names.reap_is_judged_when_it_arrives, "test_a_reaper_suspended_while_it_asks_takes_nothing_over"),
    (8, names.nobody_is_reaped, "test_a_dead_workers_job_runs_again_within_two_leases"),
    (9, names.event_numbers_have_gaps, "test_events_are_numbered_without_gaps"),
    (9, names.reprioritised_in_silence, "test_events_fold_to_the_stored_state"),
    (9, names.nobody_did_it, "test_every_change_says_who_made_it"),
    (9, names.end_is_not_in_the_feed, "test_a_job_that_completed_tells_its_end"),
    (9, names.end_is_not_in_the_feed, "test_a_job_that_failed_tells_its_end"),
    (9, names.end_is_not_in_the_feed, "test_a_job_cancelled_while_it_waits_tells_its_end"),
    (9, names.end_is_not_in_the_feed, "test_a_job_cancelled_while_it_runs_tells_its_end_when_it_is_settled"),
    (9, names.end_is_not_in_the_feed, "test_a_job_that_was_replaced_tells_its_end_and_by_what"),
    (9, names.end_is_not_in_the_feed, "test_a_job_that_expired_tells_its_end"),
    (9, names.end_is_not_in_the_feed, "test_a_job_that_was_shed_tells_its_end_and_for_what"),
    (9, names.end_is_not_in_the_feed, "test_a_job_that_fails_fast_at_a_breaker_tells_its_end"),
    (9, names.end_is_told_twice, "test_a_job_cancelled_while_it_runs_tells_its_end_when_it_is_settled"),
    (9, names.nobody_took_its_place, "test_a_job_that_was_replaced_tells_its_end_and_by_what"),
    (9, names.nobody_took_its_place, "test_a_job_that_was_shed_tells_its_end_and_for_what"),
    (6, jobs.cancelled_settlement_inserts,
     "test_what_a_settlement_brings_does_not_happen_if_its_job_is_being_cancelled"),
    (9, stores.FinishedJobForgetsItsWorker, "test_a_finished_job_names_the_worker_that_held_it_last"),
    (9, stores.UpdatedWhenItWasSubmitted, "test_a_job_was_updated_when_its_latest_event_happened"),
    (9, stores.ProgressIsAnUpdate, "test_progress_is_no_update"),
    (9, stores.ReaperIsTheLastWorker, "test_a_finished_job_names_the_worker_that_held_it_last"),
    (9, stores.TallyDrifts, "test_tallies_equal_a_recount"),
    (9, stores.CursorRepeatsAnEvent, "test_following_the_cursor_shows_every_event_once"),
    (9, stores.RunAndOwnerOfTheFirst, "test_the_first_event_names_run_and_owner"),
    (9, stores.EveryEventHasTheCursorOfItsPage, "test_a_reader_who_stops_behind_any_event_goes_on_with_the_next"),
    (9, stores.PurgedEventsAreAGap, "test_a_cursor_older_than_what_was_purged_is_an_error_and_not_a_gap"),
    (11, jobs.any_task_is_claimed, "test_unknown_tasks_wait_uncharged_and_do_not_stand_in_the_way"),
    (11, jobs.version_ignored, "test_a_claim_takes_only_the_versions_it_knows"),
    (11, jobs.unknown_head_blocks_the_queue, "test_unknown_tasks_wait_uncharged_and_do_not_stand_in_the_way"),
    ("time", jobs.expiry_ignored_by_claims, "test_an_expired_job_never_starts"),
    ("time", jobs.retries_expire, "test_expiry_limits_only_the_wait_for_the_first_start"),
    ("time", jobs.resumed_job_forgets_its_time, "test_a_resumed_job_still_waits_for_its_time"),
    ("changes", jobs.suspend_request_forgotten, "test_a_running_job_asked_to_suspend_is_held_when_it_comes_back"),
    ("changes", stores.BulkFollowsArrivals, "test_a_bulk_change_does_not_touch_later_arrivals"),
    ("changes", jobs.unfinished_jobs_can_be_removed, "test_only_finished_jobs_can_be_removed"),
    ("cache", flights.follower_without_leader, "test_a_leader_that_fails_hands_over"),
    ("cache", flights.follower_without_leader, "test_a_waiting_leader_that_is_cancelled_hands_over"),
    ("cache", flights.follower_without_leader, "test_a_leader_that_suspends_itself_hands_over"),
    ("cache", flights.failure_is_cached, "test_a_failure_on_the_last_attempt_is_not_kept"),
    ("cache", flights.hit_waits_for_queue, "test_a_hit_takes_no_room_in_a_full_queue"),
    ("cache", flights.hit_waits_for_queue, "test_a_hit_waits_for_no_queue"),
    ("cache", flights.two_leaders, "test_the_same_job_waits_for_the_one_that_is_there"),
    ("cache", flights.evicted_result_is_gone, "test_a_result_that_made_room_is_still_the_result_of_its_jobs"),
    ("cache", flights.last_come_leads, "test_followers_that_all_fail_fail_one_by_one"),
    ("cache", flights.scheduled_job_decides_at_submit, "test_nobody_waits_for_the_leader_of_tomorrow"),
    ("cache", flights.hits_are_not_counted, "test_hits_are_counted_with_the_time_that_they_saved"),
    ("cache", flights.leader_keeps_its_priority, "test_a_leader_gets_the_priority_of_a_more_urgent_follower"),
    ("cache", flights.rest_of_the_followers_is_forgotten, "test_claims_complete_the_followers_that_are_left"),
    ("cache", flights.result_is_used_for_ever, "test_a_result_may_be_used_for_as_long_as_it_was_asked"),
    ("cache", flights.size_is_not_limited, "test_what_was_used_longest_ago_makes_room"),
    ("cache", flights.unkept_result_is_kept, "test_a_result_that_is_not_to_be_kept_is_that_of_its_job_alone"),
    ("cache", flights.contents_take_no_room, "test_contents_to_which_a_result_refers_take_room"),
    ("cache", flights.large_result_drops_all_others,
     "test_a_result_larger_than_the_room_is_not_kept_and_nothing_makes_room_for_it"),
    ("cache", flights.only_the_first_attempt_counts, "test_success_on_a_later_attempt_is_kept"),
    ("cache", flights.queue_waits_for_another, "test_a_job_of_another_queue_does_not_wait"),
    ("cache", flights.result_ends_with_its_job, "test_a_result_outlives_the_job_that_computed_it"),
    ("cache", flights.retried_job_gets_its_old_result, "test_a_completed_job_that_is_retried_by_hand_runs_again"),
    ("cache", flights.result_lives_while_followers_are_left,
     "test_a_job_that_is_retried_by_hand_while_followers_are_left_runs_again"),
    ("cache", flights.only_a_few_make_room, "test_many_results_make_room_for_a_large_one"),
    ("cache", flights.moved_leader_leaves_nobody, "test_a_leader_that_moves_away_hands_over"),
    ("cache", flights.hit_does_not_say_whose_result_it_has,
     "test_a_known_result_completes_a_job_as_it_is_submitted"),
    ("records", names.no_compare_and_set, "test_compare_and_set_lets_one_of_two_writers_win"),
    ("records", names.insert_without_its_record, "test_jobs_that_come_with_a_record_are_not_inserted_without_it"),
    ("records", names.insert_without_its_record, "test_of_two_writers_of_a_record_only_the_jobs_of_one_are_inserted"),
    ("records", names.record_without_its_inserts, "test_jobs_that_come_with_a_record_are_inserted_with_it"),
    ("records", names.full_queue_refuses_what_a_record_brings,
     "test_jobs_that_come_with_a_record_go_into_a_full_queue"),
    ("records", names.revisions_start_anew, "test_a_revision_is_never_used_twice"),
    ("records", stores.HalfAnExchange, "test_settings_that_are_none_are_refused_and_nothing_of_the_call_is_written"),
    ("retention", stores.PurgesTooEarly, "test_a_finished_job_is_kept_as_long_as_it_asked_and_then_forgotten"),
    ("queries", stores.PagesByOffset, "test_paging_goes_on_while_jobs_come_and_go"),
    ("queries", stores.PagesOverlap, "test_paging_never_skips_or_repeats_a_job"),
    ("wakeups", stores.WakeUpIsLost, "test_a_wake_up_between_look_and_wait_is_not_lost"),
    ("wakeups", stores.WakeUpIsNotCalledOut, "test_a_wake_up_is_called_out_before_a_wait_is_over"),
    ("wakeups", names.request_is_not_told, "test_a_request_record_wakes_the_worker_that_it_names"),
    ("wakeups", names.schedule_is_not_told, "test_a_schedule_wakes_those_who_watch_schedules"),
    ("wakeups", names.saga_is_not_told, "test_a_mark_of_a_saga_wakes_those_who_watch_sagas"),
    ("wakeups", names.room_is_not_told, "test_room_under_max_running_wakes_the_queue"),
    (3, batches.SkippedJobIsGone, "test_jobs_that_a_call_passes_over_stay_as_they_were"),
    (3, batches.BatchMixesKeys, "test_one_call_never_mixes_keys_tasks_versions_or_queues"),
    (4, batches.CallTakesSlotPerElement, "test_a_call_takes_the_slots_and_the_token_of_one_job"),
    (4, batches.two_calls_have_one_number, "test_a_head_that_left_its_call_begins_no_other_until_that_has_ended"),
    (4, batches.SlotLeaksWithHead, "test_a_call_holds_its_slots_until_its_last_job_is_settled"),
    (4, batches.slot_is_free_with_the_head, "test_a_call_holds_its_slots_until_its_last_job_is_settled"),
    ("batches", batches.those_who_wait_are_left_behind, "test_a_call_takes_along_jobs_that_wait_for_its_slot"),
    ("batches", batches.offer_is_lost_with_a_mate,
     "test_what_was_offered_to_a_job_that_a_call_takes_along_goes_to_the_next"),
    ("batches", batches.every_element_counts_towards_the_limit,
     "test_a_call_counts_once_towards_limit_and_begins"),
    (4, batches.mates_need_no_room, "test_every_job_of_a_call_counts_towards_max_running"),
    ("batches", batches.any_priority_fits, "test_a_call_takes_jobs_at_most_one_priority_from_its_head"),
    ("batches", batches.any_needs_fit, "test_jobs_with_other_needs_are_not_taken_along"),
    ("batches", batches.suspect_runs_with_others, "test_a_job_that_ran_into_its_limit_runs_alone"),
    ("batches", batches.waiting_key_blocks_its_queue, "test_a_key_that_waits_holds_up_no_other_job"),
    ("batches", batches.ripening_is_not_told, "test_a_call_that_is_not_full_waits_until_its_head_is_old_enough"),
    ("batches", batches.token_comes_back_with_the_head, "test_an_unused_call_returns_its_token_only_as_a_whole"),
    ("batches", batches.repeated_claim_tears_calls_apart, "test_a_repeated_claim_answers_the_same_calls"),
    ("batches", batches.call_is_not_counted, "test_calls_and_elements_are_counted_when_the_head_is_settled"),
    ("detached", detached.detached_is_lost, "test_a_detached_job_times_out_at_its_deadline_and_no_death_is_charged"),
    ("detached", detached.taken_over_is_attached, "test_a_reaper_that_dies_leaves_a_detached_job_detached"),
    ("detached", detached.any_fence_finishes, "test_the_fence_of_another_attempt_finishes_nothing"),
    ("detached", detached.any_fence_detaches, "test_only_the_fence_of_the_attempt_detaches_a_job"),
    ("detached", detached.detached_frees_its_slot, "test_a_detached_job_keeps_its_slots_until_it_ends"),
    ("detached", detached.worker_keeps_the_lease, "test_a_late_heartbeat_of_the_worker_changes_nothing"),
    ("detached", detached.repeated_claim_finds_it, "test_a_repeated_claim_does_not_return_a_detached_job"),
    ("detached", detached.deadline_is_forgotten, "test_a_detached_job_runs_on_without_a_worker"),
    ("detached", detached.deadline_is_forgotten, "test_a_new_deadline_counts_from_when_it_was_set"),
    ("detached", detached.detached_in_silence, "test_the_event_of_a_detached_job_names_its_deadline_and_who_set_it"),
    ("detached", detached.every_detachment_is_told, "test_a_repeated_detachment_is_not_told_again"),
    ("detached", detached.checkpoint_is_dropped, "test_a_checkpoint_and_progress_come_with_the_detachment"),
    ("detached", detached.cancel_only_asks, "test_cancelling_a_detached_job_ends_it_at_once"),
    ("detached", detached.cancel_is_forgotten, "test_a_job_that_is_being_cancelled_ends_when_it_is_detached"),
    ("detached", detached.detached_for_good, "test_a_detached_job_that_is_retried_is_no_longer_detached"),
]  # fmt: skip

# Promise 13 is about files, which the memory store has not: these are bugs of the SQLite store.
SCHEMA_BUGS = [
    (13, versions.every_version_shuts_out_the_one_before, "test_programs_one_schema_version_apart_work_on_one_store"),
    (13, versions.upgrade_starts_the_file_anew, "test_an_upgrade_keeps_what_the_store_holds"),
    (13, versions.newer_schema_is_taken_for_ours, "test_a_newer_schema_is_refused_by_an_older_program_and_not_changed"),
    (13, versions.newer_file_is_marked_as_ours, "test_a_newer_schema_is_refused_by_an_older_program_and_not_changed"),
    (13, versions.running_program_never_looks_again, "test_a_running_program_is_refused_once_its_schema_is_too_new"),
    (13, versions.running_program_is_refused_only_once, "test_a_running_program_is_refused_once_its_schema_is_too_new"),
]  # fmt: skip


# What a contract test says of a store that breaks it; anything else is a mistake in the bug itself.
CAUGHT = (AssertionError, ValueError, pytest.fail.Exception)
CAUGHT_VERSIONS = (*CAUGHT, StoreTooNew)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """A wake-up that never comes is not waited for as long as on a server that may be slow."""
    for part in (holders, shedding):
        monkeypatch.setattr(part, "PATIENCE", timedelta(seconds=1))


async def run(name: str, bug: Bug | type[MemoryStore]) -> None:
    """Run one test of the contract on a store with this bug."""
    clock, in_kernel = HandClock(), isinstance(bug, Bug)
    with bug.planted() if in_kernel else contextlib.nullcontext():
        async with MemoryStore(clock) if in_kernel else bug(clock) as store:
            test = getattr(StoreContract(), name)
            given = {"store": store, "clock": clock}
            await test(**{name: given[name] for name in inspect.signature(test).parameters})


@pytest.mark.parametrize(("promise", "bug", "caught_by"), BUGS, ids=[f"{p}-{bug.__name__}" for p, bug, _ in BUGS])
async def test_a_planted_bug_is_caught(promise, bug, caught_by):
    await run(caught_by, MemoryStore)
    with pytest.raises(CAUGHT):
        await run(caught_by, bug)


@pytest.mark.parametrize(
    ("promise", "bug", "caught_by"), SCHEMA_BUGS, ids=[f"{p}-{bug.__name__}" for p, bug, _ in SCHEMA_BUGS]
)
async def test_a_planted_bug_of_schema_versions_is_caught(promise, bug, caught_by, tmp_path):
    await run_on_file(caught_by, contextlib.nullcontext, tmp_path / "right.db")
    with pytest.raises(CAUGHT_VERSIONS):
        await run_on_file(caught_by, bug, tmp_path / "wrong.db")


async def run_on_file(name: str, bug, path) -> None:
    clock = HandClock()
    with bug():
        async with SqliteStore(path, world=clock) as store:
            await getattr(StoreContract(), name)(store=store, programs=SqlitePrograms(path, world=clock))


def test_every_promise_has_a_planted_bug():
    assert {promise for promise, _, _ in BUGS + SCHEMA_BUGS if isinstance(promise, int)} == set(range(1, 14))

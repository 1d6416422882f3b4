"""Duplicates, reordering, late and lost messages: one accepted outcome each, and attempts are exact."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
from sqs_stage import until
from sqs_tasks import add, echo

from daybreak import values
from daybreak.client.client import Client
from daybreak.client.store_migration import Mover
from daybreak.core.model import Done, Failed, Failure, HandedBack, JobSpec, State
from daybreak.policy.settle import settle
from daybreak.sqs import messages as wire
from daybreak.sqs import queue_names as names
from daybreak.sqs import setup
from daybreak.sqs.deliveries import KIND, Deliveries
from daybreak.store.protocol import Claim, Exchange, Extended
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld


async def begun(stage, handle):
    async def is_bound():
        return await (await stage.store()).records(KIND, handle.id)

    return await until(is_bound, "the ledger has heard that the job began")


async def test_a_job_runs_where_only_sqs_is_reachable(stage):
    await stage.dispatcher()
    await stage.worker()
    jobs = [await add.asubmit(n, 1) for n in range(12)]
    for n, job in enumerate(jobs):
        assert values.decode((await stage.ended(job)).result) == n + 1
    assert {(await stage.job(job)).attempt for job in jobs} == {1}

    async def are_gone():
        return not await (await stage.store()).records(KIND)

    await until(are_gone, "the records of deliveries went with their jobs")


async def test_an_outcome_before_its_started_is_accepted_and_the_late_started_changes_nothing(stage):
    job = await add.asubmit(1, 2)
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    held = next(iter(player.source._held.values()))
    await player.end(lease, Done(values.encode(3, "result")))
    assert (await stage.ended(job)).state is State.COMPLETED
    late = wire.written(wire.Started(v=1, delivery=held.delivery))
    await stage.queues.send(names.status_queue(stage.address.prefix), [late])
    request = await until(lambda: _request(stage, player), "the worker is told to drop it")
    assert request.what == "drop"
    assert (await stage.job(job)).attempt == 1
    assert dispatcher.done == 1


async def _request(stage, player):
    queue = names.control_queue(stage.address.prefix, player.source.worker)
    for message in await stage.queues.receive(queue):
        return wire.read_request(message.body)
    return None


async def test_of_two_deliveries_of_one_message_the_first_that_is_heard_counts(stage):
    job = await add.asubmit(1, 2)
    await stage.dispatcher()
    first, second = await stage.player(), await stage.player()
    lease = await first.take_one()
    await begun(stage, job)
    held = next(iter(first.source._held.values()))
    twin = await second.source._lease(held.message)  # SQS delivered it twice, both as the first time
    second.source._held[twin.lease.seq, twin.lease.fence] = twin
    await stage.queues.send(
        names.status_queue(stage.address.prefix), [wire.written(wire.Started(v=1, delivery=twin.delivery))]
    )
    assert (await until(lambda: _request(stage, second), "the twin is told to drop it")).what == "drop"
    await second.end(twin.lease, Done(values.encode(99, "result")))
    aside = (await stage.asides())[0]
    assert "another delivery" in aside.reason
    await first.end(lease, Done(values.encode(3, "result")))
    assert values.decode((await stage.ended(job)).result) == 3
    assert (await stage.job(job)).attempt == 1


async def test_a_redelivery_after_a_death_is_charged_as_a_new_attempt_with_the_next_fence(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    dead = await stage.player(lease=1)
    lease = await dead.take_one()
    await begun(stage, job)
    heir = await stage.player()
    again = await heir.take_one()  # the redelivered message is returned to the ledger, which sends a new one
    assert again.attempt == lease.attempt + 1
    assert again.fence > lease.fence  # by more than one, if a slow machine let a message be taken back unread
    await dead.end(lease, Done(values.encode("of the dead", "result")))
    assert "fence" in (await stage.asides())[0].reason
    await heir.end(again, Done(values.encode("of the heir", "result")))
    found = await stage.ended(job)
    assert values.decode(found.result) == "of the heir"
    assert (found.attempt, found.lost) == (2, 1)


async def test_a_message_that_was_received_and_never_begun_charges_nothing(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()

    async def swallow():
        for name in names.task_queues(stage.address.prefix):
            if found := await stage.queues.receive(name, visibility=1):
                return found
        return None

    await until(swallow, "a worker received the message and died")
    heir = await stage.player()
    again = await heir.take_one()
    assert again.attempt == 1
    assert again.fence >= 2
    await heir.end(again, Done(values.encode("x", "result")))
    found = await stage.ended(job)
    assert (found.attempt, found.lost) == (1, 0)


async def swallow(stage, times):
    """So many workers receive the urgent message, one after another, and die before they say anything. The next one
    would receive it too often: SQS makes it a dead letter."""
    name = names.task_queue(stage.address.prefix, "critical")
    for _ in range(times):
        await until(lambda: stage.queues.receive(name, visibility=0), "a worker received the message and died")
    assert await stage.queues.receive(name) == []


async def test_an_urgent_job_whose_message_became_a_dead_letter_is_sent_again_at_once_and_uncharged(stage):
    """Or it would lie there until the dispatcher takes back what nobody took, 5 minutes later."""
    job = await echo.using(priority="critical").asubmit("x")
    await stage.dispatcher(valid_for=timedelta(hours=1))
    await swallow(stage, names.MAX_TASK_RECEIVES)
    heir = await stage.player()
    again = await heir.take_one()
    assert (again.job, again.attempt, again.fence) == (job.id, 1, 2)
    await heir.end(again, Done(values.encode("x", "result")))
    found = await stage.ended(job)
    assert (found.attempt, found.lost) == (1, 0)
    await until(lambda: _is_applied(stage), "the dead letter is deleted")


async def test_a_dead_letter_of_a_job_that_runs_takes_nothing_away(stage):
    job = await echo.using(priority="critical").asubmit("x")
    await stage.dispatcher()
    holder = await stage.player()
    lease = await holder.take_one()
    await begun(stage, job)
    held = next(iter(holder.source._held.values()))
    await stage.queues.extend([held.message], 0)  # its visibility could not be extended
    await swallow(stage, names.MAX_TASK_RECEIVES - 1)
    assert (await holder.beat(lease)).held
    await until(lambda: _is_applied(stage), "the ledger has heard of all that")
    await holder.end(lease, Done(values.encode("x", "result")))
    found = await stage.ended(job)
    assert (found.attempt, found.fence) == (1, 1)


async def test_a_redelivery_while_heartbeats_come_takes_nothing_away(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    holder, other = await stage.player(), await stage.player()
    lease = await holder.take_one()
    await begun(stage, job)
    held = next(iter(holder.source._held.values()))
    await stage.queues.extend([held.message], 0)  # its visibility could not be extended
    assert await other.take() == []  # redelivered, and returned to the ledger
    assert (await holder.beat(lease)).held
    await until(lambda: _is_applied(stage), "the ledger has heard of all that")
    assert await other.take() == []
    await holder.end(lease, Done(values.encode("x", "result")))
    found = await stage.ended(job)
    assert (found.attempt, found.fence) == (1, 1)


async def _is_applied(stage):
    prefix = stage.address.prefix
    of_ledger = (names.status_queue(prefix), names.task_dead_queue(prefix))
    return all(one.visible + one.in_flight == 0 for one in await setup.count(stage.queues) if one.name in of_ledger)


async def test_a_heartbeat_saves_progress_and_the_newest_checkpoint(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    await player.beat(lease, progress=0.5, message="half", checkpoint=b"two")
    held = next(iter(player.source._held.values()))

    async def is_saved():
        return (await stage.job(job)).checkpoint == b"two"

    await until(is_saved, "the checkpoint is in the ledger")
    old = wire.Beating(delivery=held.delivery, checkpoint=wire.Payload(b"one"), n=0)
    await stage.queues.send(names.status_queue(stage.address.prefix), [wire.written(wire.Heartbeat(v=1, beats=(old,)))])
    await player.beat(lease, progress=0.75)

    async def has_progress():
        return (await stage.job(job)).progress == 0.75

    await until(has_progress, "later heartbeats are applied")
    assert (await stage.job(job)).checkpoint == b"two"
    await player.end(lease, HandedBack())
    again = await player.take_one()
    assert (again.checkpoint, again.attempt) == (b"two", 1)


async def test_a_repeated_outcome_is_set_aside_and_counts_once(stage):
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()
    await player.take_one()
    held = next(iter(player.source._held.values()))
    _, body = await player.source._addressed(held, Done(values.encode("x", "result")))
    await stage.queues.send(names.status_queue(stage.address.prefix), [body])
    await stage.ended(job)
    await stage.queues.send(names.status_queue(stage.address.prefix), [body])
    assert "came twice" in (await stage.asides())[0].reason
    assert dispatcher.done == 1
    assert (await stage.job(job)).attempt == 1


async def test_a_recoverable_failure_goes_through_the_retry_queue_and_waits_in_the_ledger(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    sent = []
    send = player.source._queues.send

    async def spy(name, bodies, **options):
        sent.append(name)
        await send(name, bodies, **options)

    player.source._queues.send = spy
    hour = timedelta(hours=1)
    await player.end(lease, Failed(Failure(message="429", status=429, retry_after=hour)))
    assert sent == [names.retry_queue(stage.address.prefix)]

    async def is_scheduled():
        return (await stage.job(job)).state is State.SCHEDULED

    await until(is_scheduled, "the ledger waits to retry it")
    found = await stage.job(job)
    assert found.run_at - found.created_at >= hour  # longer than SQS can delay
    assert found.attempt == 1


async def test_the_sweep_deletes_the_records_that_kills_left_and_no_others():
    """Whoever is killed between settling a job and deleting its record leaves the record."""
    store = MemoryStore()
    client = Client(store)
    ids = [await client.submit(JobSpec(id=name, task="t")) for name in ("ended", "again", "removed", "runs")]
    leases = {one.job: one for one in (await store.exchange(Exchange(claim=Claim(worker="d", limit=4)))).leases}
    deliveries = Deliveries(store, RealWorld())
    for job in ids:
        fence = leases[job].fence
        delivery = wire.Delivery(ledger="l", task_id=job, fence=fence, nonce="n", worker_id="w", heartbeat=20.0)
        assert await deliveries.bind(delivery)
    assert await deliveries.sweep() == 0
    ends = [("ended", Done(b"1")), ("again", HandedBack()), ("removed", Done(b"1"))]
    await store.exchange(Exchange(settle=[settle(leases[job], how, chance=0.5, by="w") for job, how in ends]))
    await store.exchange(Exchange(claim=Claim(worker="d", limit=4)))  # `again` runs, under the next fence
    assert (await client.remove("removed")).verdict == "done"
    assert await deliveries.sweep() == 3
    assert [record.name for record in await store.records(KIND)] == ["runs"]
    assert await deliveries.of("runs", leases["runs"].fence) is not None
    assert await deliveries.of("again", leases["again"].fence) is None


async def test_a_move_leaves_what_remote_workers_run_until_it_has_ended_and_carries_no_records_of_deliveries(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    await begun(stage, job)
    target = MemoryStore()
    mover = Mover(await stage.store(), target, RealWorld(), by="ann")
    assert (await mover.run(wait=False)).running == 1
    assert await target.get([job.id]) == [None]
    await player.end(lease, Done(values.encode("y", "result")))
    await stage.ended(job)
    assert (await mover.run()).moved == 1
    assert values.decode((await target.get([job.id]))[0].result) == "y"
    assert await target.records(KIND) == []


async def test_a_request_to_preempt_reaches_the_worker_through_its_control_queue(stage):
    """No store asks for it yet, so the ledger is made to. The job goes back uncharged, with its checkpoint."""
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    await begun(stage, job)
    assert await player.beat(lease, checkpoint=b"two") == Extended(held=True)
    extend = dispatcher._source.extend

    async def preempting(beats):
        return [msgspec.structs.replace(reply, preempt=reply.held) for reply in await extend(beats)]

    dispatcher._source.extend = preempting
    control = asyncio.create_task(player.source._control.run())

    async def is_asked():
        reply = await player.beat(lease)
        return reply if reply != Extended(held=True) else None

    assert await until(is_asked, "the request came") == Extended(held=True, preempt=True)
    control.cancel()
    dispatcher._source.extend = extend
    await player.end(lease, HandedBack())
    again = await player.take_one()
    assert (again.attempt, again.fence, again.checkpoint) == (1, 2, b"two")
    assert await player.beat(again) == Extended(held=True)  # it was asked of the earlier delivery

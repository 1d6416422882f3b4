"""`GET /events`: the live feed, by server-sent events."""

from __future__ import annotations

from typing import Any

from daybreak.server.bodies.events import LiveEvent, LiveQuery
from daybreak.server.live_feed import EventFilter
from daybreak.server.problems import Problem
from daybreak.server.routing import Call, Routes, may

routes = Routes("events")


@routes.get(
    "/events", may("read"), query=LiveQuery, answer=LiveEvent, answer_type="text/event-stream", refuses=(410,),
    summary="The live feed of events",
)  # fmt: skip
async def follow_events(call: Call[LiveQuery, None]) -> Any:
    """A stream that does not end. Each message is one event; its id is a cursor. A client that reconnects sends the
    last id in the header `Last-Event-ID` (browsers do so by themselves) or as `after`, and continues after that event,
    with no gap and no repetition. Without either, the stream begins with the next event. Messages of the types `open`
    and `quiet` carry only an id. With `summary`, messages of the type `summary` count the events of each kind
    instead, once per second at most. If the events after a cursor were purged, the status is 410."""
    query = call.query
    wanted = EventFilter(
        job=frozenset(query.job), run=frozenset(query.run), queue=frozenset(query.queue), task=frozenset(query.task),
        owner=frozenset(query.owner), kind=frozenset(query.kind), queues=call.caller.queues,
    )  # fmt: skip
    for queue in query.queue:
        call.check_queue(queue)
    after = call.request.headers.get("last-event-id") or query.after
    return await call.server.live.listen(wanted, after, lambda: _is_still_allowed(call), summary=query.summary)


async def _is_still_allowed(call: Call[LiveQuery, None]) -> bool:
    """Whether the caller's token or session is still valid."""
    try:
        caller = await call.server.identification.caller(call.request)
        call.route.policy.check(caller)
    except Problem:
        return False
    return caller == call.caller

"""The Redis store: jobs on a Redis or Valkey server, one script and one round trip for each operation.

    store      the seam
    requests, specs   operations as the arguments of scripts    replies   their answers as values
    adopt      jobs that go to another store or come from one, likewise
    plain_submit      the short way for plain submissions       read      pages, counts, events
    client            runs scripts, knows what was sent         connection   one connection, asyncio
    blocking_client   threads without a loop, sent together     wake      publish and subscribe
    server_clock      the server's clock, and its jumps         examine   is the server fit, what would it lose
    rows, event_codec how jobs and events are packed            codes     numbers for names, as in prelude.lua
    address    URLs        faults   what errors mean        hiredis   the protocol
    lua/       the scripts: prelude and gather under all, job for single jobs, a file for each operation

Keys, all under {namespace}:

    meta                    version, last sequence number, revision (`set`: but for signs of life) and feed position,
                            latest time
    job  at  id             what was submitted; where it stands, with its history; by seq, and the seq by id
    ties  belongs           unique name and idempotency keys of a job; its run and owner
    key  unique  dropped    who stands for a key or a unique name; until when keys whose job has gone are spent
    checkpoint  failure  note  progress  result    what few jobs have
    lane  lanes:<queue>     lanes by number, and by queue and task
    queued:<lane>           jobs in rank order          all:<lane>  run:<run>  owner:<owner>    by seq
    due:steady  due:wall  expiring  lease  purge        by instant
    held  failed  cancelled by seq                      feed       one row a commit, by position
    tally  total            how many there are by lane, priority and state; what has happened by lane and priority
    settings  records:<kind>
    gauge  looks  blocked  waits:<resource>  blocked:<lane>:<resource>    resources, and who waits for them
"""

from daybreak.stores.redis.store import RedisStore

__all__ = ["RedisStore"]

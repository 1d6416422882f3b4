"""The Redis store: jobs on a Redis or Valkey server, one script and one round trip for each operation.

    store             RedisStore: the store protocol
    requests, specs   operations as arguments of scripts        replies      their replies as values
    adopt             jobs that move between stores             read         pages, counts, events
    plain_submit      the fast path for plain submissions       gauges       needs and settings of resources
    flights           known results, as entries of the cache
    client            runs scripts, knows what was sent         connection   one connection, asyncio
    blocking_client   group commit for threads without a loop   wake         publish and subscribe
    server_clock      the server's clock, and its jumps         examine      is the server suitable, what could it lose
    rows, event_codec how jobs and events are packed            codes        numbers for names, as in prelude.lua
    address           URLs                                      faults       translates errors
    hiredis           the Redis protocol                        scripts      assembles the scripts
    lua/              the scripts: transitions, prelude and change_set are part of all; job, gauge, resource_queue and
                      flight are shared; one file for each operation; plain and submit are the fast paths

Keys, all under {namespace}:

    meta                    version, last sequence number, revision (`set`: without the records of live workers),
                            feed position, latest time
    job  at  id             the immutable part; the state and history; both by seq, and the seq by id
    ties  belongs           unique name and idempotency keys of a job; its run and owner
    key  unique  dropped    the job of a key or a unique name; until when keys of purged jobs are spent
    checkpoint  failure  note  progress  result    parts that few jobs have
    lane  lanes:<queue>     lanes by number, and by queue and task
    queued:<lane>           jobs in rank order          all:<lane>  run:<run>  owner:<owner>    by seq
    due:steady  due:wall  expiring  lease  purge        by instant
    held  failed  cancelled by seq                      feed       one row a commit, by position
    tally  total            counts of jobs by lane, priority and state; counters of what happened by lane and priority
    settings  records:<kind>
    gauge  looks  waits:<resource>                      resources, and how many jobs wait for them
    blocked  blocked:<lane>  blocked:<lane>:<resource>  jobs that wait for resources
    batch  company:<lane>:<batch>                       batch keys, and the jobs that a call may take along
    group  left             the call that a running job is in; how many jobs of a call still run
    flies  flight           the flight of a job; the entry of a flight
    entry  computed  points entries of the cache, and their results; the jobs that have such a result
    known:<task>  used:<task>  lapsing                  entries by number, by their latest use, by the end of their time
    room  landing           how many results a task keeps; entries with followers that are still to be completed
    waits:flight <flight>  blocked:<lane>:flight <flight>  the followers, as jobs that wait for resources
"""

from daybreak.stores.redis.store import RedisStore

__all__ = ["RedisStore"]

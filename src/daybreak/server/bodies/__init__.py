"""Request and response bodies, and the parameters of queries. They are the schema of the OpenAPI document.

A request with a field that is not listed here is refused. Durations in requests are text such as "90s" or "1h30m"; in
responses they are seconds. Instants are ISO 8601 with a time zone. A response may get more fields in a later version.

| module | bodies |
|---|---|
| `base` | types of fields, the base classes of all bodies, and the problem document |
| `events` | the live feed: its query and its messages |
| `alerts` | alerts and notices |
| `health` | health checks |
| `sign_in` | signing in, and the caller's session |
| `jobs` | jobs, their events, and why they wait |
| `submissions` | submitting one job or many |
| `job_changes` | changes of one job, and of many at once |
| `runs` | runs, and their results as rows |
| `failures` | failed jobs, grouped by cause |
| `queues` | queues and their settings |
| `cache` | known results of cached tasks |
| `resources` | resources and their settings |
| `locks` | locks |
| `workers` | workers |
| `stats` | statistics |
| `trends` | trends: statistics by minute, hour or day |
| `audit` | the audit log of changes |
| `examples` | an example of every body that the reference shows |"""

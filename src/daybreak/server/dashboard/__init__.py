"""The dashboard: pages for people, on the same server as the REST API.

The server renders every page in full. Small ES modules in `static/` keep it live and carry out actions, all through the
REST API; without them the pages can still be read. There is no inline script or style, so a strict content security
policy holds.

| module | what it holds |
|---|---|
| `renderer` | the templates, the filters they use, and the headers of a page |
| `overview` | the first page: depth, throughput, waits, workers |
| `jobs` | the list of jobs, one job, failures by cause, and the form that submits a job |
| `runs` | sweeps: progress, heat map, rows |
| `operations` | queues, resources, the cache, locks, workers, and who changed what |
| `assets` | scripts and styles |
"""

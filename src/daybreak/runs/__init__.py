"""Runs: the jobs of a sweep as one thing, with progress, results as one table, and changes of all jobs at once.

| module | what it holds |
|---|---|
| `designs`, `samples`, `csv_rows`, `grid_text` | the points of a sweep, from a grid, rows or samples |
| `record` | what the store keeps of a run: one record, changed only by compare-and-set |
| `points` | the key of a point, by which a second submission finds its job |
| `changes` | what differs between a sweep and the run that it continues |
| `submission` | `app.sweep`: the record first, then the points |
| `sweep`, `client_runs` | the calls of an app, of commands and of the server that make and find runs |
| `run` | the handle: wait, rows, cancel, retry, delete |
| `run_info`, `run_pages`, `progress_bar` | the figures of a run: for Python, for the server, on a terminal |
| `estimate` | when a run will probably end |
| `result_rows`, `row_spool`, `tables` | the results as rows, CSV and data frames |
| `watch`, `notices` | what every worker does for runs: it notices that one has ended or must pause, and tells people |
| `removal` | deleting a run |
"""

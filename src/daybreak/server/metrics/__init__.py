"""Metrics for Prometheus: read from the store at each scrape, so they agree over all servers and never drift.

| module | what it holds |
|---|---|
| `figures` | what one scrape reads from the store |
| `families` | our own metrics |
| `other_names` | the same figures under the names of the systems that Daybreak replaces |
| `labels` | how many values a label may have |"""

"""Jobs, queues, workers, resources, locks and statistics as JSON data.

Each module holds pure functions that turn one kind of object into a dict that `json.dumps` accepts. The command line
prints these dicts with `--json`, and a server sends the same ones. Durations are seconds, instants are ISO 8601 in UTC,
and secrets are masked. The field names are documented: add fields, but do not rename or remove them.

This file imports nothing, so that a command loads only the views that it prints."""

"""The Python face: the app, its tasks, job handles, queues, locks, hooks, resources and statistics."""

SELECT id, queue, task, version FROM lane

SELECT l.id, l.queue, l.task, l.version FROM daybreak.lane l

-- A request to whoever runs the job, told by the next heartbeat.
UPDATE lease SET cancelling = ?, suspending = ?, n = ?, history = ? WHERE seq = ?

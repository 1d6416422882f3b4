DELETE FROM held WHERE seq = ?

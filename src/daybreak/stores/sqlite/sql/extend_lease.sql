UPDATE lease SET until = ?, term = ? WHERE seq = ?

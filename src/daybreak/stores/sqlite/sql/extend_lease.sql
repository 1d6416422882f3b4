UPDATE lease SET until = ?, term = ?, alone = coalesce(?, alone) WHERE seq = ?

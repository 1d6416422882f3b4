UPDATE lease SET until = ?, term = ?, alone = coalesce(?, alone), ahead = coalesce(?, ahead) WHERE seq = ?

SELECT lane, band, ord FROM job WHERE seq = ?

DELETE FROM idem WHERE dropped <= ?

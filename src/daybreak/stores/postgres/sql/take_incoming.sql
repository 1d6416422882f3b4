DELETE FROM daybreak.incoming i WHERE i.n IN (
    SELECT n.n FROM daybreak.incoming n ORDER BY n.n LIMIT %b::bigint FOR UPDATE SKIP LOCKED)
RETURNING i.n, i.spec

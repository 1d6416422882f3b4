-- The server's time, and what is to be subtracted for the store's steady time.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       coalesce((SELECT m.value::bigint FROM daybreak.meta m WHERE m.name = 'clock'), 0)

SELECT (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer

SELECT s.name, s.setting FROM pg_settings s
WHERE s.name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'server_encoding', 'default_transaction_isolation')

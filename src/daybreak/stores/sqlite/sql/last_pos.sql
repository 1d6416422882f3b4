SELECT coalesce(max(pos), 0) FROM feed

SELECT min(pos) FROM feed

-- After a clock was set back no lease reaches further than its own length from now.
UPDATE daybreak.lease l SET until = %b::bigint + l.term WHERE l.until > %b::bigint + l.term

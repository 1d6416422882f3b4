UPDATE daybreak.job j SET band = %b::smallint, ord = %b::bigint, priority = %b::smallint WHERE j.seq = %b::bigint

SELECT g.name FROM daybreak.gauge g WHERE g.look <= %b::bigint ORDER BY g.look, g.name LIMIT %b::bigint

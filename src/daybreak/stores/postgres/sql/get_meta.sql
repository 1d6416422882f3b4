SELECT m.value FROM daybreak.meta m WHERE m.name = %b::text

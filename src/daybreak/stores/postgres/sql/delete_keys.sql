DELETE FROM daybreak.idem i WHERE i.id = %b::text

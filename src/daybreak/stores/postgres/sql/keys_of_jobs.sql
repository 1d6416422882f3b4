SELECT i.id, i.key, i.digest FROM daybreak.idem i WHERE i.id = ANY (%b::text[]) ORDER BY i.key

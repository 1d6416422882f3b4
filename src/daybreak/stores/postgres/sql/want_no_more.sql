DELETE FROM daybreak.waiting w WHERE (w.topic = ANY (%b::text[]) AND w.who = %s) OR w.until < extract(epoch FROM clock_timestamp())

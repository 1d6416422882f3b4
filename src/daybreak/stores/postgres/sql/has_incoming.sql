SELECT EXISTS (SELECT 1 FROM daybreak.incoming)

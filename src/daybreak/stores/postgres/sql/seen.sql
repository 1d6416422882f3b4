-- Which version of the schema is there, and the oldest program that can work on it.
SELECT (SELECT m.value::integer FROM daybreak.meta m WHERE m.name = 'version'),
       (SELECT m.value::integer FROM daybreak.meta m WHERE m.name = 'needs')

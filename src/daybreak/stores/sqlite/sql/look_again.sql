-- What changes with nearly every commit; how many lanes there are, which are only ever added; and the revision of the
-- record that was written last: while it is the same, so are all settings.
SELECT
    max(coalesce((SELECT max(seq) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'seq'), 0)),
    coalesce((SELECT max(id) FROM job), ''),
    (SELECT coalesce(max(pos), 0) FROM feed),
    (SELECT coalesce(max(id), 0) FROM lane),
    (SELECT value FROM meta WHERE name = 'revision')

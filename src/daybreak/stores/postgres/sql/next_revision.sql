SELECT nextval('daybreak.revision')

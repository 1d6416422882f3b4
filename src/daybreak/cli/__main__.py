"""`python -m daybreak.cli` is `daybreak`."""

from daybreak.cli.root import main

main()

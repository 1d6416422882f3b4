"""An app without tasks, for workers that only run command lines. It is a module because child processes import it."""

from daybreak.api.app import Daybreak

app = Daybreak()

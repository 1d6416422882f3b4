"""An app without tasks, for workers that only run command lines: their children must find it by importing."""

from daybreak.api.app import Daybreak

app = Daybreak()

"""An app whose only task runs the points of `daybreak sweep`. It is a module because child processes import it."""

from daybreak.api.app import Daybreak
from daybreak.worker.child.sweep_points import add_sweep_points

app = Daybreak()
add_sweep_points(app.program)

"""Schedules of an app: `app.schedule(...)` declares one, and its handle changes it."""

from daybreak.api.schedules.declared import ScheduleDeclaration
from daybreak.api.schedules.handle import ScheduleHandle
from daybreak.api.schedules.info import ScheduleInfo

__all__ = ["ScheduleDeclaration", "ScheduleHandle", "ScheduleInfo"]

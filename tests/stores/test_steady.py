"""A server's clock compared with our own: what is a jump, and who may correct it."""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.units import span
from daybreak.stores.steady_clock import SteadyClock
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.builders import DAY, HOUR, SECOND


def met(clock, world, offset=0):
    """The server answers at once, with what the wall clock of this world shows."""
    clock.note(world.wall(), clock.steady(), offset)


def begun():
    world = HandClock()
    clock = SteadyClock(world)
    met(clock, world)
    return world, clock


def test_time_that_passes_is_no_jump_nor_is_a_slow_answer():
    world, clock = begun()
    world.advance(DAY)
    met(clock, world)
    asked = clock.steady()
    world.advance(HOUR)
    clock.note(world.wall(), asked)
    assert clock.jump is None
    assert clock.about() == world.wall()


def test_clocks_that_drift_apart_are_no_jump():
    world, clock = begun()
    world.advance(DAY)
    world.jump(timedelta(seconds=60))
    met(clock, world)
    assert clock.jump is None


def test_a_jump_is_told_by_how_much_and_steady_time_goes_on():
    world, clock = begun()
    before = world.wall()
    world.advance(SECOND)
    world.jump(DAY)
    met(clock, world)
    jump = clock.jump
    assert (jump.offset, jump.by, jump.corrected) == (0, span(DAY), span(DAY))
    assert clock.about() == before + span(SECOND)  # the time before the jump is what counts
    met(clock, world, jump.corrected)
    assert clock.jump is None
    assert clock.about() == before + span(SECOND)


def test_whoever_finds_another_offset_believes_it_and_corrects_nothing():
    world, clock = begun()
    world.jump(-HOUR)
    met(clock, world, -span(HOUR))
    assert clock.jump is None
    assert clock.offset == -span(HOUR)
    assert clock.even_for() is None  # steady time ran on


def test_a_process_that_stood_still_begins_its_contact_anew():
    world, clock = begun()
    world.jump(DAY)
    met(clock, world)
    clock.believe()
    assert clock.jump is None
    assert clock.about() == clock.even_since() == world.wall()
    assert clock.even_for() == 0

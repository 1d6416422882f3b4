"""kill -9 of the owner of a directory store, again and again."""

from __future__ import annotations

import pytest
from directory_processes import kill_again_and_again
from player_processes import count

pytestmark = pytest.mark.torture


def test_kills_of_the_owner_of_a_folder_lose_nothing_and_repeat_nothing(tmp_path, tell):
    kills = count(8, 200)
    jobs = kill_again_and_again(tmp_path, kills)
    tell(f"{kills} kills, {jobs:,} jobs")

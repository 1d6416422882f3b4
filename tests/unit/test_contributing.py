"""The reading list of CONTRIBUTING is true: every file exists, and every name that it gives is in its file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
READING_LIST = re.findall(r"^\| \d+ \| `(?P<file>[\w/]+\.py)` \| (?P<answer>.*) \|$", TEXT, re.MULTILINE)
ONE_SCREEN = 80  # lines


def test_the_reading_list_is_short():
    assert 8 <= len(READING_LIST) <= 12


@pytest.mark.parametrize(("file", "answer"), READING_LIST, ids=[file for file, _ in READING_LIST])
def test_every_file_of_the_reading_list_exists_and_holds_what_is_said(file, answer):
    source = (ROOT / "src" / "daybreak" / file).read_text(encoding="utf-8")
    for class_, method in re.findall(r"`([A-Z]\w+)\.(\w+)`", answer):
        body = source.partition(f"\nclass {class_}")[2]
        assert f"def {method}(" in body, f"{file} has no {class_}.{method}"


def test_the_other_files_and_folders_exist():
    for folder in re.findall(r"`(tests/\w+)`", TEXT):
        assert (ROOT / folder).is_dir(), folder
    assert "def delay_for(" in (ROOT / "src/daybreak/policy/retry.py").read_text(encoding="utf-8")
    assert "def settle(" in (ROOT / "src/daybreak/policy/settle.py").read_text(encoding="utf-8")


def test_it_fits_on_one_screen():
    assert len(TEXT.splitlines()) <= ONE_SCREEN

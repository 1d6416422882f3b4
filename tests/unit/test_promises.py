"""The page of promises names contract tests and planted bugs that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daybreak.testing import StoreContract

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "promises.md"
PLANTED = (ROOT / "tests" / "contract" / "test_planted_bugs.py").read_text(encoding="utf-8")

SECTION = re.compile(r"^## (?P<number>\d+)\. .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[\w+\.py\]\((?P<file>[^)]+)\) `(?P<test>test_\w+)` \| `(?P<bug>\w+\.\w+)` \|$", re.MULTILINE)
BUG = re.compile(r'\((?P<promise>\d+|"[a-z ]+"), (?P<bug>\w+\.\w+),\s+"(?P<test>test_\w+)"\)')

SECTIONS = {int(section["number"]): section[0] for section in SECTION.finditer(PAGE.read_text(encoding="utf-8"))}
PROMISES_OF_ALL_STORES = sorted({int(bug["promise"]) for bug in BUG.finditer(PLANTED) if bug["promise"].isdecimal()})
CAUGHT = {(bug["promise"], bug["bug"], bug["test"]) for bug in BUG.finditer(PLANTED)}


def test_the_page_numbers_the_promises_as_the_design_does():
    assert list(SECTIONS) == list(range(1, 14))


@pytest.mark.parametrize("promise", PROMISES_OF_ALL_STORES)
def test_each_promise_names_a_contract_test_and_the_planted_bug_that_it_catches(promise):
    rows = list(ROW.finditer(SECTIONS[promise]))
    assert rows, f"promise {promise} names no contract test"
    assert len(rows) == SECTIONS[promise].count("\n| [")
    for row in rows:
        source = (PAGE.parent / row["file"]).read_text(encoding="utf-8")
        assert f"def {row['test']}(" in source, f"{row['file']} has no {row['test']}"
        assert hasattr(StoreContract, row["test"]), f"{row['test']} is not in the contract suite"
        assert (str(promise), row["bug"], row["test"]) in CAUGHT, f"{row['bug']} is not planted for {row['test']}"

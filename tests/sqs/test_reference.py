"""docs/reference/sqs.md describes the messages as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from daybreak.sqs import messages as wire
from daybreak.sqs.remote_workers import RemoteWorkers

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "sqs.md").read_text()
EXAMPLES = [(found[1], found[0]) for found in re.findall(r'```json\n(\{"kind": "(\w+)".*?)```', PAGE, re.DOTALL)]
KINDS = {
    message.__struct_config__.tag: message
    for message in (*get_args(wire.FromWorker), wire.TaskMessage, wire.Request, wire.SetAside)
}


def test_every_kind_has_an_example():
    assert {kind for kind, _ in EXAMPLES} == KINDS.keys()


@pytest.mark.parametrize(("kind", "body"), EXAMPLES)
def test_an_example_is_a_message_that_is_read(kind, body):
    found = wire._read(msgspec.json.Decoder(KINDS[kind]), body)
    unknown = msgspec.json.decode(body).keys() - {"kind"} - {field.name for field in msgspec.structs.fields(found)}
    assert not unknown
    if isinstance(found, wire.WorkerBeat):
        assert RemoteWorkers(None, None, via="sqs://r/p").check(found.record).id == "remote-1"


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_message_is_named(kind):
    section = re.search(rf"^## {kind}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]
    missing = [
        field.name
        for field in msgspec.structs.fields(KINDS[kind])
        if f"`{field.name}`" not in section and f'"{field.name}"' not in section
    ]
    assert not missing

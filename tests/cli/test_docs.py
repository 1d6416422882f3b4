"""An undocumented command, option or setting fails the build."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

from daybreak import config
from daybreak.api.views.job import job_view
from daybreak.cli.errors import Exit
from daybreak.cli.root import COMMANDS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
EVERYWHERE = {"--url", "--app", "--help", "-h"}


def sections() -> dict[str, str]:
    """The sections of the page by the commands they name; one that leans on another holds that one's words too."""
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        title = part.partition("\n")[0]
        for name in re.findall(r"`([^`]+)`", title) or [title]:
            found[name] = part
    found["exec"] += found["submit"]
    found["dev"] += found["worker"]
    of_jobs = ("cancel", "retry", "start-now", "suspend", "resume", "remove", "priority")
    for name in ("jobs", *(f"jobs {name}" for name in of_jobs)):
        found[name] += found["Filters"]
    for name in ("show", "set", "pause", "resume"):
        found[f"queues {name}"] = found["queues"]
    for name in ("show", "wait", "export", "cancel", "suspend", "resume", "priority", "retry", "delete"):
        found[f"runs {name}"] = found["runs"]
    for group, names in (("resources", ("show", "set", "reset")), ("locks", ("take", "extend", "release"))):
        for name in names:
            found[f"{group} {name}"] = found[group]
    return found


def commands() -> list[tuple[str, click.Command]]:
    found = []
    for name, (module, _) in COMMANDS.items():
        command = importlib.import_module(module).command
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", made) for sub, made in command.commands.items()]
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_option_of_every_command_is_documented(name, command):
    text = sections()[name]
    options = {word for param in command.params if isinstance(param, click.Option) for word in param.opts} - EVERYWHERE
    assert not {option for option in options if not re.search(rf"`{option}[` ]", text)}


def test_every_setting_is_documented():
    text = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    assert not {key for key in ("url", "app", *config.WORKER_KEYS) if f"| `{key}` |" not in text}


def test_every_exit_code_is_documented():
    text = sections()["Exit codes"]
    assert not {code.value for code in Exit if f"| {code.value} |" not in text}


def test_every_field_of_a_job_is_documented(place):
    job = place.get(place.submit())
    text = sections()["A job as JSON"]
    assert not {name for name in job_view(job, [], job.created_at) if f"`{name}`" not in text}

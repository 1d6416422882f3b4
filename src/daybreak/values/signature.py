"""What a function takes: its parameters, and the codec of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from daybreak.values.annotations import Codecs
from daybreak.values.codec import Codec
from daybreak.values.containers import Many
from daybreak.values.hints import Parameter
from daybreak.values.scalars import Scalar
from daybreak.values.tagged_json import Write


class Shape(msgspec.Struct, frozen=True):
    """The parameters of a function."""

    codecs: Mapping[str, Codec]  # *args is a list under its name; **kwargs are not here
    writers: Mapping[str, Write]
    as_they_are: Mapping[str, type]  # what JSON has of this type needs no reading
    needed: frozenset[str]
    defaults: Mapping[str, Any]
    positional: tuple[str, ...]  # may be given by position
    unnamed: frozenset[str]  # can be given by position only, *args included
    rest: str | None  # *args
    extra: Codec | None  # of each of **kwargs


def shaped(parameters: list[Parameter]) -> Shape:
    made = Codecs()
    codecs: dict[str, Codec] = {}
    rest, extra = None, None
    for parameter in parameters:
        codec = made.of(parameter.annotation)
        match parameter.kind:
            case "VAR_KEYWORD":
                extra = codec
            case "VAR_POSITIONAL":
                rest = parameter.name
                codecs[rest] = Many(f"list[{codec.name}]", list, codec)
            case _:
                codecs[parameter.name] = codec
    return Shape(
        codecs=codecs,
        writers={name: codec.write if codec.safe else codec.checked for name, codec in codecs.items()},
        as_they_are={name: codec.kind for name, codec in codecs.items() if isinstance(codec, Scalar)},
        needed=frozenset(p.name for p in parameters if p.is_needed),
        defaults={p.name: p.default for p in parameters if not p.is_needed},
        positional=tuple(p.name for p in parameters if p.kind in {"POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"}),
        unnamed=frozenset(p.name for p in parameters if p.kind in {"POSITIONAL_ONLY", "VAR_POSITIONAL"}),
        rest=rest,
        extra=extra,
    )

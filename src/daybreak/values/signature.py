"""The parameters of a function, and the codec of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from daybreak.values.annotations import Codecs
from daybreak.values.codec import Codec
from daybreak.values.containers import CollectionCodec
from daybreak.values.hints import Parameter
from daybreak.values.scalars import Scalar
from daybreak.values.tagged_json import Write


class Signature(msgspec.Struct, frozen=True):
    """The parameters of a function."""

    codecs: Mapping[str, Codec]  # *args is a list under its own name; **kwargs is not included
    writers: Mapping[str, Write]
    unchanged_types: Mapping[str, type]  # a JSON value of this type is the argument itself
    required: frozenset[str]
    defaults: Mapping[str, Any]
    positional: tuple[str, ...]  # can be passed by position
    positional_only: frozenset[str]  # includes *args
    var_positional: str | None  # the name of *args
    var_keyword: Codec | None  # the codec of each value in **kwargs


def signature_of(parameters: list[Parameter]) -> Signature:
    of_annotation = Codecs().of
    codecs: dict[str, Codec] = {}
    var_positional, var_keyword = None, None
    for parameter in parameters:
        codec = of_annotation(parameter.annotation)
        match parameter.kind:
            case "VAR_KEYWORD":
                var_keyword = codec
            case "VAR_POSITIONAL":
                var_positional = parameter.name
                codecs[var_positional] = CollectionCodec(f"list[{codec.name}]", list, codec)
            case _:
                codecs[parameter.name] = codec
    return Signature(
        codecs=codecs,
        writers={name: codec.write if codec.safe else codec.write_checked for name, codec in codecs.items()},
        unchanged_types={name: codec.kind for name, codec in codecs.items() if isinstance(codec, Scalar)},
        required=frozenset(p.name for p in parameters if p.is_required),
        defaults={p.name: p.default for p in parameters if not p.is_required},
        positional=tuple(p.name for p in parameters if p.kind in {"POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"}),
        positional_only=frozenset(p.name for p in parameters if p.kind in {"POSITIONAL_ONLY", "VAR_POSITIONAL"}),
        var_positional=var_positional,
        var_keyword=var_keyword,
    )

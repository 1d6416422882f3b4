"""Codecs of secrets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from daybreak.core.errors import BadArguments, TooLarge
from daybreak.values.codec import Codec
from daybreak.values.errors import DEPTH_LIMIT, Refusal, too_deep
from daybreak.values.secret import HIDDEN, Secret
from daybreak.values.tagged_json import TAG, from_tagged, split_tag, to_tagged


class SecretCodec(Codec):
    """A Secret. No error message may show any part of its content."""

    kinds = (Secret,)
    is_secret = True

    def __init__(self, name: str, content: Codec) -> None:
        super().__init__(name)
        self._content = content
        self.safe = content.safe
        self.takes_any_text = content.takes_any_text

    def write(self, value: Any, depth: int, /) -> object:
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        content = value.reveal() if isinstance(value, Secret) else value
        return {TAG: ["secret", self._without_details(lambda: self._content.write(content, depth + 1))]}

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        return Secret(self._without_details(lambda: self._content.read(inner if name == "secret" else raw)))

    def parse(self, text: str) -> Any:
        return Secret(self._without_details(lambda: self._content.parse(text)))

    def _without_details(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Refusal as refusal:
            error, message = refusal.error, refusal.message
        if issubclass(error, TooLarge):
            raise Refusal(error, message)
        # Raised outside of the except block, so that the error's context does not contain the first message either.
        if issubclass(error, BadArguments):
            raise Refusal(error, f"the content of {HIDDEN} is not a valid {self._content.name}")
        raise Refusal(error, f"the content of {HIDDEN} would not be decoded equal")


class ForeignSecretCodec(Codec):
    """A secret class of another library, such as pydantic's SecretStr: stored as a Secret."""

    safe = False
    is_secret = True

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise self.mismatch(value)
        return to_tagged(Secret(value.get_secret_value()), depth)

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        return self._wrap(from_tagged(inner if name == "secret" else raw))

    def parse(self, text: str) -> Any:
        return self._wrap(text)

    def _wrap(self, content: Any) -> Any:
        with suppress(ValueError, TypeError):
            return self._kind(content)
        raise self.mismatch(content)

"""How secrets are written and read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from daybreak.core.errors import BadArguments, TooLarge
from daybreak.values.codec import Codec
from daybreak.values.errors import DEPTH_LIMIT, Refusal, too_deep
from daybreak.values.secret import HIDDEN, Secret
from daybreak.values.tagged_json import TAG, opened, plain, rich


class Hidden(Codec):
    """A Secret. No refusal of its content may show any of it."""

    kinds = (Secret,)
    is_secret = True

    def __init__(self, name: str, held: Codec) -> None:
        super().__init__(name)
        self._held = held
        self.safe = held.safe
        self.takes_any_text = held.takes_any_text

    def write(self, value: Any, depth: int, /) -> object:
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        held = value.reveal() if isinstance(value, Secret) else value
        return {TAG: ["secret", self._discreet(lambda: self._held.write(held, depth + 1))]}

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        return Secret(self._discreet(lambda: self._held.read(inner if name == "secret" else raw)))

    def parse(self, given: str) -> Any:
        return Secret(self._discreet(lambda: self._held.parse(given)))

    def _discreet(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Refusal as refusal:
            error, told = refusal.error, refusal.told
        if issubclass(error, TooLarge):
            raise Refusal(error, told)
        # Raised out here, so that not even the context of the error holds what the first one said.
        if issubclass(error, BadArguments):
            raise Refusal(error, f"what {HIDDEN} holds is no {self._held.name}")
        raise Refusal(error, f"what {HIDDEN} holds would not come back equal")


class Veiled(Codec):
    """A secret of another make, as pydantic's SecretStr: stored as one of ours."""

    safe = False
    is_secret = True

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise self.unfit(value)
        return plain(Secret(value.get_secret_value()), depth)

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        return self._made(rich(inner if name == "secret" else raw))

    def parse(self, given: str) -> Any:
        return self._made(given)

    def _made(self, held: Any) -> Any:
        with suppress(ValueError, TypeError):
            return self._kind(held)
        raise self.unfit(held)

"""The key of a cached result: what decides whether two jobs compute the same.

`CacheKeys.key` makes the digest under which the store looks for a result (`JobSpec.flight`), and a digest of each part
of it, by names that people understand: `argument vin`, `environment PLECS_VERSION`, `source`. Both are bounded,
whatever the job. Secrets and environment variables are sealed with a key of the store, because whoever may see a digest
of a short text could find the text by trying."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from daybreak.core.errors import BadInput, DaybreakError
from daybreak.system.code_digest import part_digest
from daybreak.tasks.cache import Cache, check_cache, salt_name
from daybreak.values import tagged_json
from daybreak.values.canonical import NeedsSeal, canonical, has_secret, read_encoded, sealed
from daybreak.values.file import collecting
from daybreak.values.lazy import once

if TYPE_CHECKING:
    from daybreak.tasks.registry import Definition

FORMAT: Final = "1"  # a key of another form of this module is another key
FLIGHT_BYTES: Final = 20
PART_BYTES: Final = 8
PARTS_LIMIT: Final = 40  # of one job; what is beyond is one part together
NAME_CHARS: Final = 60
OTHERS: Final = "others"

VERSION: Final = "version"
SOURCE: Final = "source"
ARGUMENT: Final = "argument "
VARIABLE: Final = "environment "
SALT: Final = "salt "


class Key(NamedTuple):
    """The key of one job, and the digests of its parts."""

    flight: str
    parts: dict[str, str]


class Surroundings(NamedTuple):
    """The declared environment as it was at one moment: canonical forms by name, and which of them are to be sealed."""

    forms: dict[str, bytes]
    variables: dict[str, str | None]


class CacheKeys:
    """Makes the keys of jobs of one task."""

    def __init__(self, definition: Definition, cache: Cache) -> None:
        self._definition = definition
        self._cache = cache
        self._who = f"task {definition.name!r}"
        check_cache(cache, who=self._who, code=definition.whole_code, parameters=definition.parameters)

    def needs_seal(self, encoded: bytes, around: Surroundings) -> bool:
        """Whether the key of the store is needed for the key of a job with these arguments."""
        return (
            bool(around.variables)
            or has_secret(encoded)
            or any(map(has_secret, around.forms.values()))
            or self._definition.arguments.has_secret_defaults
        )

    def surroundings(self) -> Surroundings | None:
        """The declared environment as it is now; None if a function does not know it. Calls functions of the user,
        which may block."""
        forms: dict[str, bytes] = {}
        variables = {part: os.environ.get(part) for part in self._cache.environment if isinstance(part, str)}
        for part in self._cache.environment:
            if isinstance(part, str):
                continue
            values = part if isinstance(part, Mapping) else self._called(part)
            if values is None:
                return None
            for name, value in values.items():
                forms[_free(name, {**forms, **variables})] = self._encoded(name, value)
        return Surroundings(forms, variables)

    def _called(self, function: Any) -> Mapping[str, Any] | None:
        name = getattr(function, "__name__", type(function).__name__)
        try:
            found = function()
        except DaybreakError:
            raise
        except Exception as error:
            raise BadInput(
                f"{self._who}: {name}(), which tells its environment for the cache, raised {type(error).__name__}: "
                f"{error}"
            ) from error
        if found is None:
            return None
        if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
            raise BadInput(
                f"{self._who}: {name}(), which tells its environment for the cache, returned {found!r:.60}: return a "
                "dict whose keys are texts, or None to cache nothing now"
            )
        return found

    def _encoded(self, name: str, value: object) -> bytes:
        try:
            with collecting():
                return tagged_json.encode(value, f"{self._who}: environment {name!r} of its cache")
        except BadInput as error:
            raise BadInput(str(error)) from None

    def key(self, encoded: bytes, around: Surroundings, seal: bytes | None) -> Key:
        """The key of a job with these arguments. NeedsSeal: `seal`, the key of the store, is needed and None."""
        digests: dict[str, bytes] = {}
        for name, form in self._definition.arguments.canonical(encoded, seal).items():
            if name not in self._cache.ignore:
                digests[ARGUMENT + name] = _digest(form)
        for name, data in around.forms.items():
            digests[VARIABLE + name] = _digest(canonical(read_encoded(data), seal))
        for name, value in around.variables.items():
            form = b"" if value is None else b"=" + os.fsencode(value)
            digests[VARIABLE + name] = _digest(sealed(form, seal).encode())
        return _key(self._definition.name, self._fixed, digests)

    @once
    def _fixed(self) -> dict[str, str]:
        """The parts that all jobs of the task have in common."""
        version = str(self._definition.version)
        if self._cache.version is not None:
            return {VERSION: f"{version} {self._cache.version}", **self._salt}
        return {VERSION: version, SOURCE: self._definition.whole_code, **self._salt}

    @once
    def _salt(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in self._cache.salt:
            code = _digest(part.encode()).hex() if isinstance(part, str) else part_digest(part)
            found[_free(SALT + salt_name(part), found)] = code
        return found


def _free(name: str, taken: Container[str]) -> str:
    """The name, with a number if it is taken: two parts of one name count both."""
    numbered = (f"{name} {number}" for number in itertools.count(2))
    return next(one for one in itertools.chain((name,), numbered) if one not in taken)


def key_of_values(what: str, values: Mapping[str, Any], version: str | None = None) -> Key:
    """The key of work that is no call of a function: these values and the version of the work decide its result. `what`
    names it in errors."""
    digests: dict[str, bytes] = {}
    for name, value in values.items():
        with collecting():
            encoded = tagged_json.encode(value, f"{what}: {name!r}")
        if has_secret(encoded):
            raise BadInput(f"{what}: {name!r} contains a secret, of which no digest may be kept here: leave it out")
        digests[ARGUMENT + name] = _digest(canonical(read_encoded(encoded), None))
    return _key(what, {} if version is None else {VERSION: version}, digests)


def _key(task: str, fixed: Mapping[str, str], digests: Mapping[str, bytes]) -> Key:
    whole = hashlib.blake2b(digest_size=FLIGHT_BYTES)
    whole.update(msgspec.json.encode([FORMAT, task, sorted(fixed.items())]))
    parts = dict(fixed)
    others = hashlib.blake2b(digest_size=PART_BYTES)
    has_others = False
    for name, digest in sorted(digests.items()):
        whole.update(msgspec.json.encode([name, digest.hex()]))
        if len(parts) < PARTS_LIMIT and len(name) <= NAME_CHARS:
            parts[name] = digest[:PART_BYTES].hex()
        else:
            has_others = True
            others.update(digest)
    if has_others:
        parts[OTHERS] = others.hexdigest()
    return Key(whole.hexdigest(), parts)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=FLIGHT_BYTES).digest()


__all__ = ["CacheKeys", "Key", "NeedsSeal", "Surroundings"]

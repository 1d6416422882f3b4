"""A caller: who sends a request, which roles they have, and which queues they may use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from msgspec import Struct

from daybreak.core.errors import BadInput

Role = Literal["read", "submit", "work", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

# What a token with this role may do. A worker's token reaches the lease routes and nothing else.
GRANTS: Final[dict[Role, frozenset[Role]]] = {
    "read": frozenset({"read"}),
    "submit": frozenset({"read", "submit"}),
    "work": frozenset({"work"}),
    "admin": frozenset(ROLES),
}


class Caller(Struct, frozen=True, kw_only=True):
    """Who sends a request. `by` is written into every change they make. `queues` of None means all queues."""

    by: str
    kind: Literal["anonymous", "token", "session"]
    roles: frozenset[Role] = frozenset()
    queues: frozenset[str] | None = None
    csrf: str = ""

    def may(self, role: Role) -> bool:
        return any(role in GRANTS[own] for own in self.roles)

    def may_use(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


def roles_of(words: Iterable[str]) -> frozenset[Role]:
    """Roles from words, at least one; an unknown word is an error that lists the known ones."""
    words = list(words)
    if unknown := [word for word in words if word not in ROLES]:
        raise BadInput(f"no role named {unknown[0]!r}: the roles are {', '.join(ROLES)}")
    if not words:
        raise BadInput(f"a token needs a role: {', '.join(ROLES)}")
    return frozenset(role for role in ROLES if role in words)

"""One pull request in its own process: waits for its workspace, applies until its input ends, and prints what happens.

python pull.py 101      in one terminal, python pull.py 102 in another; Ctrl-D ends the one that applies
"""

import asyncio
import sys
import threading
from dataclasses import dataclass

from enhanced_locking import Project, PullRequest, determine_priority, lock_name, only_on_call

from daybreak import Daybreak, LeaseLost, LockTimeout, NotAllowed
from daybreak.api.locks import Lock

STORE = "pulls.db"
ON_CALL = frozenset({"eve"})
NETWORK = Project("acme/infra", "network")
PROD = lock_name(NETWORK, "prod")
STAGING = lock_name(NETWORK, "staging")
LEASE = "10s"  # a crashed holder loses the lock after this time
GAVE_UP, LOST, REFUSED = 75, 76, 77


@dataclass(frozen=True)
class Case:
    """`asked` is a priority that the author requests by name, instead of the computed one."""

    user: str
    pull: PullRequest
    lock: str = PROD
    wait: str = "1m"
    lease: str = LEASE
    asked: str | None = None

    @property
    def priority(self) -> object:
        return self.asked or determine_priority(self.pull, self.user, ON_CALL)


def _case(number: int, user: str, base: str, title: str, **more: str) -> tuple[int, Case]:
    return number, Case(user, PullRequest(number, title, base), **more)


CASES = dict([
    _case(101, "ann", "develop", "add a subnet"),
    _case(102, "bob", "develop", "rename the gateway"),
    _case(103, "cid", "release/2.1", "open port 8443"),
    _case(104, "dan", "develop", "try a larger subnet", lock=STAGING),
    _case(105, "fay", "develop", "HOTFIX the colour of a tag"),
    _case(106, "eve", "main", "HOTFIX revoke the leaked key", lease="3s"),
    _case(107, "gus", "develop", "add a bastion", asked="emergency"),
    _case(108, "hal", "main", "raise the quota"),
    _case(109, "ivy", "develop", "update a comment", wait="1s"),
])  # fmt: skip


def main() -> int:
    number = int(sys.argv[1])
    case = CASES[number]
    with Daybreak(STORE, by=case.user) as app:
        app.rule(only_on_call(ON_CALL))
        try:
            lock = app.lock(case.lock, priority=case.priority, wait=case.wait, lease=case.lease)
            asyncio.run(apply(number, lock))
        except NotAllowed as refused:
            say(number, f"refused: {refused}")
            return REFUSED
        except LockTimeout:
            say(number, "gives up waiting")
            return GAVE_UP
        except LeaseLost:
            say(number, "was told that the lock is not its own any more, and stops")
            return LOST
    say(number, "applied")
    return 0


async def apply(number: int, lock: Lock) -> None:
    acquiring, is_told = asyncio.create_task(lock.aacquire()), False
    while not (await asyncio.wait([acquiring], timeout=0.05))[0]:
        if not is_told and (place := await lock.aposition()) is not None:
            say(number, f"pending, {place} before it")
            is_told = True
    await acquiring
    say(number, f"has the lock, fence {lock.fence}")
    is_done = threading.Event()
    threading.Thread(target=read_input, args=[is_done], daemon=True).start()
    while not is_done.is_set():
        lock.check()  # between two steps of the work: LeaseLost if the lock may be lost
        await asyncio.sleep(0.05)
    await lock.arelease()


def read_input(is_done: threading.Event) -> None:
    sys.stdin.read()
    is_done.set()


def say(number: int, what: str) -> None:
    print(f"  {number} {CASES[number].user}: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Which files have stopped changing."""

from __future__ import annotations

from daybreak.feeds.drop_folder.entry import Fingerprint


class SettleCheck:
    """Remembers since when each file has been as it is. Times are in microseconds of a steady clock, so a file's own
    time stamps, which come from another clock on a network mount, are only compared with each other."""

    def __init__(self, settle: int) -> None:
        self._settle = settle
        self._seen: dict[str, tuple[Fingerprint, int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, path: str) -> bool:
        return path in self._seen

    def see(self, path: str, fingerprint: Fingerprint, now: int) -> bool:
        """Note how a file is now. True if it has been the same for the settle time."""
        before = self._seen.get(path)
        if before is None or before[0] != fingerprint:
            self._seen[path] = (fingerprint, now)
            return self._settle == 0
        return now - before[1] >= self._settle

    def due(self, now: int) -> list[str]:
        """The files that have been the same for the settle time, as far as is known: they must be looked at again."""
        return [path for path, (_, since) in self._seen.items() if now - since >= self._settle]

    def restart(self, path: str, now: int) -> None:
        """Wait for this file once more: it turned out not to be complete."""
        found = self._seen.get(path)
        if found is not None:
            self._seen[path] = (found[0], now)

    def forget(self, path: str) -> None:
        self._seen.pop(path, None)

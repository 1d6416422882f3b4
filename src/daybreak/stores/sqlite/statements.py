"""The SQL, one statement a file; `sql.insert_job` is the text of sql/insert_job.sql."""

from __future__ import annotations

from importlib.resources import files


class Statements:
    def __init__(self, folder: str) -> None:
        here = files(__package__).joinpath(folder)
        self._texts = {
            file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
            for file in here.iterdir()
            if file.name.endswith(".sql")
        }

    def __getattr__(self, name: str) -> str:
        try:
            return self._texts[name]
        except KeyError:
            raise AttributeError(f"there is no statement {name}.sql") from None

    def names(self) -> list[str]:
        return sorted(self._texts)


sql = Statements("sql")
migrations = Statements("migrations")

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
        vars(self).update(self._texts)  # every request asks for a dozen: they are found without a call

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"there is no statement {name}.sql")

    def names(self) -> list[str]:
        return sorted(self._texts)


sql = Statements("sql")
migrations = Statements("migrations")

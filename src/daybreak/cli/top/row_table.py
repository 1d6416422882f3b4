"""A table with a cursor and marks. The selected row stays selected, and stays on its line, when the rows change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct
from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message

from daybreak.cli.top.painted import STATE_STYLES, Line, Painted, cut

GAP: Final = "  "
MARGIN: Final = 2  # columns for the cursor and the mark
MIN_GIVING: Final = 14  # columns of the column that takes the rest


class TableColumn(Struct, frozen=True):
    """A column. `most` limits its width; a column that `gives` takes the rest of the line; columns with a `drop` are
    left out on a narrow screen, the highest number first."""

    title: str
    most: int = 40
    gives: bool = False
    drop: int = 0
    right: bool = False


class Row(Struct, frozen=True):
    """A row. Its key identifies it when the rows are read again."""

    key: str
    cells: tuple[str, ...]


class RowTable(Painted, can_focus=True):
    """A table of rows that are read again and again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "move_page(-1)", show=False),
        Binding("pagedown,ctrl+f", "move_page(1)", show=False),
        Binding("home,g", "move_to(0)", show=False),
        Binding("end,G", "move_to(-1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """Enter was pressed on a row."""

        def __init__(self, table: RowTable, key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> RowTable:
            return self.table

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self, columns: Sequence[TableColumn], *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.columns = columns
        self.rows: list[Row] = []
        self.marks: set[str] = set()
        self.empty: list[str] = []  # what to show instead of rows
        self._index = 0
        self._top = 0
        self._last_drawn: tuple[object, ...] = ()

    # -- rows ----------------------------------------------------------------------------------------------------------

    @property
    def selected(self) -> str | None:
        """The key of the row under the cursor."""
        return self.rows[self._index].key if self.rows else None

    @property
    def index(self) -> int:
        return self._index

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def show(self, rows: Sequence[Row], *, at_top: bool = False) -> None:
        """Show other rows. The selected row keeps the cursor and its line on the screen; if it is no longer among the
        rows, it stays until the cursor leaves it. With `at_top` the cursor goes to the first row."""
        selected = None if at_top else self.selected
        line = self._index - self._top
        rows = list(rows)
        keys = [row.key for row in rows]
        if selected is None:
            self._index, line = 0, 0
        elif selected in keys:
            self._index = keys.index(selected)
        else:
            self._index = min(self._index, len(rows))
            rows.insert(self._index, self.rows[self.index_of(selected)])
        self.rows = rows
        self._top = self._index - line
        self._scroll()

    def _drawn(self) -> tuple[object, ...]:
        return self.rows, self._index, self._top, frozenset(self.marks), tuple(self.empty), self.size

    def index_of(self, key: str) -> int:
        return next(n for n, row in enumerate(self.rows) if row.key == key)

    def _scroll(self) -> None:
        """Keep the cursor in view, and the list without empty lines at its end."""
        height = max(self.size.height - 1, 1)
        self._top = max(min(self._top, len(self.rows) - height, self._index), self._index - height + 1, 0)
        if self._drawn() != self._last_drawn:  # a terminal may be far away
            self._last_drawn = self._drawn()
            self.refresh()

    def on_resize(self) -> None:
        self._scroll()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # -- the cursor ----------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self._index = max(min(self._index + by, len(self.rows) - 1), 0)
        self._scroll()
        self.post_message(self.Moved())

    def action_move_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 2, 1))

    def action_move_to(self, place: int) -> None:
        self._index = len(self.rows) - 1 if place < 0 else 0
        self.action_move(0)

    def action_choose(self) -> None:
        if (key := self.selected) is not None:
            self.post_message(self.Chosen(self, key))

    # -- drawing -------------------------------------------------------------------------------------------------------

    def paint(self, y: int, width: int) -> tuple[Line, str]:
        if not self.rows:
            return self._paint_empty(y)
        widths = self._widths(width)
        if y == 0:
            cells = [_cell(self.columns[n].title, size, self.columns[n].right) for n, size in widths.items()]
            return [(" " * MARGIN + GAP.join(cells), "")], "bold"
        n = self._top + y - 1
        if n >= len(self.rows):
            return (), ""
        row = self.rows[n]
        is_selected = n == self._index
        cursor = ">" if is_selected else " "
        mark = "*" if row.key in self.marks else " "
        parts = [(cursor + mark, "bold")]
        for place, (i, size) in enumerate(widths.items()):
            style = "" if is_selected else STATE_STYLES.get(row.cells[i], "")
            gap = GAP if place else ""
            parts.append((gap + _cell(row.cells[i], size, self.columns[i].right), style))
        fill = "reverse" if is_selected and self.has_focus else ""
        return parts, fill + (" bold" if row.key in self.marks else "")

    def _paint_empty(self, y: int) -> tuple[Line, str]:
        n = y - 1
        return ([("  " + self.empty[n], "bold" if n == 0 else "")] if 0 <= n < len(self.empty) else ()), ""

    def _widths(self, width: int) -> dict[int, int]:
        """The columns that are shown, and how wide each is."""
        widths = {}
        for n, column in enumerate(self.columns):
            longest = max(cell_len(row.cells[n]) for row in self.rows)
            if longest:
                widths[n] = min(max(longest, cell_len(column.title)), 10_000 if column.gives else column.most)
        giving = next((n for n in widths if self.columns[n].gives), None)
        for n in sorted(widths, key=lambda n: -self.columns[n].drop):
            room = self._room(widths, width)
            if room >= 0 or (giving is not None and widths[giving] + room >= MIN_GIVING):
                break
            if self.columns[n].drop:
                del widths[n]
        if giving is not None:
            widths[giving] = max(widths[giving] + min(self._room(widths, width), 0), 1)
        return widths

    @staticmethod
    def _room(widths: dict[int, int], width: int) -> int:
        return width - MARGIN - sum(widths.values()) - len(GAP) * max(len(widths) - 1, 0)


def _cell(text: str, width: int, right: bool) -> str:
    shown = cut(text, width)
    room = " " * (width - cell_len(shown))
    return room + shown if right else shown + room

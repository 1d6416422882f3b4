"""Arguments and results by annotation."""

from __future__ import annotations

import enum
import functools
import json
import math
import subprocess
import sys
import typing
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from daybreak import values
from daybreak.core.errors import BadArguments, BadInput, NotEncodable, TooLarge
from daybreak.values import Arguments, Result, Secret, decode, encode, shown
from daybreak.values.equality import difference

if typing.TYPE_CHECKING:
    from nowhere import Ghost

T = TypeVar("T")


def case_of(it: object) -> str:
    """The name of a case; without braces, for the order of a set is another in every process."""
    text = hex(it) if type(it) is int else repr(it)
    return type(it).__name__ if "{" in text else text[:40]


class Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Odd(enum.Enum):
    PAIR = (1, 2)
    NONE = None
    TEXT = "PAIR"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass
class Node:
    value: int
    children: list[Node] = field(default_factory=list)
    next: Node | None = None


@dataclass
class Circle:
    size: float


@dataclass
class Square:
    size: float


@dataclass
class Ring(Circle):
    inner: float = 0.0


@dataclass
class Box(Generic[T]):
    held: T


@dataclass(eq=False)
class Shadowed:
    """The name of a field is the name of its type."""

    date: date | None = None


class Cell(msgspec.Struct, Generic[T], rename="camel"):
    the_value: T
    at: date | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET


class Pair(NamedTuple):
    number: int
    path: Path = Path()


class Order(TypedDict):
    item: str
    due: NotRequired[date]


class Loose(TypedDict):
    item: Any


class Wrap(pydantic.BaseModel, Generic[T]):
    held: T


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="theName")
    point: Point | None = None
    shape: Circle | Square | None = None
    level: Level = Level.LOW
    url: pydantic.HttpUrl | None = None
    locked: pydantic.SecretStr | None = None
    numbers: dict[int, float] = {}
    hosts: list[IPv4Address] = []
    anything: Any = None


class Open(pydantic.BaseModel, extra="allow"):
    a: int = 1


class Points(pydantic.RootModel[list[Point]]):
    pass


UserId = NewType("UserId", int)
Json = typing.Union[dict[str, "Json"], list["Json"], str, float, int, bool, None]  # noqa: UP007
AliasOfMany = TypeAliasType("AliasOfMany", Circle | Square)
Tree = SimpleNamespace()  # as `type Tree = dict[str, Tree | int]` makes it
Tree.__value__ = dict[str, Tree]


def arguments(annotation: Any) -> Arguments:
    def task(it): ...

    task.__annotations__["it"] = annotation
    return Arguments(task, context=False)


def passed(annotation: Any, value: object) -> Any:
    """What a task gets whose parameter `it` is annotated so."""
    takes = arguments(annotation)
    [], got = takes.decode(takes.encode((value,), {}))
    return got["it"]


def parts(value: object) -> object:
    """A value as nested tuples with the type of every part, so that == is strict and NaN is NaN."""
    kind = type(value)
    match value:
        case float():
            return kind, repr(float(value))
        case Decimal():
            return kind, str(value)
        case Secret():
            return kind, parts(value.reveal())
        case enum.Enum():
            return kind, value.name, value.value
        case list() | tuple():
            return kind, *map(parts, value)
        case set() | frozenset():
            return kind, *sorted(map(parts, value), key=repr)
        case dict():
            return kind, *((parts(key), parts(item)) for key, item in value.items())
        case pydantic.BaseModel():
            held = {**value.__dict__, **(value.__pydantic_extra__ or {})}
            return kind, parts(held), sorted(value.model_fields_set)
        case msgspec.Struct():
            return kind, parts({name: getattr(value, name) for name in kind.__struct_fields__})
        case _ if hasattr(kind, "__dataclass_fields__"):
            return kind, parts(vars(value))
    return kind, value


class Nano(datetime):
    """Finer than a datetime can say."""

    __hash__ = datetime.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Nano and super().__eq__(other)


MOMENT = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
DAY = date(2026, 1, 31)
NAIVE = MOMENT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 7), (int, 2**70), (float, math.nan), (float, -math.inf), (float, -0.0), (bool, True),
        (str, "\0\x7f\x1b🌅"), (None, None), (bytes, b"\xff"), (bytearray, bytearray(b"a")), (datetime, MOMENT),
        (datetime, NAIVE), (date, DAY), (time, time(1, 2)), (timedelta, timedelta(microseconds=-1)),
        (UUID, UUID(int=7)), (Decimal, Decimal("1.10")), (Decimal, Decimal("NaN")), (Path, Path("a/b")),
        (PurePath, PurePath("a")), (PureWindowsPath, PureWindowsPath("a\\b")), (PurePosixPath, PurePosixPath("a/b")),
        (Color, Color.RED), (Level, Level.LOW), (Odd, Odd.PAIR), (Odd, Odd.NONE), (Odd, Odd.TEXT),
        (Rights, Rights.READ | Rights.WRITE), (Rights, Rights(0)), (Literal["a", 1, True], True),
        (Literal["a", 1, True], 1), (Literal[Color.RED, 0], Color.RED), (Literal[b"a"], b"a"), (int | None, None),
        (int | float, 1), (int | float, 1.0), (float | int, 1), (bool | int, 1), (str | Path, "a"), (Path | str, "a"),
        (str | Path, Path("a")), (str | datetime, "2026-01-31"), (datetime | str, "2026-01-31"), (Color | str, "red"),
        (Color | str, Color.RED), (str | Color, Color.RED), (date | datetime, MOMENT), (datetime | Any, "2026-01-31"),
        (list[int] | list[str], ["a"]), (list[datetime] | list[str], ["2026-01-31"]),
        (dict[str, Path] | dict[str, str], {"a": "b"}), (Path | PureWindowsPath, PureWindowsPath("a")),
        (Path | PurePath, PurePath("a")), (Secret[Path] | Path, Path("a")), (Box[date] | Box[str], Box("2026-01-31")),
        (list[date] | Sequence[str], ["2026-01-31"]), (AliasOfMany | None, Square(1.0)), (Loose | Order, {"item": "a"}),
        ("Literal['a'] | str", "b"), (list[int] | tuple[int, ...], (1,)), (Circle | Square, Square(1.0)),
        (Circle | Square | None, None), (Circle | Ring, Ring(1.0, 2.0)), (int | Secret[str], 5),
        (Sequence[Circle | Square], (Circle(1.0), Square(1.0))), (Odd | None, Odd.NONE), (list, [1, (2,)]),
        (list[float], [1.0, math.nan]), (tuple, (1, [2])), (tuple[()], ()), (tuple[int, str], (1, "a")),
        (tuple[date, ...], (DAY, DAY)), (set[str], {"a", "b"}), (set[Point], {Point(1.0), Point(math.nan)}),
        (frozenset[Path], frozenset({Path("a")})), (dict, {1: {"$": 2}}), (dict[str, int], {"$": 1}),
        (dict[int, Point], {1: Point(1.0)}), (dict[Color, int], {Color.RED: 1}), (dict[date, None], {DAY: None}),
        (dict[tuple[int, int], str], {(1, 2): "a"}), (Mapping[str, Any], {"a": {1}}), (Sequence[int], [1]),
        (Sequence[int], (1,)), (Iterable[int], {1}), (typing.AbstractSet[int], frozenset({1})),
        ("typing.List[int]", [1]), ("typing.Tuple", (1,)), ("typing.Optional[int]", 1), (Point, Point(1.0, math.nan)),
        (Node, Node(1, [Node(2, [Node(3)])], Node(4))), (list[Point], [Point(1.0)] * 2), (Box[int], Box(1)),
        (Box[Box[date]], Box(Box(DAY))), (Box, Box({"a": 1})), (Shadowed, Shadowed(DAY)),
        (Cell[Color], Cell(Color.RED, DAY, "x")), (Cell[int], Cell(1)), (Pair, Pair(1, Path("a"))), (Pair, Pair(1)),
        (Order, {"item": "a"}), (Order, {"item": "a", "due": DAY}), (list[Order], [{"item": "a"}]),
        (Model, Model(theName="a")), (Model, Model(theName="a", point=Point(1.0, math.nan), shape=Square(2.0))),
        (Model, Model(theName="a", level=Level.HIGH, url="http://example.com/a", numbers={1: math.inf})),
        (Model, Model(theName="a", locked="x")), (Open, Open(b="more", c=[DAY])), (Open, Open(**{"$": 1})),
        (Model, Model(theName="a", hosts=["10.0.0.1"])), (pydantic.HttpUrl, pydantic.HttpUrl("http://example.com/")),
        (pydantic.HttpUrl | Path, pydantic.HttpUrl("http://example.com/")), (Open, Open(a=1)), (Open, Open()),
        (Points, Points([Point(1.0)])), (Wrap[Color], Wrap[Color](held=Color.RED)), (Model | Open, Open(a=2)),
        (Secret[str], Secret("x")), (Secret[Point], Secret(Point(1.0))), (Secret, Secret([1])),
        (Box[Secret[str]], Box(Secret("x"))), (pydantic.SecretStr, pydantic.SecretStr("x")),
        (Annotated[int, "a note"], 1), (UserId, UserId(7)), (Any, {"a": DAY}), (object, 1), (T, 1),
        (Json, {"a": [1, None, {"b": [1.5, True]}]}), (Tree, {"a": {"b": {"c": {}}}}), (np.float32, np.float32(0.1)),
        (np.float64, np.float64("nan")), (np.int16, np.int16(7)), (np.bool_, np.bool_(1)), (typing.SupportsFloat, 1.5),
        (typing.Hashable, (1, 2)), ("list[Point | None]", [None, Point(1.0)]), ("Ghost", {"a": 1}),
        ("list[Ghost]", [1]), ("no type at all", 1), (7, 7),
    ],
    ids=case_of,
)  # fmt: skip
def test_a_value_of_its_annotation_comes_back_equal_and_of_its_type(annotation, value):
    assert parts(passed(annotation, value)) == parts(value)


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (float, "abc", "args.it: 'abc' is not a valid float"), (float, True, "args.it: True is not a valid float"),
        (float, 2**60 + 1, "is not a valid float"), (float, 10**400, "is not a valid float"),
        (float, None, "None is not a valid float"),
        (int, True, "args.it: True is not a valid int"), (int, 1.0, "args.it: 1.0 is not a valid int"),
        (bool, 1, "1 is not a valid bool"),
        (int, "1", "'1' is not a valid int"), (str, 10**5000, "<int> is not a valid str"),
        (str, 5, "5 is not a valid str"),
        (str, b"a", "b'a' is not a valid str"), (bytes, "a", "'a' is not a valid bytes"),
        (None, 0, "0 is not a valid None"),
        (datetime, DAY, "is not a valid datetime"), (date, MOMENT, "is not a valid date"),
        (datetime, "2026-01-31", "is not a valid datetime"),
        (timedelta, 5, "5 is not a valid timedelta"), (Path, "a", "'a' is not a valid Path"),
        (Decimal, 1.5, "1.5 is not a valid Decimal"),
        (Color, "red", "'red' is not a valid Color"), (Level, 1, "1 is not a valid Level"),
        (Level, True, "True is not a valid Level"),
        (Literal["a", 1], True, "True is not a valid Literal['a', 1]; choose 'a' or 1"),
        (Literal["a"], [], "choose 'a'"),
        (int | None, "a", "'a' is not a valid int | None"), (list[int], (1,), "(1,) is not a valid list[int]"),
        (list[int], [1, "a"], "args.it[1]: 'a' is not a valid int"),
        (tuple[int, str], (1,), "(1,) is not a valid tuple[int, str]"),
        (tuple[int, str], (1, 2), "args.it[1]: 2 is not a valid str"),
        (set[int], {"a"}, "args.it: 'a' is not a valid int"),
        (dict[str, int], {"a": "b"}, "args.it.a: 'b' is not a valid int"),
        (dict[int, int], {"a": 1}, "args.it: in a key: 'a' is not a valid int"),
        (Sequence[str], "abc", "'abc' is not a valid Sequence[str]"),
        (list[int] | None, [1, "a"], "args.it[1]: 'a' is not a valid int"),
        (Point, {"x": 1.0}, "{'x': 1.0} is not a valid Point"),
        (Point, Point("a"), "args.it.x: 'a' is not a valid float"),
        (Box[int], Box("a"), "args.it.held: 'a' is not a valid int"),
        (Node, Node(1, [Node("a")]), "args.it.children[0].value: 'a'"),
        (Cell[int], Cell("a"), "args.it.the_value: 'a' is not a valid int"), (Pair, (1, Path()), "is not a valid Pair"),
        (Order, {}, "args.it: a Order is missing item"),
        (Order, {"item": "a", "x": 1}, "a Order has no 'x'; its fields: item, due"),
        (Order, {"item": 1}, "args.it.item: 1 is not a valid str"), (str, Secret("hunter2"), "*** is not a valid str"),
        (Model, {"theName": "a"}, "is not a valid Model"), (datetime, Nano(2026, 1, 1), "is not a valid datetime"),
        (date, Nano(2026, 1, 1), "is not a valid date"),
        (typing.SupportsFloat, "a", "'a' is not a valid SupportsFloat"),
    ],
    ids=case_of,
)  # fmt: skip
def test_a_value_of_another_type_is_refused_naming_the_parameter(annotation, value, told):
    with pytest.raises(BadArguments) as refused:
        passed(annotation, value)
    assert told in str(refused.value)


@dataclass
class Counting:
    """Comes back as something else."""

    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        if self.n > 1:
            raise ValueError("too many")


@dataclass
class Told:
    n: InitVar[int]


@dataclass
class Late:
    n: int
    seen: list[int] = field(default_factory=list, init=False)


class Rounding(pydantic.BaseModel):
    n: float

    @pydantic.field_validator("n")
    @classmethod
    def rounded(cls, n: float) -> float:
        return n + 1


class Private(pydantic.BaseModel):
    n: int = 1
    _seen: int = 0


def grown(value: Any, **changes: Any) -> Any:
    for name, change in changes.items():
        setattr(value, name, change)
    return value


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (Counting, Counting(1), "args.it.n: 2 would not be decoded equal: it would be 3"),
        (list[Counting], [Counting(1)], "args.it[0].n: 2 would"), (Counting | None, Counting(1), "args.it.n: 2 would"),
        (tuple[int, Counting], (1, Counting(1)), "args.it[1].n: 2 would"),
        (set[str] | Counting, Counting(1), "args.it.n: 2 would"),
        (dict[str, Counting], {"a": Counting(1)}, "args.it.a.n: 2 would"),
        (Box[Counting], Box(Counting(1)), "args.it.held.n: 2 would"),
        (Picky, grown(Picky(1), n=2), "cannot be decoded again: cannot make a Picky"),
        (Told, Told(1), "cannot be decoded again: cannot make a Told from it: TypeError"),
        (Late, grown(Late(1), seen=[1]), "args.it.seen: [1] would not be decoded equal: it would be []"),
        (Rounding, Rounding(n=1), "args.it.n: 2.0 would not be decoded equal: it would be 3.0"),
        (Model, Model(theName="a", anything=Level.LOW), "args.it.anything: a tests"),
        (Model, Model(theName="a", anything=Point(1.0)), "args.it.anything: a tests"),
        (Open, Open(a=1, b="\ud800"), "args.it.b: the text contains"),
        (IPv4Address, IPv4Address("10.0.0.1"), "would not be decoded equal"),
        (Private, grown(Private(), _seen=5), "_seen: 5 would not be decoded equal: it would be 0"),
        (Circle, Ring(1.0), "a Ring would be decoded as its base class Circle; annotate it with Ring"),
        (Circle | None, Ring(1.0), "annotate it with Ring"),
        (Path, PureWindowsPath("a"), "PureWindowsPath('a') would not be decoded equal: it would be"),
        (Any, Point(1.0), "annotate it with Point"), (Any, Color.RED, "annotate it with Color"),
        ("Ghost", Point(1.0), "; its annotation Ghost cannot be resolved at run time"),
        (str, "\ud800", "args.it: the text contains an unpaired surrogate"),
        (Path, Path("\udcff"), "unpaired surrogate"), (Box[str], Box("\ud800"), "args.it.held: the text contains"),
        (dict[str, int], {"\ud800": 1}, "unpaired surrogate"),
        (typing.Callable[[], None], print, "would not be decoded equal"),
        (type[int], int, "would not be decoded equal"),
        (defaultdict[str, int], defaultdict(int), "would not be decoded equal"),
        (complex, 1j, "would not be decoded equal"),
        (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), "pass it in UTC"),
    ],
    ids=case_of,
)  # fmt: skip
def test_what_would_not_come_back_equal_is_refused_naming_the_place(annotation, value, told):
    with pytest.raises(NotEncodable) as refused:
        passed(annotation, value)
    assert str(refused.value).startswith("args.it")
    assert told in str(refused.value)


class Text(str):
    __slots__ = ()


class Moment(datetime):
    pass


@pytest.mark.parametrize(
    ("annotation", "value", "plainer"),
    [
        (float, 24, 24.0), (float, np.float32(0.5), 0.5), (float, np.int64(3), 3.0), (int, np.uint8(3), 3),
        (bool, np.bool_(1), True), (str, np.str_("a"), "a"), (str, Color.RED, "red"), (int, Level.HIGH, 1),
        (float, Level.HIGH, 1.0), (str, Text("a"), "a"), (datetime, Moment(2026, 1, 31, 18), NAIVE),
        (list[float], [1, 2], [1.0, 2.0]), (Point, Point(1, 2), Point(1.0, 2.0)),
        (Wrap[float], grown(Wrap[float](held=1.0), held=24), Wrap[float](held=24.0)), (dict, Counter("aa"), {"a": 2}),
        (dict[str, int], OrderedDict(a=1), {"a": 1}), (tuple[int, ...], Pair(1)[:1], (1,)),
        (Secret[str], "x", Secret("x")), (Box[Secret[str]], Box("x"), Box(Secret("x"))),
        (PurePath, Path("a"), PurePath("a")), (int | None, np.int64(3), 3),
        (Secret[PurePath] | PurePath, Path("a"), PurePath("a")), (Secret[float] | float, 24, 24.0),
    ],
    ids=case_of,
)  # fmt: skip
def test_an_equal_value_of_a_plainer_type_is_what_the_annotation_asked_for(annotation, value, plainer):
    assert parts(passed(annotation, value)) == parts(plainer)


@pytest.mark.parametrize(
    ("annotation", "stored", "value"),
    [
        (float, 24, 24.0), (datetime, "2026-01-31T18:00:00Z", MOMENT), (date, "2026-01-31", DAY),
        (timedelta, "1h30m", timedelta(hours=1.5)), (UUID, str(UUID(int=7)), UUID(int=7)),
        (Decimal, "1.10", Decimal("1.10")), (Decimal, 24, Decimal(24)), (Path, "a", Path("a")),
        (bytes, "/wA=", b"\xff\0"), (Color, "red", Color.RED), (Level, 1, Level.HIGH), (Odd, "PAIR", Odd.PAIR),
        (tuple[int, ...], [1], (1,)), (set[int], [1], {1}), (dict[int, str], {"1": "a"}, {1: "a"}),
        (dict[date, int], {"2026-01-31": 1}, {DAY: 1}), (Point, {"x": 1}, Point(1.0)),
        (Circle | Square, {"size": 1}, Circle(1.0)), (Circle | Order, {"item": "a"}, {"item": "a"}),
        (Model, {"theName": "a", "level": 1}, Model(theName="a", level=Level.HIGH)),
        (Points, [{"x": 1}], Points([Point(1.0)])), (Secret[str], "x", Secret("x")),
        (Cell[int], {"the_value": 1}, Cell(1)), (Order, {"item": "a", "due": "2026-01-31"}, {"item": "a", "due": DAY}),
        (Literal["a", 1], 1, 1), (list[date] | None, ["2026-01-31"], [DAY]),
        (pydantic.SecretStr, "x", pydantic.SecretStr("x")),
    ],
    ids=case_of,
)  # fmt: skip
def test_json_of_others_is_read_by_annotation(annotation, stored, value):
    [], got = arguments(annotation).decode(json.dumps({"it": stored}).encode())
    assert parts(got["it"]) == parts(value)


@pytest.mark.parametrize(
    ("annotation", "stored", "told"),
    [
        (float, "abc", "args.it: 'abc' is not a valid float"), (int, 1.5, "args.it: 1.5 is not a valid int"),
        (datetime, "soon", "'soon' is not a valid datetime"),
        (timedelta, "5", "'5' is not a valid timedelta; write '90s', '10m', '1h30m'"),
        (bytes, "?", "'?' is not a valid bytes in base64"),
        (Color, "green", "'green' is not a valid Color; choose 'red' or 'blue'"),
        (list[int], [1, "a"], "args.it[1]: 'a' is not a valid int"),
        (Odd, 1, "1 is not a valid Odd; choose 'PAIR', 'NONE' or 'TEXT'"),
        (set[int], [[]], "args.it[0]: [] is not a valid int"), (set, [[]], "is not a valid set"),
        (dict[str, int], {"a": "b"}, "args.it.a: 'b' is not a valid int"),
        (dict[int, int], {"a": 1}, "'a' is not a valid int"),
        (dict, {"$": ["map", [1]]}, "the tag 'map' was not written"), (Point, {}, "args.it: a Point is missing x"),
        (Point, {"x": 1, "z": 1}, "args.it.z: a Point has no 'z'; its fields: x, y"),
        (Point, 5, "5 is not a valid Point"),
        (Point, {"x": "a"}, "args.it.x: 'a' is not a valid float"),
        (Picky, {"n": 5}, "cannot make a Picky from it: ValueError: too many"),
        (Model, {}, "cannot make a Model from it: ValidationError: theName: Field required"),
        (Path, {"$": ["path", 5]}, "the tag 'path' was not written"),
        (Circle | Square, {"$": ["as", ["Ring", {}]]}, "a Ring is not a valid Circle | Square"),
        (Circle | Square, {"$": ["as", 5]}, "was not written by this version"),
        (int, {"$": ["new", 1]}, "the tag 'new' was not written by this version of Daybreak"),
        (np.float32, "x", "'x' is not a valid float32"), (str, {"$": ["secret", "hunter2"]}, "*** is not a valid str"),
        (Path, {"$": ["secret", "hunter2"]}, "*** is not a valid Path"),
        (Color, {"$": ["secret", "hunter2"]}, "*** is not a valid Color"),
        (Secret[float], "hunter2", "the content of *** is not a valid float"),
        (Secret[float], {"$": ["secret", "hunter2"]}, "the content of *** is not a valid float"),
        (list[int], {"$": ["tuple", [1]]}, "(1,) is not a valid list[int]"),
    ],
    ids=case_of,
)  # fmt: skip
def test_stored_arguments_that_no_longer_fit_are_refused_naming_the_parameter(annotation, stored, told):
    with pytest.raises(BadArguments) as refused:
        arguments(annotation).decode(json.dumps({"it": stored}).encode())
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b'{"$":["tuple",[]]}', b'{"$":5}', b"\xff", b"[" * 5000])
def test_what_is_no_object_of_arguments_is_refused(data):
    with pytest.raises(BadArguments, match=r"task\(\): the stored arguments are not a JSON object"):
        arguments(int).decode(data)


def test_arguments_that_the_untyped_client_stored_are_read_by_annotation():
    def task(when: datetime, where: Path, pair: tuple[int, str], n: int): ...

    given = {"when": MOMENT, "where": Path("a"), "pair": (1, "a"), "n": 2**70}
    assert Arguments(task, context=False).decode(encode(given)) == ([], given)


def test_arguments_written_by_annotation_are_read_without_it():
    def task(when: datetime, point: Point, shape: Circle | Square, color: Color): ...

    data = Arguments(task, context=False).encode((MOMENT, Point(1.0), Square(2.0), Color.RED), {})
    assert decode(data) == {"when": MOMENT, "point": {"x": 1.0, "y": 0.0}, "shape": {"size": 2.0}, "color": "red"}
    assert shown(data) == {
        "when": "2026-01-31T18:00:00+00:00", "point": {"x": 1.0, "y": 0.0}, "shape": {"size": 2.0}, "color": "red",
    }  # fmt: skip


def test_a_class_that_a_union_named_is_read_when_the_union_is_gone():
    data = arguments(Circle | Square).encode((Square(2.0),), {})
    assert arguments(Square).decode(data) == ([], {"it": Square(2.0)})
    assert arguments(Color).decode(arguments(Color | str).encode((Color.RED,), {})) == ([], {"it": Color.RED})
    assert arguments(Odd).decode(arguments(Odd | str).encode((Odd.PAIR,), {})) == ([], {"it": Odd.PAIR})
    with pytest.raises(BadArguments, match=r"a Square is not a valid Circle \| Ring"):
        arguments(Circle | Ring).decode(data)


def test_a_class_of_a_function_may_hold_itself():
    @dataclass
    class Link:
        next: Link | None = None

    assert passed(Link, Link(Link())) == Link(Link())


def test_a_big_whole_number_is_stored_so_that_every_reader_of_json_can_read_it():
    assert arguments(int).encode((2**63,), {}) == b'{"it":{"$":["int","0x8000000000000000"]}}'
    assert arguments(float).encode((math.nan,), {}) == b'{"it":{"$":["float","nan"]}}'


@pytest.mark.parametrize(
    ("sent", "back"),
    [
         (True, 1), (True, 1.0), (1, True), (1.0, 1), ({True}, {1}), ([1], (1,)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
         (Decimal("1.10"), Decimal("1.1")), (Circle(1.0), Square(1.0)), ({math.nan}, {1.0}), (Secret(1), Secret(True)),
     ],
)  # fmt: skip
def test_what_is_equal_to_python_only_is_not_the_same(sent, back):
    assert difference(sent, back) is not None


# -- depth -----------------------------------------------------------------------------------------------------------


def chain(levels: int) -> Node:
    node = Node(0)
    for _ in range(levels - 1):
        node = Node(0, next=node)
    return node


def test_the_depth_of_classes_is_limited_as_that_of_lists():
    assert passed(Node, chain(62)) == chain(62)
    with pytest.raises(TooLarge, match=r"args\.it\.next.*: nested deeper than 64 levels"):
        passed(Node, chain(66))


class Loop(pydantic.BaseModel):
    next: Loop | None = None


class Fork(msgspec.Struct):
    """Two ways at every level: whoever tried them all would not be done today."""

    next: list[Fork] | Sequence[Fork] | None = None


class Turn(msgspec.Struct):
    next: Turn | list[Turn] | None = None


def loops() -> list[tuple[Any, object]]:
    node, loop, turn, both = Node(1), Loop(), Turn(), Turn()
    node.next, loop.next, turn.next, both.next = node, loop, turn, [both]
    fork = Fork()
    fork.next = [fork]
    ring: list[Any] = []
    ring.append(ring)
    table: dict[Any, Any] = {}
    table["a"] = table
    return [
        (Node, node), (Loop, loop), (Turn, turn), (Turn, both), (Fork, fork), (list, ring), (Any, ring), (Json, ring),
        (dict, table), (Json, table), (Box[list], Box(ring)), (Secret[list], Secret(ring)),
        (list[list] | tuple[list, ...], ring),
    ]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), loops(), ids=lambda it: type(it).__name__)
def test_what_holds_itself_is_too_large(annotation, value):
    with pytest.raises(TooLarge):
        passed(annotation, value)
    with pytest.raises(TooLarge):
        Result(annotation).encode(value)


def test_json_of_others_nested_without_end_is_refused():
    deep = b'{"it":' + b'{"value":1,"next":' * 400 + b"null" + b"}" * 400 + b"}"
    with pytest.raises(BadArguments, match="nested deeper"):
        arguments(Node).decode(deep)


# -- binding ---------------------------------------------------------------------------------------------------------


def many(first: int, /, second: str = "b", *rest: float, only: bool = True, **more: date): ...


def called(function: Any, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    takes = Arguments(function, context=False)
    return takes.decode(takes.encode(args, kwargs))


def test_every_kind_of_parameter_is_passed_on_so_that_it_can_be_called():
    assert called(many, 1) == ([1], {})
    assert called(many, 1, "c") == ([1], {"second": "c"})
    assert called(many, 1, "c", 2.0, 3) == ([1, "c", 2.0, 3.0], {})
    assert called(many, 1, only=False, when=DAY) == ([1], {"only": False, "when": DAY})


def test_only_given_arguments_are_stored():
    assert Arguments(many, context=False).encode((1,), {}) == b'{"first":1}'


def test_the_same_arguments_are_the_same_content_however_they_are_given():
    def task(a: float, b: int = 2): ...

    takes = Arguments(task, context=False)
    ways = [takes.encode((1, 2), {}), takes.encode((), {"b": 2, "a": 1.0}), takes.encode_named({"b": 2, "a": 1})]
    assert set(ways) == {b'{"a":1.0,"b":2}'}


def test_named_arguments_may_name_what_a_call_can_give_by_position_only():
    takes = Arguments(many, context=False)
    data = takes.encode_named({"first": 1, "rest": [2.0]})
    assert takes.decode(data) == ([1, "b", 2.0], {})


def test_an_earlier_position_that_was_left_out_gets_its_default():
    def task(a: int = 1, b: int = 2, /): ...

    takes = Arguments(task, context=False)
    assert takes.decode(takes.encode_named({"b": 5})) == ([1, 5], {})
    assert takes.decode(takes.encode_named({})) == ([], {})


def test_the_context_is_no_argument():
    def task(ctx: Ghost, n: int): ...

    takes = Arguments(task, context=True)
    assert takes.decode(takes.encode((1,), {})) == ([], {"n": 1})
    with pytest.raises(BadArguments, match="has no parameter 'ctx'"):
        takes.encode((1,), {"ctx": 2})


def test_a_name_of_the_users_own_may_be_a_dollar():
    def task(**more): ...

    assert called(task, **{"$": 1}) == ([], {"$": 1})
    assert called(task, **{"$": ["tuple", [1]]}) == ([], {"$": ["tuple", [1]]})


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {}, "plain() is missing 'vin' and 'model'"),
        ((1,), {}, "plain() is missing 'model'"),
        ((1, "m", 2, 3), {}, "plain() takes 3 positional arguments, but got 4"),
        ((1,), {"vin": 2, "model": "m"}, "plain() got 'vin' twice: by position and by name"),
        ((1, "m"), {"vinn": 2}, "plain() has no parameter 'vinn'; did you mean 'vin'?"),
        ((1, "m"), {"zzz": 2}, "plain() has no parameter 'zzz'; its parameters: 'vin', 'model', 'turns'"),
        (("abc", "m"), {}, "args.vin: 'abc' is not a valid float"),
    ],
)
def test_what_a_call_would_refuse_is_refused_naming_the_parameter(args, kwargs, told):
    def plain(vin: float, model: str, turns=1): ...

    with pytest.raises(BadArguments) as refused:
        Arguments(plain, context=False).encode(args, kwargs)
    assert str(refused.value) == told


@pytest.mark.parametrize("kwargs", [{"first": 1}, {"rest": [1.0]}])
def test_what_goes_by_position_only_is_refused_by_name(kwargs):
    with pytest.raises(BadArguments, match="by name; it is positional-only"):
        Arguments(many, context=False).encode((1, "b"), kwargs)


def test_stored_arguments_of_another_signature_are_refused():
    def task(vin: float): ...

    takes = Arguments(task, context=False)
    with pytest.raises(BadArguments, match=r"task\(\) is missing 'vin'"):
        takes.decode(b"{}")
    with pytest.raises(BadArguments, match=r"task\(\) has no parameter 'volt'"):
        takes.decode(b'{"vin":1,"volt":2}')


class Called:
    def __call__(self, n: float, when: date) -> None: ...

    def method(self, n: float, when: date) -> None: ...


def around(function: Any) -> Any:
    @functools.wraps(function)
    def outer(*args, **kwargs):
        return function(*args, **kwargs)

    return outer


def core(n: float, when: date) -> date: ...


@pytest.mark.parametrize("function", [Called(), Called().method, around(core), functools.partial(core)])
def test_anything_that_can_be_called_has_arguments(function):
    assert called(function, 1, DAY) == ([], {"n": 1.0, "when": DAY})


def test_what_is_not_written_in_python_has_arguments_too():
    assert called(math.sqrt, 2.0) == ([2.0], {})
    assert Result.of(math.sqrt).decode(b"1.5") == 1.5


# -- from the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "typed", "value"),
    [
        (int, "7", 7), (float, "7", 7.0), (float, "nan", math.nan), (bool, "yes", True), (bool, "False", False),
        (str, "7", "7"), (str, "", ""), (Path, "a b", Path("a b")), (datetime, "2026-01-31T18:00:00Z", MOMENT),
        (date, "2026-01-31", DAY), (time, "18:00", time(18)), (timedelta, "90s", timedelta(seconds=90)),
        (UUID, str(UUID(int=7)), UUID(int=7)), (Decimal, "1.10", Decimal("1.10")), (bytes, "hé", "hé".encode()),
        (Color, "red", Color.RED), (Color, "RED", Color.RED), (Level, "0", Level.LOW), (Level, "low", Level.LOW),
        (Odd, "pair", Odd.PAIR), (Literal["a", 1, True], "1", 1), (Literal["a", True], "true", True),
        (int | None, "7", 7), (int | None, "null", None), (int | None, "None", None), (str | None, "null", None),
        (str | int, "7", 7), (str | int, "x", "x"), (list[float], "[1, 2.5]", [1.0, 2.5]),
        (list[date] | None, '["2026-01-31"]', [DAY]), (dict[int, str], '{"1": "a"}', {1: "a"}),
        (tuple[int, int], "[1,2]", (1, 2)), (Point, '{"x": 1}', Point(1.0)),
        (Model, '{"theName": "a"}', Model(theName="a")), (Secret[str], "hunter2", Secret("hunter2")),
        (Secret[int], "7", Secret(7)), (pydantic.SecretStr, "x", pydantic.SecretStr("x")), (Any, "7", 7),
        (Any, "[1, null]", [1, None]), (Any, "a b", "a b"), (Any, "nan", "nan"), (Any, "", ""),
        (Any, '{"$": 1}', {"$": 1}), (Any, "true", True), (None, "null", None), (Path | None, "null", None),
        (Path | int, "7", 7), (Any | int, "7", 7), (Secret[str] | None, "null", None), ("Ghost", "7", 7),
    ],
    ids=case_of,
)  # fmt: skip
def test_what_is_typed_is_read_by_annotation(annotation, typed, value):
    takes = arguments(annotation)
    read = takes.from_text({"it": typed})
    assert parts(read["it"]) == parts(value)
    [], got = takes.decode(takes.encode_named(read))
    assert parts(got["it"]) == parts(value)


@pytest.mark.parametrize(
    ("annotation", "typed", "told"),
    [
        (float, "abc", "args.it: 'abc' is not a valid float"), (int, "1.5", "'1.5' is not a valid int"),
        (bool, "2", "'2' is not a valid bool; write true or false"),
        (list[int], "1,2", "'1,2' is not a valid list[int]"),
        (list[int], '[1,"a"]', "args.it[1]: 'a' is not a valid int"), (Color, "x", "choose 'red' or 'blue'"),
        (timedelta, "5", "write '90s', '10m', '1h30m'"), (int | None, "x", "'x' is not a valid int | None"),
        (Literal["a"], "b", "choose 'a'"), (Point, "{}", "a Point is missing x"),
        (Secret[float], "hunter2", "the content of *** is not a valid float"), (None, "x", "'x' is not a valid None"),
    ],
    ids=case_of,
)  # fmt: skip
def test_what_is_typed_wrong_is_refused(annotation, typed, told):
    with pytest.raises(BadArguments) as refused:
        arguments(annotation).from_text({"it": typed})
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_misspelt_name_is_refused_with_what_was_meant():
    with pytest.raises(BadArguments, match="has no parameter 'itt'; did you mean 'it'"):
        arguments(int).from_text({"itt": "1"})


def test_values_in_plain_form_are_accepted_as_an_upgrade_returns_them():
    def task(point: Point, when: date, color: Color, n: int): ...

    takes = Arguments(task, context=False)
    old = decode(takes.encode((Point(1.0), DAY, Color.RED, 7), {}))
    rich = takes.accept({**old, "when": "2026-01-31"})
    assert rich == {"point": Point(1.0), "when": DAY, "color": Color.RED, "n": 7}
    assert takes.accept(rich) == rich
    with pytest.raises(BadArguments, match=r"args\.n: 'a' is not a valid int"):
        takes.accept({"n": "a"})


# -- secrets ---------------------------------------------------------------------------------------------------------


@dataclass
class Locked:
    password: Secret[str]
    next: Locked | None = None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Secret[int], "hunter2"), (Secret[int], Secret("hunter2")), (Secret[str], Secret("hunter2\ud800")),
        (Secret[dict[str, int]], {"hunter2": "x"}), (Secret[Point], Secret(Point("hunter2"))),
        (Box[Secret[int]], Box("hunter2")), (Secret[Counting], Secret(Counting(1))), (Secret[int] | None, "hunter2"),
        (Secret[list[int]], ["hunter2"]), (list[Secret[str]] | None, ["hunter2", 5]),
        (Box[Secret[str]], {"held": "hunter2"}), (dict[str, Secret[str]], ["hunter2"]),
        (tuple[Secret[str], int], ("hunter2",)), (Locked, {"password": "hunter2"}), (pydantic.SecretStr, "hunter2"),
    ],
    ids=case_of,
)  # fmt: skip
def test_no_refusal_shows_a_secret(annotation, value):
    with pytest.raises(BadInput) as refused:
        passed(annotation, value)
    trouble: BaseException | None = refused.value
    while trouble is not None:
        assert "hunter2" not in str(trouble)
        trouble = trouble.__context__


# -- results ---------------------------------------------------------------------------------------------------------


def returned(annotation: Any, value: object) -> Any:
    result = Result(annotation)
    return result.decode(result.encode(value))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (float, math.nan), (Point, Point(1.0)), (dict, {"a": math.inf}), (list[Model], [Model(theName="a")]),
        (None, None), (Any, {1, 2}), (int, "a"), (datetime, "2026-01-31"), (None, 5), (Path, "a"), (list[int], ["a"]),
        (Color, "red"), (dict[int, int], {"1": 1}), (int, True), (Point, {"x": 1.0}), (Secret[int], Secret("a")),
        (set[int], [1]),
    ],
    ids=case_of,
)  # fmt: skip
def test_a_result_comes_back_equal_also_if_its_annotation_was_wrong(annotation, value):
    assert parts(returned(annotation, value)) == parts(value)
    # Whoever does not know the function gets it too, classes as plain data.
    decode(Result(annotation).encode(value))


@pytest.mark.parametrize("value", [object(), Counting(1), np.ma.masked_array([1]), Ring(1.0)])
@pytest.mark.parametrize("annotation", [Any, int, Counting, Circle])
def test_a_result_that_would_not_come_back_equal_is_refused(annotation, value):
    with pytest.raises(NotEncodable, match=r"^result"):
        Result(annotation).encode(value)


def test_a_result_stored_under_another_annotation_is_read_without_it():
    data = Result(Point).encode(Point(1.0))
    assert Result(int).decode(data) == {"x": 1.0, "y": 0.0}


def test_a_result_that_nobody_here_has_written_is_refused():
    for annotation in (int, Any):
        with pytest.raises(BadInput, match="was not written by this version of Daybreak"):
            Result(annotation).decode(b'{"$":["new",1]}')


def test_the_result_of_a_function_is_known_from_its_annotation_also_as_text():
    assert Result.of(core).decode(Result.of(core).encode(DAY)) == DAY
    assert Result.of(core).decode(b'"2026-01-31"') == DAY
    assert Result.of(around(core)).decode(b'"2026-01-31"') == DAY
    assert Result.of(functools.partial(core)).decode(b'"2026-01-31"') == DAY

    def silent(): ...

    def haunted() -> Ghost: ...

    assert Result.of(silent).decode(b'"2026-01-31"') == Result.of(haunted).decode(b'"2026-01-31"') == "2026-01-31"


# -- any annotation, any value ---------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (type(None), st.none()),
    (bool, st.booleans()),
    (int, st.integers()),
    (float, st.floats()),
    (str, texts),
    (bytes, st.binary(max_size=5)),
    (datetime, st.datetimes() | st.datetimes(timezones=st.just(UTC))),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals().filter(lambda it: not it.is_snan())),
    (Path, texts.filter(lambda it: "\0" not in it).map(Path)),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Odd, st.sampled_from(Odd)),
    (Rights, st.sampled_from([Rights.READ, Rights.READ | Rights.WRITE, Rights(0)])),
    (Literal["a", 1, True, "red"], st.sampled_from(["a", 1, True, "red"])),
]
# What is easily taken for one another.
confusable = st.sampled_from(
    [
        0, 1, 2**53 + 1, 0.0, 1.0, 1.5, math.nan, True, None, "1", "a", "red", "PAIR", "2026-01-31", "", Color.RED,
        Level.HIGH, Odd.PAIR, Odd.TEXT, Rights.READ, b"a", DAY, MOMENT, NAIVE, Path("a"), PureWindowsPath("a"),
        UUID(int=1), Decimal(9), Decimal("9.0"), timedelta(1), time(1), (), (1,), frozenset(), Point(1, 2), Pair(1),
        Secret("a"), Secret(1), np.float64(1.5), np.int64(1), np.bool_(1), np.str_("a"),
    ]
)  # fmt: skip
Typed = tuple[Any, "st.SearchStrategy[Any]"]


@st.composite
def typed(draw: st.DrawFn, depth: int = 3, *, hashable: bool = False, confused: bool = False) -> Typed:
    """An annotation, and what values of it look like; `confused`, if only in shape."""
    if depth == 0 or draw(st.booleans()):
        scalar, one = draw(st.sampled_from(scalars))
        return scalar, confusable if confused else one
    shapes = ["row", "many", "union", "frozenset", "secret"]
    shapes += [] if hashable else ["list", "set", "dict", "box", "cell", "point", "order", "pair"]
    shape = draw(st.sampled_from(shapes))
    inner = typed(depth - 1, hashable=hashable or shape in {"set", "frozenset"}, confused=confused)
    of, one = draw(inner)
    match shape:
        case "list":
            return list[of], st.lists(one, max_size=3)
        case "many":
            return tuple[of, ...], st.lists(one, max_size=3).map(tuple)
        case "row":
            other, two = draw(inner)
            return tuple[of, other], st.tuples(one, two)
        case "set":
            return set[of], st.sets(one, max_size=3)
        case "frozenset":
            return frozenset[of], st.frozensets(one, max_size=3)
        case "dict":
            key, keys = draw(typed(1, hashable=True, confused=confused))
            return dict[key, of], st.dictionaries(keys, one, max_size=3)
        case "union":
            other, two = draw(inner)
            return typing.Union[of, other], one | two  # noqa: UP007
        case "secret":
            return Secret[of], one.map(Secret)
        case "box":
            return Box[of], one.map(Box)
        case "cell":
            return Cell[of], st.builds(Cell, one, st.none() | st.dates(), texts | st.just(msgspec.UNSET))
        case "point":
            return Point, st.builds(Point, st.floats(), st.floats())
        case "order":
            return Order, st.fixed_dictionaries({"item": texts}, optional={"due": st.dates()})
    return Pair, st.builds(Pair, st.integers(), st.just(Path("a")))


@given(st.data())
def test_any_value_of_any_annotation_comes_back_equal(data):
    annotation, strategy = data.draw(typed(), label="annotation")
    value = data.draw(strategy, label="value")
    assert parts(passed(annotation, value)) == parts(value)
    assert parts(returned(annotation, value)) == parts(value)


def tolerant(value: object) -> object:
    """As `parts`, but of the plainest type: what an annotation may ask for without changing the value."""
    value = value.item() if isinstance(value, np.generic) else value
    match value:
        case bool() | enum.Flag():
            return parts(value)
        case enum.Enum() if not isinstance(value, str | int):
            return parts(value)
        case int() | float():
            exact = value if isinstance(value, float) else int(value)
            return repr(float(exact)) if abs(exact) < 2**53 or not math.isfinite(exact) else repr(int(exact))
        case str():
            return str(value)
        case Secret():
            return tolerant(value.reveal())
        case list():
            return list, *map(tolerant, value)
        case tuple():
            return tuple, *map(tolerant, value)
        case set() | frozenset():
            return type(value), *sorted(map(tolerant, value), key=repr)
        case dict():
            return dict, *((tolerant(key), tolerant(item)) for key, item in value.items())
        case Box(held=held):
            return Box, tolerant(held)
        case Cell():
            return Cell, tolerant(value.the_value), value.at, value.note
        case Point():
            return Point, tolerant(value.x), tolerant(value.y)
    return parts(value)


@given(st.data())
def test_any_value_that_is_easily_mistaken_is_refused_or_comes_back_equal(data):
    annotation, strategy = data.draw(typed(confused=True), label="annotation")
    value = data.draw(strategy, label="value")
    try:
        back = passed(annotation, value)
    except BadInput:
        return
    assert tolerant(back) == tolerant(value)


jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "x", "held", "item", "the_value", "1", "a"]), inner, max_size=3)
        | st.tuples(st.sampled_from([*values.tagged_json._READERS, "new"]), inner).map(lambda pair: {"$": list(pair)})
    ),
    max_leaves=8,
)


@given(st.data())
def test_any_json_for_any_annotation_is_refused_or_read_as_what_the_annotation_says(data):
    annotation, _ = data.draw(typed(), label="annotation")
    stored = data.draw(jsons, label="stored")
    takes = arguments(annotation)
    try:
        [], got = takes.decode(json.dumps({"it": stored}).encode())
    except BadArguments:
        return
    assert parts(passed(annotation, got["it"])) == parts(got["it"])


# -- what it costs ---------------------------------------------------------------------------------------------------


def test_neither_numpy_nor_pydantic_is_imported_for_it():
    code = (
        "import sys\n"
        "from datetime import date\n"
        "from daybreak.values import Arguments, Result\n"
        "def task(n: int, when: date, rows: list[float], more=None): ...\n"
        "takes = Arguments(task, context=False)\n"
        "takes.decode(takes.encode((1, date(2026, 1, 31), [1.5]), {'more': {2}}))\n"
        "Result(dict).encode({'a': 1})\n"
        "print(sorted({'numpy', 'pydantic', 'pydantic_core'} & sys.modules.keys()))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert told.strip() == "[]"

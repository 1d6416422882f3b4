"""The key of a cached result: equal work has the same key, and each difference is a part with a name."""

from __future__ import annotations

import enum
import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak import Cache, Daybreak, File, Secret
from daybreak.core.errors import BadInput
from daybreak.core.model import Caching
from daybreak.tasks.cache_key import FLIGHT_BYTES, PARTS_LIMIT, CacheKeys, Key, NeedsSeal
from daybreak.tasks.registry import Definition
from daybreak.values.file import collecting

SEAL = b"k" * 32


def simulate(model: str, vin: float, duty: float = 0.5, *extra: int, solver: dict[str, Any] | None = None) -> float:
    return vin * duty


@dataclass
class Setup:
    models: list[File]


def key_of(function: Callable[..., Any], *args: Any, cache: Cache | None = None, **kwargs: Any) -> Key:
    definition = Definition(function)
    keys = CacheKeys(definition, cache or Cache())
    with collecting():
        encoded = definition.arguments.encode(args, kwargs)
    return keys.key(encoded, keys.surroundings(), SEAL)


def changed(before: Key, after: Key) -> set[str]:
    """The names of the parts that differ."""
    assert (before.flight == after.flight) is (before.parts == after.parts)
    return {
        name for name in before.parts.keys() | after.parts.keys() if before.parts.get(name) != after.parts.get(name)
    }


# -- equal work --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("buck", 24.0), {}),
        (("buck", 24), {}),
        (("buck",), {"vin": 24.0}),
        ((), {"vin": 24.0, "model": "buck"}),
        (("buck", 24.0, 0.5), {}),
        (("buck", 24.0), {"duty": 0.5, "solver": None}),
    ],
)
def test_equal_arguments_have_one_key_however_they_are_passed(args, kwargs):
    assert key_of(simulate, *args, **kwargs) == key_of(simulate, "buck", 24.0)


@given(
    st.dictionaries(st.text(max_size=8), st.integers() | st.floats(allow_nan=True) | st.text(max_size=8), max_size=6)
)
def test_the_order_of_a_dict_does_not_count(entries):
    backwards = dict(reversed(entries.items()))
    assert key_of(simulate, "m", 1.0, solver=entries) == key_of(simulate, "m", 1.0, solver=backwards)


def test_dicts_with_other_keys_than_text_have_no_order_either():
    def run(table: dict[int, str]) -> None: ...

    assert key_of(run, {1: "a", 2: "b"}) == key_of(run, {2: "b", 1: "a"})
    assert key_of(run, {1: "a", 2: "b"}) != key_of(run, {1: "b", 2: "a"})


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_floats_are_exact(one, other):
    same = one == other and math.copysign(1, one) == math.copysign(1, other)
    assert (key_of(simulate, "m", one) == key_of(simulate, "m", other)) is same


def test_a_default_that_a_model_does_not_store_counts():
    def settings(rtol: float) -> Any:
        return pydantic.create_model("Settings", model=(str, ...), rtol=(float, rtol))

    def key(rtol: float, annotate: Callable[[Any], Any], place: Callable[[Any], Any]) -> Key:
        def run(setup, **more): ...

        kind = settings(rtol)
        run.__annotations__ = {"setup": annotate(kind), "more": annotate(kind)}
        return key_of(run, place(kind(model="buck")), other=place(kind(model="buck")))

    def same(kind: Any) -> Any:
        return kind

    for annotate, place in ((same, same), (lambda kind: dict[str, list[kind]] | None, lambda value: {"a": [value]})):
        before = key(1e-3, annotate, place)
        assert before == key(1e-3, annotate, place)
        assert changed(before, key(1e-6, annotate, place)) == {"argument setup", "argument other"}


def test_an_enum_counts_by_its_values():
    def key(low: Any, annotate: Callable[[Any], Any]) -> Key:
        def run(gain) -> None: ...

        kind = enum.Enum("Gain", {"LOW": low, "HIGH": 2.0})
        run.__annotations__ = {"gain": annotate(kind)}
        return key_of(run, kind["LOW"])

    for annotate in (lambda kind: kind, lambda kind: Literal[kind.LOW]):
        before = key(0.5, annotate)
        assert before == key(0.5, annotate)
        assert changed(before, key(0.7, annotate)) == {"argument gain"}


def test_a_file_counts_by_its_content(tmp_path):
    def run(model: File) -> None: ...

    one, other = tmp_path / "a.plecs", tmp_path / "folder" / "b.plecs"
    other.parent.mkdir()
    one.write_text("L = 1e-3")
    other.write_text("L = 1e-3")
    assert key_of(run, File(one)) == key_of(run, File(other)) == key_of(run, File(other, on_change="fail"))
    other.write_text("L = 2e-3")
    assert changed(key_of(run, File(one)), key_of(run, File(other))) == {"argument model"}


def test_a_file_inside_other_values_counts_by_its_content(tmp_path):
    def run(setup: Setup) -> None: ...

    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    (tmp_path / "c").write_text("other")
    [one, other, third] = [key_of(run, Setup([File(tmp_path / name)])) for name in ("a", "b", "c")]
    assert one == other != third


def test_a_file_that_may_change_later_has_no_key(tmp_path):
    def run(model: File) -> None: ...

    (tmp_path / "m").write_text("1")
    with pytest.raises(BadInput, match=r"args\.model: File\('m', on_change='newest'\).*cannot be cached"):
        key_of(run, File(tmp_path / "m", on_change="newest"))


def test_the_same_task_in_another_process_has_the_same_key():
    import subprocess

    code = (
        "from tests.unit.test_cache_key import *; print(key_of(simulate, 'm', 1.0, solver={'b': {3, 1, 'x'}}).flight)"
    )
    root = Path(__file__).parents[2]
    flights = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True, env={
                "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}:{root / 'src'}", "PATH": "",
            },
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert flights == {f"{key_of(simulate, 'm', 1.0, solver={'b': {3, 1, 'x'}}).flight}\n"}


# -- what differs ------------------------------------------------------------------------------------------------------


def test_each_difference_has_a_name(monkeypatch):
    before = key_of(simulate, "buck", 24.0)
    assert changed(before, key_of(simulate, "boost", 24.0)) == {"argument model"}
    assert changed(before, key_of(simulate, "buck", 24.000000000000004)) == {"argument vin"}
    assert changed(before, key_of(simulate, "buck", 24.0, 0.5, 7)) == {"argument extra"}

    settings = Cache(environment=("PLECS_VERSION", {"solver": "4.9"}), salt=(describe, "2026"))
    monkeypatch.delenv("PLECS_VERSION", raising=False)
    unset = key_of(simulate, "buck", 24.0, cache=settings)
    monkeypatch.setenv("PLECS_VERSION", "")
    assert changed(unset, key_of(simulate, "buck", 24.0, cache=settings)) == {"environment PLECS_VERSION"}
    monkeypatch.delenv("PLECS_VERSION")
    other = Cache(environment=("PLECS_VERSION", {"solver": "5.0"}), salt=(describe, "2027"))
    assert changed(unset, key_of(simulate, "buck", 24.0, cache=other)) == {"environment solver", "salt text"}


def describe(value: float) -> str:
    return f"{value:.1f} V"


def made(source: str, name: str = "run", **names: Any) -> Any:
    found: dict[str, Any] = {"__name__": "made", **names}
    exec(source, found)  # noqa: S102
    return found[name]


def test_the_code_of_the_task_counts_unless_it_has_a_version():
    one = made("def run(x: float) -> float:\n    return x * 2")
    commented = made("# Doubles.\ndef run(x: float) -> float:\n    # twice\n    return (x\n            * 2)")
    other = made("def run(x: float) -> float:\n    return x * 3")
    assert key_of(one, 1.0) == key_of(commented, 1.0)
    assert changed(key_of(one, 1.0), key_of(other, 1.0)) == {"source"}
    first, second = Cache(version=1), Cache(version="2")
    assert key_of(one, 1.0, cache=first) == key_of(other, 1.0, cache=first)
    assert changed(key_of(one, 1.0, cache=first), key_of(one, 1.0, cache=second)) == {"version"}


def test_the_version_of_the_task_and_its_name_count():
    one, two = (Definition(simulate, version=number) for number in (1, 2))
    other = Definition(simulate, name="simulate_again")
    keys = [CacheKeys(each, Cache()) for each in (one, two, other)]
    [first, second, third] = [each.key(b'{"model":"m","vin":1.0}', each.surroundings(), None) for each in keys]
    assert changed(first, second) == {"version"}
    assert first.flight != third.flight


def test_a_helper_named_in_the_salt_counts_by_its_code():
    task = made("def run(x: float) -> float:\n    return helper(x)")
    sources = ("def helper(x):\n    return x + 1", "def helper(x):\n    return x + 2")
    [one, other] = [key_of(task, 1.0, cache=Cache(salt=made(source, "helper"))) for source in sources]
    assert changed(one, other) == {"salt helper"}


def test_a_class_and_a_module_count_by_their_code(tmp_path, monkeypatch):
    task = made("def run(x: float) -> float:\n    return x")
    sources = (
        "class Plant:\n    def gain(self):\n        return 1",
        "class Plant:\n    def gain(self):\n        return 2",
    )
    [one, other] = [key_of(task, 1.0, cache=Cache(salt=made(source, "Plant"))) for source in sources]
    assert changed(one, other) == {"salt Plant"}

    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for name, table in (("plant_one", "{'a': 1}"), ("plant_two", "{'a': 2}"), ("plant_three", "{'a': 1}  # comment")):
        (tmp_path / f"{name}.py").write_text(f"TABLE = {table}\n")
        found.append(CacheKeys(Definition(task), Cache(salt=__import__(name)))._fixed[f"salt {name}"])
    # The module's own name counts too, so these compare only what follows from the content.
    assert len(set(found)) == 3


def test_a_changed_module_of_a_package_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for gain in ("1.0", "2.0"):
        package = tmp_path / "plantpack"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text("")
        (package / "parts.py").write_text(f"GAIN = {gain}\n")
        for name in ("plantpack", "plantpack.parts"):
            sys.modules.pop(name, None)
        import importlib

        importlib.invalidate_caches()
        module = importlib.import_module("plantpack")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        digests.append(CacheKeys(Definition(simulate), Cache(salt=module))._fixed["salt plantpack"])
    assert digests[0] != digests[1]


def test_ignored_arguments_do_not_count():
    cache = Cache(ignore="model")
    assert key_of(simulate, "a", 1.0, cache=cache) == key_of(simulate, "b", 1.0, cache=cache)
    with pytest.raises(BadInput, match=r"Cache\(ignore='modell'\) is none of its parameters, which are model, vin"):
        key_of(simulate, "a", 1.0, cache=Cache(ignore=("modell",)))


def test_an_environment_from_a_function_is_read_at_each_submit():
    versions = iter(["4.9", "5.0"])
    definition = Definition(simulate)
    keys = CacheKeys(definition, Cache(environment=lambda: {"engine": next(versions)}))
    [one, other] = [keys.key(b'{"model":"m","vin":1.0}', keys.surroundings(), None) for _ in range(2)]
    assert changed(one, other) == {"environment engine"}


def test_parts_of_the_environment_with_one_name_count_all(monkeypatch):
    monkeypatch.setenv("version", "1")
    before = key_of(simulate, "m", 1.0, cache=Cache(environment=[{"version": 1}, lambda: {"version": 1}, "version"]))
    for number, other in enumerate([[{"version": 2}, {"version": 1}], [{"version": 1}, {"version": 2}]]):
        after = key_of(simulate, "m", 1.0, cache=Cache(environment=[*other, "version"]))
        assert len(changed(before, after)) == 1, number
    monkeypatch.setenv("version", "2")
    after = key_of(simulate, "m", 1.0, cache=Cache(environment=[{"version": 1}, {"version": 1}, "version"]))
    assert changed(before, after) == {"environment version"}


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_secrets_count_and_cannot_be_guessed_from_a_digest():
    def run(pin: Secret[str], vin: float) -> None: ...

    definition = Definition(run)
    keys = CacheKeys(definition, Cache())
    encoded = definition.arguments.encode((Secret("1234"), 1.0), {})
    around = keys.surroundings()
    assert keys.needs_seal(encoded, around)
    with pytest.raises(NeedsSeal):
        keys.key(encoded, around, None)
    one = keys.key(encoded, around, SEAL)
    assert one == keys.key(encoded, around, SEAL)
    other = definition.arguments.encode((Secret("1235"), 1.0), {})
    assert changed(one, keys.key(other, around, SEAL)) == {"argument pin"}
    # With another seal, the same secret has another digest: without the seal, no guess can be checked.
    assert changed(one, keys.key(encoded, around, b"x" * 32)) == {"argument pin"}


def test_a_secret_default_is_sealed_like_a_secret_that_is_passed():
    def run(vin: float, pin: Secret[str] = Secret("1234")) -> None: ...  # noqa: B008

    assert key_of(run, 1.0) == key_of(run, 1.0, Secret("1234")) != key_of(run, 1.0, Secret("1235"))
    definition = Definition(run)
    keys = CacheKeys(definition, Cache())
    assert keys.needs_seal(definition.arguments.encode((1.0,), {}), keys.surroundings())


def test_environment_variables_are_sealed_and_values_in_a_dict_only_if_secret(monkeypatch):
    monkeypatch.setenv("TOKEN", "1234")
    for environment, is_sealed in (("TOKEN", True), ({"v": "4.9"}, False), ({"v": Secret("4.9")}, True)):
        definition = Definition(simulate)
        keys = CacheKeys(definition, Cache(environment=environment))
        around = keys.surroundings()
        assert keys.needs_seal(b"{}", around) is is_sealed


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_what_a_job_keeps_of_its_key_is_bounded():
    def run(**values: str) -> None: ...

    many = {f"value_{n}_{'x' * 100}": str(n) for n in range(2000)}
    one = key_of(run, **many)
    assert len(one.flight) == 2 * FLIGHT_BYTES
    assert len(one.parts) <= PARTS_LIMIT + 1
    assert sum(len(name) + len(digest) for name, digest in one.parts.items()) < 5000
    assert changed(one, key_of(run, **{**many, f"value_7_{'x' * 100}": "other"})) == {"others"}


# -- bad input ---------------------------------------------------------------------------------------------------------


def add() -> None: ...


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ttl": 7}, "Cache: ttl: a bare number has no unit; write '7s'"),
        ({"ttl": "0s"}, "ttl must be longer than 0"),
        ({"ttl": "soon"}, "is not a duration"),
        ({"size": "much"}, "Cache: size = 'much'"),
        ({"size": 0}, "at least 1 byte"),
        ({"version": ""}, "Cache: version=''"),
        ({"version": 1.5}, "Cache: version=1.5"),
        ({"version": True}, "Cache: version=True"),
        ({"salt": len}, "the salt 'len' is not Python code"),
        ({"salt": math}, "the salt 'math' is not Python code"),
        ({"salt": timedelta}, "the salt 'timedelta' is not Python code"),
        ({"salt": 7}, "Cache: salt=7: write a function, a class, a module or a text"),
        ({"environment": 7}, "Cache: environment=7: write the names of environment variables"),
        ({"environment": "A=1"}, "write the name of an environment variable"),
        ({"environment": {1: "a"}}, "1 is not a name"),
        ({"ignore": 7}, "Cache: ignore=7"),
        ({"environment": [f"V{n}" for n in range(51)]}, "51 entries; the limit is 50"),
    ],
)
def test_bad_settings_are_refused_where_they_are_written(settings, text):
    with pytest.raises(BadInput) as raised:
        Cache(**settings)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("environment", "error", "text"),
    [
        ({"x": object()}, BadInput, "environment 'x' of its cache: a builtins.object would not be decoded equal"),
        (lambda: 7, BadInput, "<lambda>(), which tells its environment for the cache, returned 7: return a dict"),
        (lambda: 1 / 0, BadInput, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_bad_environment_is_refused_at_submit(environment, error, text):
    keys = CacheKeys(Definition(simulate), Cache(environment=environment))
    with pytest.raises(error) as raised:
        keys.surroundings()
    assert text in str(raised.value)
    assert "task 'simulate'" in str(raised.value)


@pytest.mark.parametrize("value", ["yes", 1, "refresh", {"ttl": "7d"}])
def test_a_task_takes_true_or_a_cache(value):
    app = Daybreak("memory://")
    with pytest.raises(BadInput, match="write cache=True, or cache=Cache"):
        app.task(cache=value)(add)


@pytest.mark.parametrize("value", ["yes", 1, {"ttl": "7d"}])
def test_using_takes_a_flag_refresh_or_a_cache(value):
    app = Daybreak("memory://")
    with pytest.raises(BadInput, match="write True, False, 'refresh'"):
        app.task(add).using(cache=value)


def test_a_function_without_python_code_needs_a_version():
    app = Daybreak("memory://")
    function = types.FunctionType(add.__code__, {}, "native")
    wrapped = _Native(function)
    with pytest.raises(BadInput, match=r"no Python code.*Cache\(version='1'\)"):
        app.task(name="native", cache=True)(wrapped)  # type: ignore[type-var]
    app.task(name="native", cache=Cache(version="1"))(wrapped)  # type: ignore[type-var]


class _Native:
    """A callable without a code object, as an extension module has them."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.__name__ = self.__qualname__ = "native"
        self.__module__ = __name__

    def __call__(self) -> None:
        self._function()


def test_other_libraries_names_of_the_options_are_answered():
    app = Daybreak("memory://")
    with pytest.raises(BadInput, match="did you mean cache=True"):
        app.task(memoize=True)(add)  # type: ignore[call-overload]


def test_the_store_is_told_how_long_and_how_much():
    assert Cache(ttl="7d", size="2GB").caching == Caching(ttl=timedelta(days=7), size=2_000_000_000)
    assert Cache().caching == Caching()

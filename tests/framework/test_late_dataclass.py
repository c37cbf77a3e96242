"""Dataclasses whose methods come with the first instance: they are what the standard library's are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
import weakref
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from aexec.framework.late_dataclass import dataclass
from tests.test_package import run_python


def point(decorate: Callable[[type], type]) -> Any:
    """One class with everything that a field may say; `decorate` makes a dataclass of it."""

    class Point:
        """A point."""

        x: int
        y: float = 2.0
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)
        length: float = field(init=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", abs(self.x) + self.y)

        def moved(self, by: int) -> Any:
            return dataclasses.replace(self, x=self.x + by)  # type: ignore[type-var]  # one that is decorated

    return decorate(Point)


OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True, "weakref_slot": True},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_late_dataclass_is_like_the_standard_librarys(options: dict[str, bool]) -> None:
    ours = point(dataclass(slots=True, **options))
    theirs = point(dataclasses.dataclass(slots=True, **options))
    seen = [_seen(cls) for cls in (ours, theirs)]
    assert seen[0] == seen[1]


def _seen(cls: Any) -> dict[str, Any]:
    """All that can be seen of a class and its instances."""
    a, b, other = cls(1), cls(1, note="b"), cls(1, 3.0, ["t"])
    return {
        "slots": cls.__slots__,
        "names": (cls.__name__, cls.__qualname__, cls.__module__, cls.__doc__),
        "signature": str(inspect.signature(cls)),
        "fields": [(f.name, f.type, f.init, f.compare) for f in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "repr": repr(other),
        "equal": (a == b, a == other, a == (1, 2.0)),
        "hash": cls.__hash__ is None or cls.__hash__ is object.__hash__,
        "own list": a.tags is not b.tags,
        "replaced": repr(other.moved(1)),
        "as dict": dataclasses.asdict(other),
        "copied": (repr(copy.copy(other)), repr(copy.deepcopy(other))),
        "length": other.length,
        "set": _refusal(lambda: setattr(a, "x", 5)),
        "deleted": _refusal(lambda: delattr(a, "x")),
        "set what is no field": _refusal(lambda: setattr(a, "z", 5)),
        "missing": _refusal(cls),
        "unknown": _refusal(lambda: cls(1, z=1)),
        "weak": _refusal(lambda: weakref.ref(a)),
    }


def _refusal(call: Callable[[], object]) -> tuple[type, str] | None:
    try:
        call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)
    return None


@dataclass(frozen=True, slots=True)
class Pair:
    """For pickling: a class that has a name."""

    a: int
    b: int = 0


def test_object_unpickled_first_has_its_methods() -> None:
    text = pickle.dumps(Pair(1, 2))
    assert pickle.loads(text) == Pair(1, 2)
    code = f"import pickle; print(pickle.loads({text!r}))"
    assert run_python(code).strip() == "Pair(a=1, b=2)"


def test_late_base() -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: int = 2

    assert repr(Derived(1)).endswith("Derived(a=1, b=2)")
    assert dataclasses.replace(Derived(1), a=5) == Derived(5)
    assert copy.copy(Derived(1)) == Derived(1)


def test_fields_are_there_before_an_instance() -> None:
    cls = point(dataclass(slots=True, frozen=True))
    assert dataclasses.is_dataclass(cls)
    assert [f.name for f in dataclasses.fields(cls)] == ["x", "y", "tags", "note", "length"]


def test_methods_are_written_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[type] = []
    write = dataclasses.dataclass
    monkeypatch.setattr(
        dataclasses, "dataclass", lambda **options: lambda cls: (written.append(cls), write(**options)(cls))[1]
    )
    cls = point(dataclass(slots=True, frozen=True))
    assert written == []
    assert cls(1) == cls(1)
    assert len(written) == 1


def test_first_instances_of_several_threads() -> None:
    for _ in range(20):
        cls = point(dataclass(slots=True, frozen=True))
        together = threading.Barrier(4)
        made: list[Any] = []

        def make(cls: Any = cls, together: Any = together, made: list[Any] = made) -> None:
            together.wait()
            made.append(cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [cls(1)] * 4


def test_first_instance_may_be_of_a_subclass() -> None:
    @dataclass(slots=True, frozen=True)
    class Base:
        x: int = 0

        def __post_init__(self) -> None:
            raise AssertionError("the subclass has its own")

    class Sub(Base):
        def __post_init__(self) -> None:
            object.__setattr__(self, "x", self.x + 1)

    class Other(Base):
        def __init__(self) -> None:
            self.__dict__["told"] = True

    assert [field.name for field in dataclasses.fields(Other)] == ["x"]
    assert [Sub(1).x, Sub(2).x] == [2, 3]
    assert Other().told
    assert "__init__" not in vars(Sub)

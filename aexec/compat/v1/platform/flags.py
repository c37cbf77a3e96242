"""`tf.flags`: settings that a program defines by name and reads from its command line, over `argparse`.

TensorFlow's are absl's flags, which would be one more package for a program that has a few settings; a program that
imports `absl.flags` has flags of its own there.
Next to read: `app.py`, which parses them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

__all__ = [
    "FLAGS",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_enum",
    "DEFINE_enum_class",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_list",
    "DEFINE_multi_enum",
    "DEFINE_multi_float",
    "DEFINE_multi_integer",
    "DEFINE_multi_string",
    "DEFINE_spaceseplist",
    "DEFINE_string",
    "Flag",
    "FlagHolder",
    "FlagValues",
    "adopt_module_key_flags",
    "declare_key_flag",
    "mark_flag_as_required",
    "mark_flags_as_mutual_exclusive",
    "mark_flags_as_required",
    "register_validator",
    "set_default",
    "validator",
]


def _parsed(default: Any, settings: Mapping[str, Any]) -> Any:
    """A default that is text is read as if it stood on the command line; one that is a whole number may be a float."""
    kind = settings.get("type")
    as_float = kind is float and isinstance(default, int)
    return kind(default) if kind is not None and (isinstance(default, str) or as_float) else default


def _as_list(default: Any, settings: Mapping[str, Any]) -> Any:
    """The default of a flag that may be given several times: a list, also where one value is given."""
    if default is None:
        return None
    several = [default] if isinstance(default, str) or not isinstance(default, Iterable) else default
    return [_parsed(value, settings) for value in several]


class Flag:
    """A flag, as `FLAGS[name]` returns it.

    Attributes:
        name, short_name, help: as it was defined; no short name is None.
        default: its value where it is not given.
        value: its value now.
        present: how often the command line has it.
        boolean: True if it takes no word: `--name`, `--noname`.
        using_default_value: False once it was given, or assigned.
    """

    def __init__(self, name: str, default: Any, help: str | None, short_name: str | None, *, boolean: bool) -> None:
        self.name, self.help, self.short_name, self.boolean = name, help, short_name, boolean
        self.default = default
        self.unparse()

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value, self.using_default_value = value, False

    def unparse(self) -> None:
        """Forget what the command line has."""
        self._value, self.present, self.using_default_value = self.default, 0, True

    def set_default(self, value: Any) -> None:
        """Give it another default, which is also its value unless one was given."""
        self.default = value
        if self.using_default_value:
            self._value = value


class FlagHolder:
    """What a function that defines a flag returns.

    Attributes:
        name, default, value, present: of the flag; reading `value` parses the command line, if that was not done.
    """

    def __init__(self, flag_values: FlagValues, name: str) -> None:
        self._flag_values, self.name = flag_values, name

    @property
    def value(self) -> Any:
        return getattr(self._flag_values, self.name)

    @property
    def default(self) -> Any:
        return self._flag_values._flags[self.name].default

    @property
    def present(self) -> int:
        return int(self._flag_values[self.name].present)


class FlagValues:
    """Flags by name: their values as attributes, the flags themselves as items.

    The command line is parsed when the first one is read, or by a call.  Raises AttributeError, for an item KeyError,
    for a flag that is not defined, SystemExit for an invalid command line.
    """

    def __init__(self) -> None:
        self.__dict__["_parser"] = argparse.ArgumentParser(allow_abbrev=False)
        self.__dict__["_flags"] = {}
        self.__dict__["_shorts"] = {}
        self.__dict__["_required"] = set()
        self.__dict__["_validators"] = []
        self.__dict__["_parsed"] = False

    def define(
        self,
        name: str,
        default: Any,
        help: str | None,
        short_name: str | None = None,
        *,
        required: bool = False,
        boolean: bool = False,
        **settings: Any,
    ) -> FlagHolder:
        """Define a flag, with settings for `argparse`; one that is `required` must be given if it has no default."""
        names = [f"--{name}", *([f"-{short_name}"] if short_name else [])]
        if name in self._flags:
            raise ValueError(f"The flag '{name}' is defined twice.")
        text = help and help.replace("%", "%%")
        self._parser.add_argument(*names, dest=name, default=argparse.SUPPRESS, help=text, **settings)
        default = _as_list(default, settings) if "action" in settings else _parsed(default, settings)
        self._flags[name] = Flag(name, default, help, short_name, boolean=boolean)
        if short_name:
            self._shorts[short_name] = name
        if required:
            self.require(name)
        return FlagHolder(self, name)

    def require(self, name: str) -> None:
        """Make a flag required on the command line, if it has no default."""
        self._required.add(name)

    def validate(self, name: str, check: Callable[[Any], bool], message: str) -> None:
        """Check a flag's value when the command line is parsed."""
        self._validators.append((name, check, message))

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
        """Parse a command line, whose first word is the program; return that and the words that are not flags."""
        found, rest = self._parser.parse_known_args(self._in_one_form(list(argv[1:])))
        unknown = [word for word in rest[: rest.index("--") if "--" in rest else None] if word.startswith("-")]
        if unknown and not known_only:
            self._parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        for name, value in vars(found).items():
            self._flags[name].value = value
            self._flags[name].present += 1
        self.__dict__["_parsed"] = True
        for name in self._required:
            if self._flags[name].value is None:
                self._parser.error(f"Flag --{name} must have a value other than None.")
        for name, check, message in self._validators:
            if not check(self._flags[name].value):
                self._parser.error(f"flag --{name}={self._flags[name].value}: {message}")
        if "--" in rest:
            rest.remove("--")
        return [argv[0], *rest]

    def _in_one_form(self, words: list[str]) -> list[str]:
        """The words with each flag as `--name=value`, which may be given as `-name value` or by its short name."""
        found: list[str] = []
        waiting = iter(words)
        for word in waiting:
            if word == "--":
                return [*found, word, *waiting]
            given, equals, value = word.partition("=")
            bare = given[2:] if given.startswith("--") else given[1:] if given.startswith("-") else ""
            flag = self._flags.get(self._shorts.get(bare, bare))
            if flag is not None:
                if not equals:
                    value = "true" if flag.boolean else next(waiting, "")
                word = f"--{flag.name}={value}"
            elif bare.startswith("no") and bare[2:] in self._flags and self._flags[bare[2:]].boolean and not equals:
                word = f"--{bare}"
            found.append(word)
        return found

    def is_parsed(self) -> bool:
        """True if a command line was parsed."""
        return bool(self._parsed)

    def mark_as_parsed(self) -> None:
        """Use the defaults as if a command line had been parsed."""
        self.__dict__["_parsed"] = True

    def unparse_flags(self) -> None:
        """Forget the command line: all flags have their defaults."""
        for flag in self._flags.values():
            flag.unparse()
        self.__dict__["_parsed"] = False

    def flag_values_dict(self) -> dict[str, Any]:
        """Values by name."""
        return {name: flag.value for name, flag in self._flags.items()}

    def get_flag_value(self, name: str, default: Any) -> Any:
        """A flag's value, or a default if that is None."""
        value = getattr(self, name)
        return default if value is None else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._flags:
            raise AttributeError(f"no flag {name!r} is defined", name=name)
        return self[name].value

    def __getitem__(self, name: str) -> Flag:
        flag: Flag = self._flags[name]
        if not self._parsed:
            self(sys.argv, known_only=True)
        return flag

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._flags:
            raise AttributeError(f"no flag {name!r} is defined", name=name)
        self._flags[name].value = value

    def __contains__(self, name: str) -> bool:
        return name in self._flags

    def __iter__(self) -> Any:
        return iter(self._flags)

    def __dir__(self) -> Iterable[str]:
        return sorted(self._flags)


FLAGS = FlagValues()


def _truth(text: str) -> bool:
    if text.lower() in ("true", "t", "1", "yes", "y"):
        return True
    if text.lower() in ("false", "f", "0", "no", "n"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is no boolean")


def _definer(kind: Callable[[str], Any], name: str, **settings: Any) -> Callable[..., FlagHolder]:
    def define(
        name: str,
        default: Any,
        help: str | None = None,
        flag_values: FlagValues = FLAGS,
        required: bool = False,
        short_name: str | None = None,
        **ignored: Any,
    ) -> FlagHolder:
        return flag_values.define(name, default, help, short_name, type=kind, **settings, required=required)

    define.__name__ = define.__qualname__ = name
    define.__doc__ = f"`tf.flags.{name}`."
    return define


def _number_definer(kind: Callable[[str], Any], name: str, **settings: Any) -> Callable[..., FlagHolder]:
    plain = _definer(kind, name, **settings)

    def define(
        name: str,
        default: Any,
        help: str | None = None,
        lower_bound: Any = None,
        upper_bound: Any = None,
        flag_values: FlagValues = FLAGS,
        required: bool = False,
        **ignored: Any,
    ) -> FlagHolder:
        def is_inside(value: Any) -> bool:
            numbers = value if isinstance(value, list) else [] if value is None else [value]
            low = lower_bound is None or all(number >= lower_bound for number in numbers)
            return low and (upper_bound is None or all(number <= upper_bound for number in numbers))

        defined = plain(name, default, help, flag_values, required, **ignored)
        if lower_bound is not None or upper_bound is not None:
            flag_values.validate(name, is_inside, f"must be in [{lower_bound}, {upper_bound}]")
        return defined

    define.__name__ = define.__qualname__ = name
    define.__doc__ = f"`tf.flags.{name}`."
    return define


DEFINE_string = _definer(str, "DEFINE_string")
DEFINE_integer = _number_definer(lambda text: int(text, 0), "DEFINE_integer")
DEFINE_float = _number_definer(float, "DEFINE_float")
DEFINE_list = _definer(lambda text: [part.strip() for part in text.split(",")] if text else [], "DEFINE_list")
DEFINE_multi_string = _definer(str, "DEFINE_multi_string", action="append")
DEFINE_multi_integer = _number_definer(lambda text: int(text, 0), "DEFINE_multi_integer", action="append")
DEFINE_multi_float = _number_definer(float, "DEFINE_multi_float", action="append")


def DEFINE_boolean(  # noqa: N802
    name: str,
    default: Any,
    help: str | None = None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    required: bool = False,
    **ignored: Any,
) -> FlagHolder:
    """`tf.flags.DEFINE_boolean`: `--name`, `--noname`, `--name=false`."""
    defined = flag_values.define(
        name, default, help, ignored.get("short_name"), type=_truth, boolean=True, required=required
    )
    flag_values._parser.add_argument(
        f"--no{name}", dest=name, action="store_false", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    return defined


DEFINE_bool = DEFINE_boolean


def DEFINE_spaceseplist(  # noqa: N802
    name: str,
    default: Any,
    help: str | None = None,
    comma_compat: bool = False,
    flag_values: FlagValues = FLAGS,
    required: bool = False,
    **ignored: Any,
) -> FlagHolder:
    """`tf.flags.DEFINE_spaceseplist`: words between spaces, or between commas, too, with `comma_compat`."""

    def words(text: str) -> list[str]:
        return text.replace(",", " ").split() if comma_compat else text.split()

    return flag_values.define(name, default, help, ignored.get("short_name"), type=words, required=required)


def DEFINE_multi_enum(  # noqa: N802
    name: str,
    default: Any,
    enum_values: Sequence[str],
    help: str | None = None,
    flag_values: FlagValues = FLAGS,
    case_sensitive: bool = True,
    required: bool = False,
    **ignored: Any,
) -> FlagHolder:
    """`tf.flags.DEFINE_multi_enum`: some of several words, each by a flag of its own."""
    given = [default] if isinstance(default, str) else default
    words = {word if case_sensitive else word.lower(): word for word in enum_values}
    settings: dict[str, Any] = {
        "type": lambda text: words.get(text if case_sensitive else text.lower(), text),
        "choices": list(enum_values),
        "action": "append",
    }
    return flag_values.define(name, given, help, ignored.get("short_name"), **settings, required=required)


def DEFINE_enum_class(  # noqa: N802
    name: str,
    default: Any,
    enum_class: type[Enum],
    help: str | None = None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    case_sensitive: bool = False,
    required: bool = False,
    **ignored: Any,
) -> FlagHolder:
    """`tf.flags.DEFINE_enum_class`: a member of an enum, by its name."""
    members = {member if case_sensitive else member.lower(): value for member, value in enum_class.__members__.items()}

    def member(text: str) -> Enum:
        found = members.get(text if case_sensitive else text.lower())
        if found is None:
            raise argparse.ArgumentTypeError(f"value should be one of <{'|'.join(members)}>")
        return found

    given = member(default) if isinstance(default, str) else default
    return flag_values.define(name, given, help, ignored.get("short_name"), type=member, required=required)


def set_default(flag_holder: FlagHolder | str, value: Any, flag_values: FlagValues = FLAGS) -> None:
    """`tf.flags.set_default`, of a flag's holder or name."""
    if isinstance(flag_holder, FlagHolder):
        flag_values, flag_holder = flag_holder._flag_values, flag_holder.name
    flag_values._flags[flag_holder].set_default(value)


def declare_key_flag(flag_name: str, flag_values: FlagValues = FLAGS) -> None:
    """`tf.flags.declare_key_flag`: says that a flag of another module matters here; help lists all flags anyway.

    Raises AttributeError if it is not defined.
    """
    if flag_name not in flag_values:
        raise AttributeError(f"no flag {flag_name!r} is defined", name=flag_name)


def adopt_module_key_flags(module: Any, flag_values: FlagValues = FLAGS) -> None:
    """`tf.flags.adopt_module_key_flags`: the flags of another module matter here; help lists all flags anyway."""


def mark_flags_as_mutual_exclusive(
    flag_names: Iterable[str], required: bool = False, flag_values: FlagValues = FLAGS
) -> None:
    """`tf.flags.mark_flags_as_mutual_exclusive`: at most one of them is given; exactly one if that is `required`."""
    names = list(flag_names)

    def alone(_: Any) -> bool:
        count = sum(flag_values[name].value is not None for name in names)
        return count == 1 or (count == 0 and not required)

    flag_values.validate(names[0], alone, f"{'Exactly' if required else 'At most'} one of {names} must be specified.")


def DEFINE_enum(  # noqa: N802
    name: str,
    default: Any,
    enum_values: Sequence[str],
    help: str | None = None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    required: bool = False,
    **ignored: Any,
) -> FlagHolder:
    """`tf.flags.DEFINE_enum`: one of some words."""
    return flag_values.define(
        name, default, help, ignored.get("short_name"), type=str, choices=list(enum_values), required=required
    )


def mark_flag_as_required(flag_name: str, flag_values: FlagValues = FLAGS) -> None:
    """`tf.flags.mark_flag_as_required`."""
    flag_values.require(flag_name)


def mark_flags_as_required(flag_names: Iterable[str], flag_values: FlagValues = FLAGS) -> None:
    """`tf.flags.mark_flags_as_required`."""
    for name in flag_names:
        flag_values.require(name)


def register_validator(
    flag_name: str, checker: Callable[[Any], bool], message: str = "Flag validation failed", flag_values: Any = FLAGS
) -> None:
    """`tf.flags.register_validator`."""
    flag_values.validate(flag_name, checker, message)


def validator(flag_name: str, message: str = "Flag validation failed", flag_values: Any = FLAGS) -> Any:
    """`tf.flags.validator`: decorates a function that checks a flag."""

    def register(checker: Callable[[Any], bool]) -> Callable[[Any], bool]:
        flag_values.validate(flag_name, checker, message)
        return checker

    return register

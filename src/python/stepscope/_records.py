"""Objects of JSON, with attributes."""

from typing import Any, Dict, Iterator, List, Mapping, Tuple, Type, TypeVar, Union, get_type_hints

_R = TypeVar("_R", bound="Record")


class Record:
    """An object of the JSON that the command writes. Its keys are attributes.

    Subclasses declare the keys that are known, for whoever reads and for type checkers. A key that only a newer command
    writes is an attribute, too. One that an older command does not write is None, as is what is not known.

    >>> record = Record({"rank": 0, "at_peak": {"parameters": 7}})
    >>> record.rank, record.at_peak.parameters
    (0, 7)
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        known = _hints(type(self))
        self._values = dict(values)
        for key in {**known, **self._values}:
            if not key.startswith("_"):
                self.__dict__[key] = _read(known.get(key, Any), self._values.get(key))

    def __getattr__(self, name: str) -> Any:
        # Only what is not there comes by here; its type is for checkers.
        raise AttributeError("%s says nothing of %r" % (type(self).__name__, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> Any:
        return self.__dict__[key] if key in self._values else self._values[key]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join("%s=%r" % (key, value) for key, value in self._values.items())
        return "%s(%s)" % (type(self).__name__, shown)

    def to_dict(self) -> Dict[str, Any]:
        """The object as it was read."""
        return self._values


_cached: Dict[type, Dict[str, Any]] = {}


def _hints(of: Type[Record]) -> Dict[str, Any]:
    if of not in _cached:
        _cached[of] = {key: hint for key, hint in get_type_hints(of).items() if not key.startswith("_")}
    return _cached[of]


def _read(hint: Any, value: Any) -> Any:
    """A value as its type says; as plain objects where that says nothing."""
    if value is None:
        return None
    arguments: Tuple[Any, ...] = getattr(hint, "__args__", ())
    origin = getattr(hint, "__origin__", None)
    if origin is Union:
        return _read(next(argument for argument in arguments if argument is not type(None)), value)
    if isinstance(value, list):
        inner = arguments[0] if origin is list else Any
        return [_read(inner, item) for item in value]
    if isinstance(value, dict):
        if origin is dict:
            return {key: _read(arguments[1], item) for key, item in value.items()}
        of = hint if isinstance(hint, type) and issubclass(hint, Record) else Record
        return of(value)
    return value


def records(of: Type[_R], values: Any) -> List[_R]:
    """A list of objects; what is none of these is left out."""
    return [of(value) for value in values or [] if isinstance(value, dict)]

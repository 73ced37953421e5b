"""Record: a class whose attributes are fields, and whose instances are the values of messages.

>>> from pulsar_spark.schema import Array, Integer, Record, String
>>> class Leg(Record):
...     origin = String(required=True)
...     gates = Array(Integer())
>>> Leg(origin="JFK", gates=[4])
Leg(origin='JFK', gates=[4])
>>> Leg.schema()["fields"][0]
{'name': 'origin', 'type': 'string'}

A record is also a field of another: its class, or an instance with options. Fields check assigned values; other names
cannot be set. As in ``pulsar.schema``, the constructor ignores unknown names, because a writer may be newer, and
definitions lack inherited fields.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar

from pulsar_spark.schema.fields import Array, Class, CustomEnum, Field, Map


class RecordMeta(type):
    """Collects the fields of a class, in order."""

    _fields: dict[str, Any]

    def __new__(metacls, name: str, parents: tuple[type, ...], members: dict[str, Any]):
        if parents:
            members["_fields"] = dict(_fields_among(members))
        return super().__new__(metacls, name, parents, members)


def _fields_among(members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        if isinstance(value, type) and issubclass(value, Enum):
            value = CustomEnum(value)
        elif isinstance(value, RecordMeta):
            value = value()
        if isinstance(value, Field | Record):
            yield name, value


class Record(metaclass=RecordMeta):
    """A record: a class whose attributes are fields.

    ``_avro_namespace`` is the namespace of its definition. With ``_sorted_fields`` the definition lists fields by name.
    As a field of another record it has a ``default``, may be ``required``, and with ``required_default`` its definition
    contains the default.
    """

    __slots__ = ("_default", "_required_default", "_required", "__dict__")
    _default: Any
    _required_default: bool
    _required: bool

    _avro_namespace: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    _fields: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, default: Any = None, required_default: bool = False, required: bool = False, *args: Any, **kwargs: Any
    ):
        if type(self) is Record and kwargs:
            raise AttributeError(f"Record has no fields: make a class of it that has {', '.join(kwargs)}")
        for name, value in (("_default", default), ("_required_default", required_default), ("_required", required)):
            setattr(self, name, value)
        for name, field in self._fields.items():
            if name in kwargs:
                setattr(self, name, _made(field, kwargs[name]))
            elif isinstance(field, Record):
                setattr(self, name, type(field)())
            else:
                self.__dict__[name] = field.default()

    @classmethod
    def schema(cls) -> Any:
        """The Avro definition."""
        return cls.schema_info(set())

    @classmethod
    def schema_info(cls, defined_names: set[str]) -> Any:
        """The definition; only its name if it is among *defined_names*."""
        name = cls.__name__ if cls._avro_namespace is None else f"{cls._avro_namespace}.{cls.__name__}"
        if name in defined_names:
            return name
        defined_names.add(name)
        fields = sorted(cls._fields) if cls._sorted_fields else cls._fields
        return {
            "type": "record",
            "name": cls.__name__,
            **({} if cls._avro_namespace is None else {"namespace": cls._avro_namespace}),
            "fields": [_definition(each, cls._fields[each], defined_names) for each in fields],
        }

    def __setattr__(self, key: str, value: Any) -> None:
        if key in Record.__slots__:  # set when copying
            object.__setattr__(self, key, value)
            return
        if key not in self._fields:
            raise AttributeError(f"Cannot set undeclared field {key} on record {type(self).__name__}")
        self.__dict__[key] = self._fields[key].validate_type(key, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self.__dict__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def type(self) -> str:
        """The name of the record, as for a field's type."""
        return type(self).__name__

    def python_type(self) -> Class:
        """The Python class of the values, as for a field."""
        return type(self)

    def validate_type(self, name: str, val: Any) -> Any:
        """Return *val* if it is a record of this class; otherwise TypeError with the *name*."""
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, type(self)):
            raise TypeError(
                f"Invalid type '{type(val)}' for sub-record field '{name}'. Expected: {type(self).__name__}"
            )
        return val

    def default(self) -> Any:
        """The value of a missing record."""
        return self._default

    def required_default(self) -> bool:
        """Whether the definition names the default."""
        return self._required_default


def _definition(name: str, field: Any, defined_names: set[str]) -> dict[str, Any]:
    kind = field.schema_info(defined_names)
    kind = kind if field._required else ["null", kind]
    if not field.required_default():
        return {"name": name, "type": kind}
    return {"name": name, "default": _plain(field.default()), "type": kind}


def _plain(default: Any) -> Any:
    """A default in a definition: an enumeration member's name, or one character per byte."""
    if isinstance(default, Enum):
        return default.name
    return default.decode("latin-1") if isinstance(default, bytes) else default


def _made(field: Any, value: Any) -> Any:
    """*value* with records for dicts and members for names of enumerations; the first element decides for all."""
    if isinstance(field, Record) and isinstance(value, dict):
        return type(field)(**value)
    if isinstance(field, Array) and isinstance(value, list) and value and _is_to_be_made(field.array_type, value[0]):
        return [_element(field.array_type, each) for each in value]
    if isinstance(field, Map) and isinstance(value, dict) and value:
        if _is_to_be_made(field.value_type, next(iter(value.values()))):
            return {key: _element(field.value_type, each) for key, each in value.items()}
    return value


def _is_to_be_made(kind: Any, value: Any) -> bool:
    return isinstance(kind, CustomEnum) or isinstance(value, dict | list)


def _element(kind: Any, value: Any) -> Any:
    return kind.validate_type("of an element", value) if isinstance(kind, CustomEnum) else _made(kind, value)

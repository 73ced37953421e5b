"""Fields of a record: the type of a value, its default, and Avro's name for the type.

Ours, unlike ``pulsar.schema``: an enumeration in an array or map is defined in full, as valid Avro requires, and its
value may be given as the member's value.
"""

from abc import ABC, abstractmethod
from builtins import type as Class  # inside a field ``type`` is its method
from enum import Enum
from types import NoneType
from typing import Any


class Field(ABC):
    """The type of one field of a record.

    ``default``: the value of a missing field. ``required``: the field is not null. ``required_default``: the definition
    contains the default.
    """

    _default: Any
    _required: bool
    _required_default: bool

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False):
        self._default = None if default is None else self.validate_type("default", default)
        self._required = required
        self._required_default = required_default

    @abstractmethod
    def type(self) -> str:
        """Avro's name for the type."""

    @abstractmethod
    def python_type(self) -> Class | tuple[Class, ...]:
        """The Python class, or classes, of the values."""

    def validate_type(self, name: str, val: Any) -> Any:
        """Return *val* as the field stores it; TypeError with the field's *name* if its type is wrong."""
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, self.python_type()):
            raise TypeError(f"Invalid type '{Class(val)}' for field '{name}'. Expected: {_named(self.python_type())}")
        return val

    def schema(self) -> Any:
        """The definition of the type alone."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Any:
        """The definition of the type; only its name if it is among *defined_names*."""
        return self.type()

    def default(self) -> Any:
        """The value of a missing field."""
        return self._default

    def required_default(self) -> bool:
        """Whether the definition contains the default."""
        return self._required_default


def _named(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


class _Plain(Field):
    """A field whose type is fixed by its class."""

    _avro: str
    _python: Class | tuple[Class, ...]

    def type(self) -> str:
        return self._avro

    def python_type(self) -> Class | tuple[Class, ...]:
        return self._python


class Null(_Plain):
    """Only None."""

    _avro, _python = "null", NoneType

    def validate_type(self, name: str, val: Any) -> None:
        if val is not None:
            raise TypeError(f"Field {name} is set to be None")


class Boolean(_Plain):
    """True or False; the default is False."""

    _avro, _python = "boolean", bool

    def default(self) -> bool:
        return False if self._default is None else self._default


class Integer(_Plain):
    """A 32-bit number."""

    _avro, _python = "int", int


class Long(_Plain):
    """A 64-bit number."""

    _avro, _python = "long", int


class Float(_Plain):
    """A 32-bit floating-point number; whole numbers are accepted."""

    _avro, _python = "float", (float, int)


class Double(_Plain):
    """A 64-bit floating-point number; whole numbers are accepted."""

    _avro, _python = "double", (float, int)


class Bytes(_Plain):
    """Bytes. A text becomes UTF-8; other values are not checked, as in the package."""

    _avro, _python = "bytes", (bytes, str)

    def validate_type(self, name: str, val: Any) -> Any:
        return val.encode() if isinstance(val, str) else val


class String(_Plain):
    """A text; bytes are read as UTF-8."""

    _avro, _python = "string", (str, bytes)

    def validate_type(self, name: str, val: Any) -> str | None:
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, str | bytes):
            raise TypeError(f"Invalid type '{Class(val)}' for field '{name}'. Expected a string")
        return val.decode() if isinstance(val, bytes) else val


class CustomEnum(Field):
    """A member of the enumeration ``enum_type``. A value may be given by its name or value."""

    def __init__(
        self, enum_type: Class[Enum], default: Any = None, required: bool = False, required_default: bool = False
    ):
        if not (isinstance(enum_type, type) and issubclass(enum_type, Enum)):
            raise TypeError(f"{_named(enum_type)} is not a valid Enum type")
        self.enum_type = enum_type
        self.values = {member.value: member for member in enum_type.__members__.values()}
        super().__init__(default, required, required_default)

    def type(self) -> str:
        return "enum"

    def python_type(self) -> Class[Enum]:
        return self.enum_type

    def validate_type(self, name: str, val: Any) -> Enum | None:
        if val is None or isinstance(val, self.enum_type):
            return val
        if isinstance(val, str) and val in self.enum_type.__members__:
            return self.enum_type.__members__[val]
        if isinstance(val, Enum) or not isinstance(val, str | int):
            raise TypeError(f"Invalid type '{Class(val)}' for field '{name}'. Expected: {_named(self.enum_type)}")
        if val not in self.values:
            expected = list(self.enum_type.__members__ if isinstance(val, str) else self.values)
            raise TypeError(f"Invalid enum value '{val}' for field '{name}'. Expected: {expected}")
        return self.values[val]

    def schema_info(self, defined_names: set[str]) -> Any:
        name = self.enum_type.__name__
        if name in defined_names:
            return name
        defined_names.add(name)
        return {"type": self.type(), "name": name, "symbols": [member.name for member in self.enum_type]}


def holds_values(kind: object) -> bool:
    """Whether *kind* is a field, or a record used as one."""
    return isinstance(kind, Field) or (hasattr(kind, "validate_type") and not isinstance(kind, type))


def _check_element(kind: object) -> None:
    if not holds_values(kind):
        raise TypeError(f"Argument {_named(kind)} is not a Record or a Field: give an instance, such as String()")


class Array(_Plain):
    """A list of values of one type. ``array_type`` is a field, or a record used as a field."""

    _avro, _python = "array", list

    def __init__(self, array_type: Any, default: Any = None, required: bool = False, required_default: bool = False):
        _check_element(array_type)
        self.array_type = array_type
        super().__init__(default=default, required=required, required_default=required_default)

    def validate_type(self, name: str, val: Any) -> list | None:
        if val is None:
            return None
        super().validate_type(name, val)
        kind = self.array_type.python_type()
        if not all(isinstance(each, kind) for each in val):
            raise TypeError(f"Array field {name} items should all be of type {self.array_type.type()}")
        return val

    def schema_info(self, defined_names: set[str]) -> dict[str, Any]:
        return {"type": self.type(), "items": self.array_type.schema_info(defined_names)}


class Map(_Plain):
    """A dict from texts to values of one type. ``value_type`` is a field, or a record used as a field."""

    _avro, _python = "map", dict

    def __init__(self, value_type: Any, default: Any = None, required: bool = False, required_default: bool = False):
        _check_element(value_type)
        self.value_type = value_type
        super().__init__(default=default, required=required, required_default=required_default)

    def validate_type(self, name: str, val: Any) -> dict[str, Any] | None:
        if val is None:
            return None
        super().validate_type(name, val)
        kind = self.value_type.python_type()
        for key, value in val.items():
            if not isinstance(key, str):
                raise TypeError(f"Map keys for field {name} should all be strings")
            if not isinstance(value, kind):
                raise TypeError(f"Map values for field {name} should all be of type {_named(kind)}")
        return val

    def schema_info(self, defined_names: set[str]) -> dict[str, Any]:
        return {"type": self.type(), "values": self.value_type.schema_info(defined_names)}

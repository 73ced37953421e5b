"""Whether values written with one Avro definition can be read with another.

Rule: "Schema Resolution" of the Avro specification, as in Avro 1.11 (``Resolver``), which Pulsar's broker uses. Record
names count only inside unions, and an enumeration may lack symbols of the writer."""

import json
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "string", "bytes"))
PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The types that each type can be read as."""


LOGICAL_TYPES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string",),
}
"""The logical types that are converted, and the kinds that store them."""


class InvalidDefinition(ValueError):
    """The text is no Avro definition; the message says why."""


@dataclass(eq=False)
class AvroType:
    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: dict[str, "AvroField"] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    size: int = 0
    branches: list["AvroType"] = field(default_factory=list)
    """The types of a union, or the items of an array or a map."""
    logical: str = ""
    """One of :data:`LOGICAL_TYPES` that is valid for the kind; empty otherwise."""
    precision: int = 0
    scale: int = 0

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(eq=False)
class AvroField:
    """A field of a record; ``default`` is JSON, None without one."""

    type: AvroType
    default: str | None
    aliases: tuple[str, ...]


def parse_definition(text: str) -> AvroType:
    """Parse a definition in JSON; :class:`InvalidDefinition` if it is invalid.

    >>> parse_definition('["null", "string"]').branches[1].kind
    'string'
    """
    try:
        return _parsed(json.loads(text), "", {})
    except InvalidDefinition:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise InvalidDefinition(f"the definition is not one of Avro: {type(wrong).__name__}: {wrong}") from wrong


def _parsed(node: Any, namespace: str, known: dict[str, AvroType]) -> AvroType:
    if isinstance(node, list):
        return AvroType("union", branches=[_parsed(each, namespace, known) for each in node])
    if isinstance(node, str):
        if node in PRIMITIVES:
            return AvroType(node)
        found = known.get(_full(node, namespace)) or known.get(node)
        if found is None:
            raise InvalidDefinition(f"{node!r:.80} is no type, and none is defined under that name")
        return found
    kind = node["type"]
    if kind in ("array", "map"):
        return AvroType(kind, branches=[_parsed(node["items" if kind == "array" else "values"], namespace, known)])
    if kind not in ("record", "error", "enum", "fixed"):
        made = _parsed(kind, namespace, known)
        if made.kind in PRIMITIVES:
            _add_logical_type(made, node)
        return made
    made = AvroType("record" if kind == "error" else kind, _full(node["name"], node.get("namespace", namespace)))
    namespace = made.name.rpartition(".")[0]
    made.aliases = frozenset(_full(alias, namespace) for alias in node.get("aliases", ()))
    known[made.name] = made
    if kind == "enum":
        made.symbols = tuple(map(str, node["symbols"]))
    elif kind == "fixed":
        made.size = int(node["size"])
        _add_logical_type(made, node)
    for each in node["fields"] if made.kind == "record" else ():
        default = json.dumps(each["default"], sort_keys=True) if "default" in each else None
        aliases = tuple(each.get("aliases", ()))
        made.fields[each["name"]] = AvroField(_parsed(each["type"], namespace, known), default, aliases)
    return made


def _add_logical_type(made: AvroType, node: dict) -> None:
    """Set the logical type unless it is invalid for the stored kind.

    >>> found = parse_definition('{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}')
    >>> found.logical, parse_definition('{"type": "string", "logicalType": "date"}').logical
    ('decimal', '')
    """
    logical = node.get("logicalType")
    if not isinstance(logical, str) or made.kind not in LOGICAL_TYPES.get(logical, ()):
        return
    if logical == "decimal":
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
            return
        if made.kind == "fixed" and 10**precision > 1 << (8 * made.size - 1):
            return
        made.precision, made.scale = precision, scale
    made.logical = logical


def _full(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def canonical(kind: AvroType, seen: frozenset[str] = frozenset()) -> object:
    """A value that is equal for definitions with the same meaning.

    >>> one, other = '{"type": "enum", "name": "n.E", "symbols": ["A"], "doc": "x"}', (
    ...     '{"name": "E", "namespace": "n", "type": "enum", "symbols": ["A"]}')
    >>> canonical(parse_definition(one)) == canonical(parse_definition(other))
    True
    """
    if kind.name in seen:
        return kind.name
    seen |= {kind.name} if kind.name else set()
    fields = tuple((name, each.default, canonical(each.type, seen)) for name, each in kind.fields.items())
    branches = tuple(canonical(each, seen) for each in kind.branches)
    return kind.kind, kind.name, fields, kind.symbols, kind.size, branches


def unreadable(writer: AvroType, reader: AvroType) -> str | None:
    """Why *reader* cannot read what *writer* wrote; None if it can.

    >>> unreadable(parse_definition('"int"'), parse_definition('["null", "double"]'))
    >>> unreadable(parse_definition('"string"'), parse_definition('"int"'))
    'string was written, int is expected'
    """
    return _unreadable(writer, reader, {})


_Seen = dict[tuple[int, int], str | None]


def _unreadable(writer: AvroType, reader: AvroType, seen: _Seen) -> str | None:
    if writer.kind == "union":
        if reader.kind == "union" and _is_equivalent(writer, reader, set()):
            pairs = [*zip(writer.branches, reader.branches)]
        else:
            pairs = [(branch, reader) for branch in writer.branches]
        return next((why for pair in pairs if (why := _unreadable(*pair, seen))), None)
    if reader.kind == "union":
        match = _matching_branch(writer, reader, seen)
        return _mismatch(writer, reader) if match is None else _unreadable(writer, match, seen)
    if writer.kind != reader.kind:
        return None if reader.kind in PROMOTIONS.get(writer.kind, ()) else _mismatch(writer, reader)
    if writer.kind in ("array", "map"):
        return _unreadable(writer.branches[0], reader.branches[0], seen)
    if writer.kind in ("enum", "fixed"):
        is_same = (
            writer.short_name == reader.short_name or writer.name in reader.aliases
        ) and writer.size == reader.size
        return None if is_same else _mismatch(writer, reader)
    return _unreadable_record(writer, reader, seen) if writer.kind == "record" else None


def _unreadable_record(writer: AvroType, reader: AvroType, seen: _Seen) -> str | None:
    pair = id(writer), id(reader)
    if pair in seen:
        return seen[pair]
    seen[pair] = None  # assumed readable while it is compared, for recursive records
    for name, wanted in reader.fields.items():
        written = next((writer.fields[each] for each in (name, *wanted.aliases) if each in writer.fields), None)
        if written is not None:
            why = _unreadable(written.type, wanted.type, seen)
            seen[pair] = why and f"field {name!r}: {why}"
        elif wanted.default is None:
            seen[pair] = f"field {name!r} of {reader.name} was not written, and has no default"
        if seen[pair]:
            break
    return seen[pair]


def _matching_branch(writer: AvroType, union: AvroType, seen: _Seen) -> AvroType | None:
    """The branch of a reader's union for the writer's type: the same kind and name, else a record of the same
    structure, else the first it promotes to."""
    alike = [branch for branch in union.branches if branch.kind == writer.kind]
    for branch in alike:
        if not writer.name or writer.name == branch.name or writer.name in branch.aliases:
            return branch
    if writer.kind == "record":
        fitting = [branch for branch in alike if _unreadable_record(writer, branch, seen) is None]
        fitting.sort(key=lambda branch: branch.short_name != writer.short_name)
        return fitting[0] if fitting else None
    wanted = PROMOTIONS.get(writer.kind, ())
    return next((branch for branch in union.branches if branch.kind in wanted), None)


def _is_equivalent(one: AvroType, other: AvroType, seen: set[tuple[int, int]]) -> bool:
    if (one.kind, one.short_name, one.symbols, one.size, list(one.fields)) != (
        other.kind,
        other.short_name,
        other.symbols,
        other.size,
        list(other.fields),
    ) or len(one.branches) != len(other.branches):
        return False
    if (id(one), id(other)) in seen:
        return True
    seen.add((id(one), id(other)))
    parts = [*zip(one.branches, other.branches)]
    parts += [(each.type, other.fields[name].type) for name, each in one.fields.items()]
    return all(_is_equivalent(*pair, seen) for pair in parts)


def _mismatch(writer: AvroType, reader: AvroType) -> str:
    return f"{_shown(writer)} was written, {_shown(reader)} is expected"


def _shown(kind: AvroType) -> str:
    if kind.kind == "union":
        return f"one of {', '.join(map(_shown, kind.branches))}"
    return f"{kind.kind} {kind.name}" if kind.name else kind.kind

"""The description of a schema: its type, name and definition."""

from pulsar_spark.protocol.numbered import Numbered


class SchemaType(Numbered):
    """Kinds of schemas, with Pulsar's numbers."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    KEY_VALUE = 15
    PROTOBUF_NATIVE = 20
    BYTES = -1
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4

    def __str__(self) -> str:
        return f"SchemaType.{self.name}"


class SchemaInfo:
    """The type of a schema (``schema_type``), its ``name`` and its definition (``schema``).

    >>> SchemaInfo(SchemaType.STRING, "STRING", "null")
    SchemaInfo(SchemaType.STRING, 'STRING', 'null')
    """

    __slots__ = ("_schema_type", "_name", "_schema")

    def __init__(self, schema_type: SchemaType, name: str, schema: str):
        self._schema_type, self._name, self._schema = schema_type, name, schema

    def schema_type(self) -> SchemaType:
        """The kind of the schema."""
        return self._schema_type

    def name(self) -> str:
        return self._name

    def schema(self) -> str:
        """The definition; the text ``null`` for types without one."""
        return self._schema

    @property
    def is_kept(self) -> bool:
        """Whether topics keep this schema: it says how bytes become values."""
        return self._schema_type.value > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaInfo):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[SchemaType, str, str]:
        return self._schema_type, self._name, self._schema

    def __repr__(self) -> str:
        return f"SchemaInfo({self._schema_type}, {self._name!r}, {self._schema!r})"

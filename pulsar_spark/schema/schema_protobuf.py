"""ProtobufNativeSchema: messages of Protobuf in their own encoding, through ``protobuf``.

Only equal definitions are compatible (protocol.schemas.schema_compatibility).
"""

import base64
from typing import Any

from pulsar_spark.protocol.schemas.schema_info import SchemaType
from pulsar_spark.schema.schema import Schema


class ProtobufNativeSchema(Schema):
    """Protocol Buffers messages of the generated class ``record_cls``."""

    _record_cls: Any

    def __init__(self, record_cls: Any) -> None:
        try:
            from google.protobuf.message import Message
        except ImportError as missing:
            raise ImportError(
                "protobuf library support was not found: ProtobufNativeSchema needs protobuf, which "
                "pip install 'pulsar_spark[protobuf]' brings"
            ) from missing
        if not (isinstance(record_cls, type) and issubclass(record_cls, Message)):
            raise TypeError(f"record_cls must be a protobuf Message subclass, got {record_cls!r}")
        super().__init__(record_cls, SchemaType.PROTOBUF_NATIVE, _definition(record_cls), "PROTOBUF_NATIVE")

    def encode(self, obj: Any) -> bytes:
        self._validate_object_type(obj)
        return obj.SerializeToString()

    def decode(self, data: bytes) -> Any:
        return self._record_cls.FromString(data)

    def __str__(self) -> str:
        return f"ProtobufNativeSchema({self._record_cls.__name__})"


def _definition(record_cls: Any) -> dict[str, str]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    descriptor = record_cls.DESCRIPTOR
    files: dict[str, Any] = {}
    _collect(descriptor.file, files)
    described = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(described.file.add())
    return {
        "fileDescriptorSet": base64.b64encode(described.SerializeToString()).decode("ascii"),
        "rootMessageTypeName": descriptor.full_name,
        "rootFileDescriptorName": descriptor.file.name,
    }


def _collect(file: Any, files: dict[str, Any]) -> None:
    if file.name not in files:
        for imported in file.dependencies:
            _collect(imported, files)
        files[file.name] = file

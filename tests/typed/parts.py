"""Functions, keys, loggers, enumerations, and every way to a name."""

from typing import Any

import pulsar_spark as pulsar
from pulsar_spark import Context, Function, IdentitySerDe, SerDe


class Exclaim(Function):
    def process(self, input: str, context: Context) -> str:
        context.get_logger().info("got %s", input)
        return input + "!"


class Upper(SerDe):
    def serialize(self, input: Any) -> bytes:
        return str(input).upper().encode()

    def deserialize(self, input_bytes: bytes) -> str:
        return input_bytes.decode()


class Keys(pulsar.CryptoKeyReader):
    def __init__(self) -> None:
        super().__init__("a.pem", "b.pem")


class Fake(Context):
    def get_function_name(self) -> str:
        return "f"


def use() -> None:
    print(Exclaim().process("a", Fake()), Upper().deserialize(Upper().serialize("x")), IdentitySerDe().serialize(1))
    log = pulsar.FileLogger(pulsar.LoggerLevel.Debug, "x.log")
    pulsar.Client("delta:/d", logger=log)
    pulsar.Client("delta:/d", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    print(
        [1, 2][pulsar.ConsumerType.Shared],
        pulsar.ConsumerType.Shared == 1,
        int(pulsar.ConsumerType.Failover),
        pulsar.__version__,
    )

"""Check frames that callers give or return, and name their functions; an error has the code that converts another
library's frame."""

from pyspark.sql import DataFrame

from pulsar_spark.errors import InvalidConfiguration


def check_frame(frame: object, name: str, *, is_streaming: bool | None = None) -> None:
    """Raise :class:`InvalidConfiguration` unless *frame*, the argument *name*, is a Spark DataFrame, streaming as
    *is_streaming* says (None: either)."""
    if not isinstance(frame, DataFrame):
        raise InvalidConfiguration(f"{name} is {shown(frame)}, not a Spark DataFrame: give {spark_frame(frame, name)}")
    if is_streaming is not None and frame.isStreaming != is_streaming:
        it_is, use = ("a stream", "publish_stream") if frame.isStreaming else ("no stream", "publish")
        raise InvalidConfiguration(f"{name} is {it_is}: publish it with {use}")


def is_other_frame(value: object) -> bool:
    return not isinstance(value, type | DataFrame) and (hasattr(value, "columns") or hasattr(value, "column_names"))


def shown(frame: object) -> str:
    kind = type(frame)
    return (
        f"a {kind.__name__} of {kind.__module__.partition('.')[0]}" if is_other_frame(frame) else f"a {kind.__name__}"
    )


def spark_frame(frame: object, name: str) -> str:
    if hasattr(frame, "to_spark"):
        return f"{name}.to_spark()"
    return (
        f"spark.createDataFrame({name}.to_arrow())" if hasattr(frame, "to_arrow") else f"spark.createDataFrame({name})"
    )


def function_name(function: object) -> str:
    """``module:name`` of a function, as options take it; another callable as it shows itself.

    >>> function_name(function_name)
    'pulsar_spark.frames.given_frames:function_name'
    """
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{getattr(function, '__module__', None)}:{name}"

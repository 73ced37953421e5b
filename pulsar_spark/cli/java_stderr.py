"""Under spark-submit, which mixes standard error into standard output, standard error goes to the JVM's."""

import io
import os
import sys
from typing import Any, TextIO


class JavaStandardError(io.TextIOBase):
    """Writes to the JVM's standard error, or to *otherwise* if the JVM is gone."""

    def __init__(self, otherwise: TextIO):
        self._otherwise = otherwise

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        try:
            SparkContext._ensure_initialized()
            jvm: Any = SparkContext._jvm
            jvm.java.lang.System.err.print(text)
        except (Py4JError, OSError):
            self._otherwise.write(text)
        return len(text)

    def flush(self) -> None: ...


def separate_standard_error() -> None:
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_submitted and not isinstance(sys.stderr, JavaStandardError):
        sys.stderr = JavaStandardError(sys.stderr)

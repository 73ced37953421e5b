"""Standard error under spark-submit, which mixes a Python program's into its own standard output: what is written goes
to the standard error of the JVM that started the program.
"""

import io
import os
import sys
from typing import TextIO


class JavaStandardError(io.TextIOBase):
    """Writes to the JVM's standard error; to *otherwise* where the JVM is gone."""

    def __init__(self, otherwise: TextIO):
        self._otherwise = otherwise

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        try:
            SparkContext._ensure_initialized()
            SparkContext._jvm.java.lang.System.err.print(text)
        except (Py4JError, OSError):
            self._otherwise.write(text)
        return len(text)

    def flush(self) -> None:
        """Nothing waits here."""


def separate_standard_error() -> None:
    """Where spark-submit runs this program, let its standard error be one."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_submitted and not isinstance(sys.stderr, JavaStandardError):
        sys.stderr = JavaStandardError(sys.stderr)

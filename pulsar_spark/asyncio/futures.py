"""Connects client threads to futures of the application's event loop, and file threads."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from pulsar_spark.client.arguments import Method
from pulsar_spark.client.model.enums import Result, result_of
from pulsar_spark.errors import AlreadyClosed, PulsarSparkError
from pulsar_spark.link import interrupts

FILE_THREADS = 4


class PulsarException(PulsarSparkError):
    """A failure: the client's :class:`~pulsar_spark.Result` and a reason."""

    def __init__(self, result: Result, msg: str | None = None):
        super().__init__(result, msg)
        self._result, self._msg = result, msg

    def error(self) -> Result:
        """The result for this failure."""
        return self._result

    def __str__(self) -> str:
        text = f"{self._result.value} {self._result.name}"
        return f"{text}: {self._msg}" if self._msg else text


def exception_of(error: PulsarSparkError) -> PulsarException:
    return error if isinstance(error, PulsarException) else PulsarException(result_of(error), str(error))


def raises_exceptions(method: Method) -> Method:
    """Decorate a coroutine method: its errors become :class:`PulsarException`."""

    @functools.wraps(method)
    async def call(*args, **kwargs):
        try:
            return await method(*args, **kwargs)
        except PulsarException:
            raise
        except PulsarSparkError as error:
            raise exception_of(error) from error

    return cast(Method, call)


def _set_future(future: asyncio.Future, result: Result | PulsarSparkError, value: object) -> None:
    """Complete *future*, from any thread, with *value* or an error, unless it is done."""

    def complete() -> None:
        if future.done():
            return
        if result is Result.Ok:
            future.set_result(value)
        else:
            future.set_exception(
                exception_of(result) if isinstance(result, PulsarSparkError) else PulsarException(result)
            )

    on_loop(future.get_loop(), complete)


def on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args) -> None:
    """Call *function* on the loop, from any thread; does nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def answered(future: asyncio.Future, value: object, error: PulsarSparkError | None) -> None:
    _set_future(future, Result.Ok if error is None else error, value)


class Files:
    def __init__(self):
        self._is_over = False
        self._threads = ThreadPoolExecutor(FILE_THREADS, "pulsar-spark-files", interrupts.ignore_here)

    def submit(self, function: Callable, *args) -> asyncio.Future:
        """Call *function* in a file thread; :class:`AlreadyClosed` after :meth:`end`."""
        if self._is_over:
            raise AlreadyClosed("the client is closed: open a new one")
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def end(self) -> None:
        """Running calls finish."""
        self._is_over = True
        self._threads.shutdown(wait=False)

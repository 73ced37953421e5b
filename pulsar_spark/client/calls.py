"""What every public call of a client, producer, consumer and reader has in common."""

import functools
from collections.abc import Callable

from pulsar_spark.errors import Interrupted
from pulsar_spark.storage import forks


def public_call(method: Callable) -> Callable:
    """A method that works in the process that opened its object only, and that Ctrl-C ends with :class:`Interrupted`.

    The object keeps :data:`forks.generation` of its making as ``_process``.
    """

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self._process != forks.generation:
            forks.check_opened_here(self._process, type(self).__name__.lower())
        try:
            return method(self, *args, **kwargs)
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted(f"Ctrl-C was pressed during {type(self).__name__}.{method.__name__}") from None

    return call

"""A thread that calls the application's function with each message.

If it raises, a new thread continues, as in Pulsar.
"""

import threading
from collections.abc import Callable

from pulsar_spark.errors import AlreadyClosed, MessagesLost, UnreadableMessage
from pulsar_spark.link import interrupts

_TURN_SECONDS = 1.0


class Listener:
    """Calls ``function(owner, message)`` for results of ``take(seconds)`` until that raises, while ``may_call()`` is
    true."""

    def __init__(
        self,
        owner,
        function: Callable,
        take: Callable[[float], object],
        name: str,
        may_call: Callable[[], bool] = lambda: True,
    ):
        self._owner = owner
        self._function = function
        self._take = take
        self._name = name
        self._may_call = may_call
        self._is_calling = False

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"pulsar-spark-listener-{self._name}", daemon=True).start()

    def _run(self) -> None:
        interrupts.ignore_here()
        try:
            while True:
                try:
                    message = self._take(_TURN_SECONDS)
                except AlreadyClosed:
                    return
                except (UnreadableMessage, MessagesLost) as error:
                    self._owner._client._logger.error("the listener skips a lost or unreadable message: %s", error)
                    continue
                if message is not None and self._may_call():
                    self._is_calling = True
                    self._function(self._owner, message)
                    self._is_calling = False
        finally:
            if self._is_calling:
                self._is_calling = False
                self.start()

"""Client: the entry point, shaped like the ``pulsar`` package's."""

import atexit
import itertools
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from pulsar_spark.client.arguments import Types, check_type, check_types, public_call
from pulsar_spark.client.compat import Authentication, ServiceInfo, refuse_credentials
from pulsar_spark.client.model.enums import ConsumerCryptoFailureAction
from pulsar_spark.client.model.loggers import ConsoleLogger, FileLogger, close_logger, open_logger
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.reader import Reader
from pulsar_spark.client.readers.table_view import TableView
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.client.schema.schemas import TopicSchemas
from pulsar_spark.client.sending.producing import Producing
from pulsar_spark.client.subscribing.following import Following
from pulsar_spark.client.subscribing.subscribing import Subscribing
from pulsar_spark.described import Described
from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, TopicNotFound
from pulsar_spark.link import interrupts
from pulsar_spark.link.channels import Channels
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.schema import BytesSchema, Schema
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.layout import Layout, parse_service_url
from pulsar_spark.storage.ledgers.ledger_index import shared_index
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.away import left_root
from pulsar_spark.storage.topics.topics import Topic, prepare_root, resolve_topic

MAX_LEASE_SECONDS = 24 * 60 * 60
_ARGUMENTS: dict[str, Types] = {
    "service_url": str | ServiceInfo,
    "use_tls": bool,
    "tls_allow_insecure_connection": bool,
    "tls_validate_hostname": bool,
    "tls_trust_certs_file_path": str | None,
    "listener_name": str | None,
    "tls_private_key_file_path": str | None,
    "tls_certificate_file_path": str | None,
    "operation_timeout_seconds": int,
    "io_threads": int,
    "message_listener_threads": int,
    "concurrent_lookup_requests": int,
    "stats_interval_in_seconds": int,
    "connection_timeout_ms": int,
    "log_conf_file_path": str | None,
    "logger": logging.Logger | ConsoleLogger | FileLogger | None,
    "lease_seconds": int | float,
}


class Client(Described, Producing, Subscribing):
    """A connection to the topics of one root. It is thread-safe.

    - ``service_url``: ``delta:<root>``, where the root is the folder of the tables, or a :class:`ServiceInfo` with it.
    - ``operation_timeout_seconds``: how long a call waits for the broker's answer before it raises :class:`Timeout`.
    - ``lease_seconds``: how long the broker reserves messages for this client's consumers after the last sign of life.
      The package has no such argument.
    - ``logger``: a logger of Python's ``logging``, a :class:`ConsoleLogger` or a :class:`FileLogger`.
    - ``log_conf_file_path``: a JSON file with settings of ``logging``.
    - ``authentication``, ``use_tls``, ``tls_trust_certs_file_path``, ``tls_allow_insecure_connection``,
      ``tls_validate_hostname``, ``listener_name``, ``tls_private_key_file_path``, ``tls_certificate_file_path``: only
      the defaults are accepted.
    - ``io_threads``, ``message_listener_threads``, ``concurrent_lookup_requests``, ``stats_interval_in_seconds``,
      ``connection_timeout_ms``: numbers without effect.
    """

    def __init__(
        self,
        service_url: str | ServiceInfo,
        authentication: Authentication | None = None,
        operation_timeout_seconds: int = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: logging.Logger | ConsoleLogger | FileLogger | None = None,
        connection_timeout_ms: int = 10000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        lease_seconds: float = 30,
    ):
        given = dict(locals())
        check_types(given, **_ARGUMENTS)
        if isinstance(service_url, ServiceInfo):
            given["tls_trust_certs_file_path"] = tls_trust_certs_file_path or service_url.tls_trust_certs_file_path
            service_url = service_url.service_url
        refuse_credentials(given)
        if not 0 < lease_seconds <= MAX_LEASE_SECONDS:
            raise ValueError(f"argument lease_seconds: {lease_seconds} is not above 0 and at most {MAX_LEASE_SECONDS}")
        self._service_url = service_url
        self._given_logger, self._logger = logger, open_logger(logger, log_conf_file_path)
        self._timeout: float = operation_timeout_seconds
        self._lease_ms = max(1, int(lease_seconds * 1000))
        self._layout = Layout(parse_service_url(service_url, self._logger))
        self._process = forks.generation
        prepare_root(self._layout)
        self._client_id = uuid.uuid4().hex
        self._ledgers = shared_index(self._layout)
        self._entries = EntryReader(CACHED_BYTES)
        self._schemas = TopicSchemas(self._layout)
        self._lock = threading.Lock()
        self._open: list = []
        self._consumer_numbers = itertools.count()
        self._is_closed = False
        self._following = Following(f"topics-{self._client_id}", self._logger)
        self._claims = Following(f"claims-{self._client_id}", self._logger)
        self._opened_channel: Channels | None = None
        atexit.register(self._close_at_exit)
        interrupts.listen()
        self._logger.debug("client %s of root %r opened", self._client_id, str(self._layout.root))

    def _facts(self) -> dict[str, object]:
        kinds = Counter(f"{type(handle).__name__.lower()}s" for handle in list(self._open))
        return {"service_url": self._service_url, "state": "closed" if self._is_closed else "open", **kinds}

    def get_service_info(self) -> ServiceInfo:
        """The address that the client was created with."""
        return ServiceInfo(self._service_url)

    @property
    def _channel(self) -> Channels:
        with self._lock:
            if self._opened_channel is None:
                self._check_open()
                self._opened_channel = Channels(
                    self._layout, self._client_id, lease_ms=self._lease_ms, logger=self._logger
                )
            return self._opened_channel

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema = BytesSchema(),
        reader_listener: Callable[[Reader, Message], Any] | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """Create a reader that begins after *start_message_id*, or at it with ``start_message_id_inclusive``. On a
        partitioned *topic* it reads all partitions, from the earliest or latest message.

        - ``schema``: decodes payloads. It must fit the topic's schema, as for a consumer.
        - ``reader_listener(reader, message)``: called with each message, in a thread of its own.
        - ``crypto_key_reader`` and ``crypto_failure_action``: as for :meth:`subscribe`.
        - ``is_read_compacted``: read only the latest message of each key where the topic is compacted (``pulsar-spark
          compact``), and every message published since.
        - ``receiver_queue_size``, ``reader_name``, ``subscription_role_prefix``: without effect.
        """
        check_types(
            locals(),
            topic=str,
            start_message_id=MessageId,
            schema=Schema,
            receiver_queue_size=int,
            reader_name=str | None,
            subscription_role_prefix=str | None,
            is_read_compacted=bool,
            start_message_id_inclusive=bool,
        )
        if reader_listener is not None and not callable(reader_listener):
            raise ValueError("argument reader_listener: a function expected")
        opener = PayloadOpener(crypto_key_reader, crypto_failure_action)
        options = (start_message_id, start_message_id_inclusive, schema, reader_listener, opener, is_read_compacted)
        return self._create_reader(topic, schema, options)

    @public_call
    def _create_reader(self, topic: str, schema: Schema, options: tuple) -> Reader:
        """The public method is not decorated, because callers inspect its code for arguments."""
        found, partitions, name = self._resolve(topic)
        self._schemas.check_consumer(found, schema)
        schema.attach_client(self)
        reader = Reader(self, found, partitions, name, *options)
        return self._keep(reader, reader._shutdown)

    @public_call
    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema = BytesSchema()
    ) -> TableView:
        """Create a view of the latest value of each key of *topic*, updated until it is closed. A missing topic is
        created.

        Values are decoded by *schema*. ``subscription_name`` only names the view.
        """
        check_types(locals(), topic=str, subscription_name=str | None, schema=Schema)
        reader = self.create_reader(topic, MessageId.earliest, schema, is_read_compacted=True)
        with ExitStack() as undone:
            undone.callback(reader.close)
            view = TableView(self, reader, subscription_name, schema)
            undone.pop_all()
        return view

    @public_call
    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the partitions of *topic*; its own name if it has no partitions or does not exist."""
        check_type(str, topic, "topic")
        self._check_open()
        try:
            found, partitions = resolve_topic(self._layout, topic)
        except TopicNotFound:
            return [str(parse_topic_name(topic))]
        return [str(found.name.partition(partition)) for partition in partitions]

    @public_call
    def close(self) -> None:
        """Close all producers, consumers and readers, then the client. Pending messages are published and pending
        acknowledgements sent."""
        self._check_open()
        errors = self._close(lambda handle: handle.close())
        if errors:
            raise errors[0]

    @public_call
    def shutdown(self) -> None:
        """Close at once: pending sends fail, and pending acknowledgements are sent if possible. May be repeated."""
        if not self._is_closed:
            self._close(lambda handle: getattr(handle, "_shutdown", handle.close)())

    def _close_at_exit(self) -> None:
        if not self._is_closed and self._process == forks.generation:
            interrupts.end_program()
            self._close(lambda handle: handle.close())

    def _close(self, close) -> list[PulsarSparkError]:
        """Return the errors."""
        self._is_closed = True
        atexit.unregister(self._close_at_exit)
        with self._lock:
            handles, channel = list(self._open), self._opened_channel
        self._following.end(self._timeout)
        errors = []
        for handle in handles:
            try:
                close(handle)
            except AlreadyClosed:
                continue  # the application closed it first
            except PulsarSparkError as error:
                errors.append(error)
        self._claims.end(self._timeout)  # renewed until the last producer has published
        if channel is not None:
            channel.stop(self._timeout)
        self._entries.forget()
        self._ledgers.forget()
        left_root(self._layout)
        interrupts.stop_listening()
        self._logger.debug("client %s closed", self._client_id)
        close_logger(self._logger, self._given_logger)
        return errors

    def _resolve(self, topic: str) -> tuple[Topic, list[int], str]:
        self._check_open()
        name = parse_topic_name(topic)
        found, partitions = resolve_topic(self._layout, name, create=True)
        return found, partitions, str(name)

    def _writer_schema(self, message) -> SchemaInfo | None:
        return self._schemas.written_with(message)

    def _keep(self, handle, undo: Callable[[], None]):
        """Register *handle* to be closed with the client; if it was closed meanwhile, *undo* and raise
        :class:`AlreadyClosed`."""
        with self._lock:
            if not self._is_closed:
                self._open.append(handle)
                return handle
        undo()
        raise AlreadyClosed("the client was closed meanwhile: open a new one")

    def _forget(self, handle) -> None:
        with self._lock:
            if handle in self._open:
                self._open.remove(handle)

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("the client is closed: open a new one")

"""Names of Pulsar's client that cannot work on a folder: each raises :class:`OperationNotSupported` with what to do
instead."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NoReturn, TypeVar

from pulsar_spark.client.arguments import check_type
from pulsar_spark.client.model.message import Message
from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported
from pulsar_spark.protocol.topics.message_id import MessageId

WHY_NO_CREDENTIALS = "a folder has no TLS, authentication or listeners; the permissions of the file system apply"
_NO_CONNECTION = {
    "use_tls": False,
    "tls_trust_certs_file_path": None,
    "tls_validate_hostname": False,
    "tls_allow_insecure_connection": False,
    "listener_name": None,
    "tls_private_key_file_path": None,
    "tls_certificate_file_path": None,
}

Kind = TypeVar("Kind", bound=type)


def _not_served(why: str) -> Callable[[Kind], Kind]:
    """Let the methods of a class raise with *why*, and say so in its docstring."""

    def refusing(cls: Kind) -> Kind:
        described = inspect.cleandoc(cls.__doc__ or "")
        cls.__doc__ = f"{described}\n\nIts methods raise :class:`OperationNotSupported` here, because {why}."
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType):
                setattr(cls, name, _refused(method, why))
        return cls

    return refusing


def _refused(method: FunctionType, why: str) -> Callable[..., NoReturn]:
    @functools.wraps(method)
    def refuse(*_: object, **__: object) -> NoReturn:
        raise OperationNotSupported(f"{method.__qualname__.removesuffix('.__init__')}: {why}")

    return refuse


_no_credentials = _not_served(f"{WHY_NO_CREDENTIALS}: leave it out of pulsar_spark.Client")
_one_root = _not_served("a root is one folder without failover: give its URL 'delta:<root>' to pulsar_spark.Client")
_no_functions = _not_served("no process runs functions: use a consumer, or pulsar_spark.frames.consume")


@_no_credentials
class Authentication:
    """Credentials from a plugin library: its path ``dynamicLibPath`` and parameters ``authParamsString``."""

    def __init__(self, dynamicLibPath: str, authParamsString: str): ...


@_no_credentials
class AuthenticationTLS(Authentication):
    """A client certificate: the paths ``certificate_path`` and ``private_key_path``."""

    def __init__(self, certificate_path: str, private_key_path: str): ...


@_no_credentials
class AuthenticationToken(Authentication):
    """A token: ``token`` is a text, or a function that returns one."""

    def __init__(self, token: str | Callable[[], str]): ...


@_no_credentials
class AuthenticationAthenz(Authentication):
    """Athenz credentials: JSON in ``auth_params_string``."""

    def __init__(self, auth_params_string: str): ...


@_no_credentials
class AuthenticationOauth2(Authentication):
    """OAuth 2.0 credentials: JSON in ``auth_params_string``."""

    def __init__(self, auth_params_string: str): ...


@_no_credentials
class AuthenticationBasic(Authentication):
    """Credentials of a user: ``username``, ``password`` and ``method``, or all as JSON in ``auth_params_string``."""

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ): ...


class ServiceInfo:
    """The address of a root (``service_url``). A client refuses ``authentication`` and
    ``tls_trust_certs_file_path``."""

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ):
        check_type(str, service_url, "service_url")
        check_type(Authentication | None, authentication, "authentication")
        check_type(str | None, tls_trust_certs_file_path, "tls_trust_certs_file_path")
        self._service_url, self._tls_trust_certs_file_path = service_url, tls_trust_certs_file_path

    @property
    def service_url(self) -> str:
        """The address."""
        return self._service_url

    @property
    def use_tls(self) -> bool:
        """Whether the address requires TLS."""
        return self._service_url.startswith(("pulsar+ssl:", "https:"))

    @property
    def tls_trust_certs_file_path(self) -> str | None:
        """The file of trusted certificates."""
        return self._tls_trust_certs_file_path

    def __repr__(self) -> str:
        return (
            f"ServiceInfo(service_url={self.service_url!r}, use_tls={self.use_tls}, "
            f"tls_trust_certs_file_path={self.tls_trust_certs_file_path!r})"
        )

    @classmethod
    def wrap(cls, service_info: "ServiceInfo") -> "ServiceInfo":
        """Return *service_info* itself."""
        check_type(ServiceInfo, service_info, "service_info")
        return service_info


@_one_root
class ServiceInfoProvider:
    """Chooses the cluster that a client uses."""

    def __init__(self) -> None: ...
    def initial_service_info(self) -> ServiceInfo: ...  # type: ignore[empty-body]  # it raises
    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Keep the function *on_service_info_update*, which is called with another cluster."""

    def close(self) -> None: ...


@_one_root
class AutoClusterFailover:
    """Uses the ``primary`` cluster, or the first of the ``secondary`` ones that answers.

    It checks every ``check_interval_ms``, and changes to a secondary one after ``failover_threshold`` failed checks,
    back after ``switch_back_threshold`` good ones.
    """

    def __init__(
        self,
        primary: ServiceInfo,
        secondary: list[ServiceInfo],
        check_interval_ms: int = 5000,
        failover_threshold: int = 1,
        switch_back_threshold: int = 1,
    ): ...


def refuse_credentials(options: Mapping[str, object]) -> None:
    """:class:`InvalidConfiguration` for credentials or an unusual connection option; ValueError for a wrong type."""
    check_type(Authentication | None, options["authentication"], "authentication")
    if options["authentication"] is not None:
        raise InvalidConfiguration(f"authentication cannot be used here: {WHY_NO_CREDENTIALS}")
    for name, default in _NO_CONNECTION.items():
        if options[name] not in (None, default):
            raise InvalidConfiguration(f"{name}={options[name]!r} cannot be used here: {WHY_NO_CREDENTIALS}")


@_not_served("a batch is rows of its topic's table, not bytes: receive or read its messages one by one")
class MessageBatch:
    """Decodes Pulsar's bytes of a batch."""

    def with_message_id(self, msg_id: MessageId) -> "MessageBatch":  # type: ignore[empty-body]  # it raises
        """Set *msg_id* as the id of the batch; its messages get this id with their batch index."""

    def parse_from(self, data: bytes, size: int) -> list[Message]:  # type: ignore[empty-body]  # it raises
        """Decode *size* messages in *data*."""


@_no_functions
class Function:
    """Handles messages. Derive a class with ``process`` to test it."""

    def process(self, input: Any, context: "Context") -> Any: ...


@_not_served("a schema serializes values outside of functions: derive a class and write it, or use pulsar_spark.schema")
class SerDe:
    """Serializes the values of a function."""

    def serialize(self, input: Any) -> bytes: ...  # type: ignore[empty-body]  # it raises
    def deserialize(self, input_bytes: bytes) -> Any: ...


@_not_served("reading a pickle runs whatever its writer put into it: use pulsar_spark.schema, or a SerDe of your own")
class PickleSerDe(SerDe):
    """Serializes values as pickles."""

    def serialize(self, input: Any) -> bytes: ...  # type: ignore[empty-body]  # it raises
    def deserialize(self, input_bytes: bytes) -> Any: ...


@_no_functions
class Context:
    """What a function can read and do. Derive a class with the methods that a test needs."""

    def get_message_id(self) -> Any: ...
    def get_message_key(self) -> Any: ...
    def get_message_eventtime(self) -> Any: ...
    def get_message_properties(self) -> Any: ...
    def get_current_message_topic_name(self) -> Any: ...
    def get_partition_key(self) -> Any: ...
    def get_ordering_key(self) -> Any: ...
    def ack(self, msgid: Any, topic: str) -> None: ...
    def get_function_tenant(self) -> Any: ...
    def get_function_namespace(self) -> Any: ...
    def get_function_name(self) -> Any: ...
    def get_function_id(self) -> Any: ...
    def get_function_version(self) -> Any: ...
    def get_instance_id(self) -> Any: ...
    def get_input_topics(self) -> Any: ...
    def get_output_topic(self) -> Any: ...
    def get_output_serde_class_name(self) -> Any: ...
    def get_logger(self) -> Any: ...
    def get_user_config_value(self, key: str) -> Any: ...
    def get_user_config_map(self) -> Any: ...
    def get_secret(self, secret_name: str) -> Any: ...
    def record_metric(self, metric_name: str, metric_value: float) -> None: ...
    def publish(
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: dict[str, str] | None = None,
        compression_type: Any = None,
        callback: Any = None,
        message_conf: dict[str, Any] | None = None,
    ) -> None: ...
    def incr_counter(self, key: str, amount: int) -> None: ...
    def get_counter(self, key: str) -> Any: ...
    def del_counter(self, key: str) -> None: ...
    def put_state(self, key: str, value: Any) -> None: ...
    def get_state(self, key: str) -> Any: ...

"""The ``pulsar`` package's classes for connections to a cluster: credentials, addresses and failover.

They check their arguments like the package's; ``Client`` refuses them, because a folder has no connections.
"""

import json
from collections.abc import Callable

from pulsar_spark.client.arguments import check_type, check_type_or_none, given
from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported

WHY_NO_CREDENTIALS = "a folder has no TLS, authentication or listeners; the permissions of the file system apply"


class Authentication:
    """Credentials from a plugin library: ``dynamicLibPath`` is its path, ``authParamsString`` its parameters."""

    def __init__(self, dynamicLibPath: str, authParamsString: str):
        check_type(str, dynamicLibPath, "dynamicLibPath")
        check_type(str, authParamsString, "authParamsString")


class AuthenticationTLS(Authentication):
    """A client certificate: ``certificate_path`` is the path of the certificate, ``private_key_path`` that of its
    key.
    """

    def __init__(self, certificate_path: str, private_key_path: str):
        check_type(str, certificate_path, "certificate_path")
        check_type(str, private_key_path, "private_key_path")


class AuthenticationToken(Authentication):
    """A token: ``token`` is a text, or a function that returns one."""

    def __init__(self, token: str | Callable[[], str]):
        if not isinstance(token, str) and not callable(token):
            raise ValueError(f"argument token: str or a function that gives one expected, not {given(token)}")


class AuthenticationAthenz(Authentication):
    """Athenz credentials; ``auth_params_string`` has the parameters as JSON."""

    def __init__(self, auth_params_string: str):
        check_type(str, auth_params_string, "auth_params_string")


class AuthenticationOauth2(Authentication):
    """OAuth 2.0 credentials; ``auth_params_string`` has the parameters as JSON."""

    def __init__(self, auth_params_string: str):
        check_type(str, auth_params_string, "auth_params_string")


class AuthenticationBasic(Authentication):
    """Credentials of a user: ``username``, ``password`` and ``method``, or all three as JSON in ``auth_params_string``.

    RuntimeError if ``auth_params_string`` is not such JSON, as in the package.
    """

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ):
        if auth_params_string is not None:
            check_type(str, auth_params_string, "auth_params_string")
            try:
                json.loads(auth_params_string)
            except ValueError:
                raise RuntimeError("argument auth_params_string: JSON with username and password expected") from None
            return
        check_type(str, username, "username")
        check_type(str, password, "password")
        check_type(str, method, "method")


class ServiceInfo:
    """The address of a cluster (``service_url``), its ``authentication``, and the file of trusted certificates
    (``tls_trust_certs_file_path``).
    """

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ):
        check_type(str, service_url, "service_url")
        check_type_or_none(Authentication, authentication, "authentication")
        check_type_or_none(str, tls_trust_certs_file_path, "tls_trust_certs_file_path")
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
        """Return *service_info*; there is only this class of it here."""
        check_type(ServiceInfo, service_info, "service_info")
        return service_info


class ServiceInfoProvider:
    """Chooses the cluster that a client uses; derive a class to write your own."""

    def initial_service_info(self) -> ServiceInfo:
        """The cluster to connect to first."""
        raise NotImplementedError

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Keep *on_service_info_update*, the function to call with another cluster."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the client is closed."""


class AutoClusterFailover:
    """Use the ``primary`` cluster and, while it does not answer, the first of the ``secondary`` clusters that does.

    The clusters are checked every ``check_interval_ms``. The client switches after ``failover_threshold`` failed checks
    of the primary, and back after ``switch_back_threshold`` successful ones.
    """

    def __init__(
        self,
        primary: ServiceInfo,
        secondary: list[ServiceInfo],
        check_interval_ms: int = 5000,
        failover_threshold: int = 1,
        switch_back_threshold: int = 1,
    ):
        check_type(ServiceInfo, primary, "primary")
        check_type(list, secondary, "secondary")
        if not secondary:
            raise ValueError("argument secondary: at least one ServiceInfo expected")
        for each in secondary:
            check_type(ServiceInfo, each, "secondary")
        self._said = {"primary": primary, "secondary": secondary}
        for name, number in (
            ("check_interval_ms", check_interval_ms),
            ("failover_threshold", failover_threshold),
            ("switch_back_threshold", switch_back_threshold),
        ):
            check_type(int, number, name)
            if number <= 0:
                raise ValueError(f"argument {name}: {number} is not above 0")
            self._said[name] = number

    def __repr__(self) -> str:
        return f"AutoClusterFailover({', '.join(f'{name}={value!r}' for name, value in self._said.items())})"


def check_service_url(service_url: object, **options: tuple[object, object]) -> None:
    """ValueError for an invalid address, and for options (given, default) that an address of several clusters
    excludes; :class:`OperationNotSupported` for several clusters.
    """
    if isinstance(service_url, ServiceInfoProvider):
        check_type(ServiceInfo, service_url.initial_service_info(), "service_url")
    elif not isinstance(service_url, ServiceInfo | AutoClusterFailover):
        check_type(str, service_url, "service_url")
        return
    for name, (value, default) in options.items():
        if value != default:
            raise ValueError(f"argument {name}: give it in the ServiceInfo instead")
    raise OperationNotSupported(
        f"{type(service_url).__name__}: a root is one folder without failover: give its URL 'delta:<root>'"
    )


def refuse_credentials(authentication: object, **options: tuple[object, object]) -> None:
    """:class:`InvalidConfiguration` for credentials and for connection options (given, default) that differ from their
    defaults; ValueError for other objects.
    """
    check_type_or_none(Authentication, authentication, "authentication")
    if authentication is not None:
        raise InvalidConfiguration(f"authentication cannot be used here: {WHY_NO_CREDENTIALS}")
    for name, (value, default) in options.items():
        if value is not None and value != default:
            raise InvalidConfiguration(f"{name}={value!r} cannot be used here: {WHY_NO_CREDENTIALS}")

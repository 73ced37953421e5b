"""Tenants and namespaces. Both are folders: a tenant has nothing but its namespaces, and no settings."""

from pulsar_spark.admin.policies import Policies
from pulsar_spark.client.arguments import check_type
from pulsar_spark.errors import NamespaceNotFound, NotAllowedError
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.suggestions import close_names, did_you_mean
from pulsar_spark.protocol.topics.topic_name import DEFAULT_NAMESPACE, check_name, parse_namespace
from pulsar_spark.storage.topics.namespaces import check_namespace
from pulsar_spark.storage.topics.topics import create_namespace, delete_topic, list_topics, prepare_root

_DEFAULT = "/".join(DEFAULT_NAMESPACE)


class Namespaces(Policies):
    """Part of ``Admin`` for tenants and namespaces. *tenant* is the name of a tenant."""

    def tenants(self) -> list[str]:
        """The tenants, also those without a namespace; ``public`` always exists."""
        return sorted({*self.layout.tenants(), DEFAULT_NAMESPACE[0]})

    def create_tenant(self, tenant: str) -> None:
        """Create a *tenant* without namespaces; :class:`NotAllowedError` if it exists. Creating a namespace creates its
        tenant, too."""
        check_name("tenant", tenant)
        prepare_root(self.layout)
        if tenant in self.tenants():
            raise NotAllowedError(f"tenant {tenant!r} exists already")
        self.layout.make_tenant(tenant)

    def delete_tenant(self, tenant: str) -> None:
        """Delete a *tenant*; :class:`NotAllowedError` if it has namespaces."""
        check_name("tenant", tenant)
        require_root(self.layout)
        if tenant not in self.tenants():
            known = did_you_mean(close_names(tenant, self.tenants()))
            raise NamespaceNotFound(f"tenant {tenant!r} does not exist: give one that 'tenants list' shows{known}")
        if found := self.namespaces(tenant):
            raise NotAllowedError(f"tenant {tenant!r} has namespaces ({', '.join(found[:5])}): delete them first")
        self.layout.remove_tenant(tenant)

    def create_namespace(self, namespace: str) -> None:
        """Create the *namespace* and its tenant; :class:`NotAllowedError` if it exists."""
        create_namespace(self.layout, namespace)

    def namespaces(self, tenant: str | None = None) -> list[str]:
        """All namespaces, or those of a *tenant*; ``public/default`` always exists."""
        made = {*self.layout.namespaces(), DEFAULT_NAMESPACE}
        return sorted("/".join(pair) for pair in made if tenant in (None, pair[0]))

    def delete_namespace(self, namespace: str, force: bool = False) -> None:
        """Delete the *namespace* with its policies, for which the call needs the broker.

        :class:`NotAllowedError` if it has topics, unless *force*, which deletes them too; and for ``public/default``.
        """
        check_type(bool, force, "force")
        require_root(self.layout)
        tenant, name = check_namespace(self.layout, namespace)
        if namespace == _DEFAULT:
            raise NotAllowedError(f"namespace {_DEFAULT!r} always exists: delete its topics and policies instead")
        topics = list_topics(self.layout, tenant, name)
        if topics and not force:
            raise NotAllowedError(
                f"namespace {namespace!r} has {len(topics)} topic{'s' * (len(topics) != 1)}, such as "
                f"{str(topics[0].name)!r}: delete them first, or force the deletion"
            )
        self._empty(namespace)
        self.layout.remove_namespace(tenant, name)

    def reset_namespace(self, namespace: str) -> None:
        """Delete all topics and policies of a namespace; a missing namespace is created."""
        tenant, name = parse_namespace(namespace)
        prepare_root(self.layout)
        self.layout.make_namespace(tenant, name)
        self._empty(namespace)

    def _empty(self, namespace: str) -> None:
        """Delete the topics and policies of an existing namespace."""
        for topic in list_topics(self.layout, *parse_namespace(namespace)):
            delete_topic(self.layout, topic.name)
        if policies := self.get_policies(namespace):
            self.remove_policies(namespace, *policies)

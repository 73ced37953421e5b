"""Namespaces of a root, and suggestions for misspelt topics and namespaces."""

from pulsar_spark.errors import NamespaceNotFound
from pulsar_spark.protocol.suggestions import close_names, did_you_mean
from pulsar_spark.protocol.topics.topic_name import DEFAULT_NAMESPACE, TopicName, parse_namespace
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of


def check_namespace(layout: Layout, namespace: str) -> tuple[str, str]:
    """``tenant/namespace`` as a pair; :class:`NamespaceNotFound` if it does not exist."""
    pair = parse_namespace(namespace)
    if not layout.has_namespace(*pair) and not _has_policy(layout, namespace):
        raise NamespaceNotFound(
            f"namespace {namespace!r} does not exist: create it with 'pulsar-spark namespaces create "
            f"{namespace}', or create a topic in it{namespace_hint(layout, pair)}"
        )
    return pair


def _has_policy(layout: Layout, namespace: str) -> bool:
    return any(
        owner == namespace for bundle in layouts_of(layout) for owner, _ in read_latest(bundle, "policy").policies
    )


def namespace_hint(layout: Layout, pair: tuple[str, str]) -> str:
    return did_you_mean(map("/".join, _close_namespaces(layout, pair)))


def topic_hint(layout: Layout, name: TopicName) -> str:
    """Suggestions for a missing topic, to end an error's text: similar names, else the same name anywhere."""
    there = layout.topics(name.tenant, name.namespace)
    found = [name._replace(local_name=each) for each in _close_topics(name, there)]
    if not found:
        found = [
            name._replace(tenant=pair[0], namespace=pair[1], local_name=each)
            for pair in _close_namespaces(layout, name[:2])
            for each in _close_topics(name, layout.topics(*pair))
        ]
    if not found:
        found = [
            each
            for pair in layout.namespaces()
            if (each := name._replace(tenant=pair[0], namespace=pair[1])) != name and layout.topic(each).is_dir()
        ]
    return did_you_mean(map(str, found[:3]))


def _close_namespaces(layout: Layout, pair: tuple[str, str]) -> list[tuple[str, str]]:
    known = {"/".join(each): each for each in {*layout.namespaces(), DEFAULT_NAMESPACE} - {pair}}
    return [known[each] for each in close_names("/".join(pair), known)]


def _close_topics(name: TopicName, there: list[TopicName]) -> list[str]:
    """Local names of similar topics; a partition counts as its topic."""
    return close_names(name.partitioned_topic.local_name, (each.local_name for each in there))

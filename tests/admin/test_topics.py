"""Topics as an administrator sees them; none of this needs a broker."""

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import InvalidConfiguration, InvalidTopicName, NotAllowedError, NotARoot, TopicNotFound

NAMESPACE = "acme/billing"
ORDERS, PLAIN = "persistent://acme/billing/orders", "persistent://acme/billing/plain"


@pytest.fixture
def admin(tmp_path):
    """Of a root with a namespace."""
    admin = Admin(f"delta:{tmp_path / 'root'}")
    admin.create_namespace(NAMESPACE)
    return admin


def test_a_namespace_is_made_by_itself_or_with_its_first_topic(tmp_path):
    admin = Admin(f"delta:{tmp_path / 'root'}")
    assert admin.namespaces() == ["public/default"] and not (tmp_path / "root").exists()
    admin.create_namespace(NAMESPACE)
    admin.create_topic("persistent://acme/other/t")
    for again in (NAMESPACE, "acme/other", "public/default"):
        with pytest.raises(NotAllowedError, match="exists already"):
            admin.create_namespace(again)
    assert admin.namespaces() == ["acme/billing", "acme/other", "public/default"]
    assert (admin.namespaces("acme"), admin.namespaces("nobody")) == (["acme/billing", "acme/other"], [])


@pytest.mark.parametrize("namespace", ["acme", "a/b/c", "../up", "a b/c", "/", None])
def test_what_is_no_namespace_is_refused(admin, namespace):
    with pytest.raises(InvalidTopicName):
        admin.create_namespace(namespace)
    assert admin.namespaces() == [NAMESPACE, "public/default"]


def test_topics_are_created_listed_described_and_deleted(admin):
    admin.create_partitioned_topic(ORDERS, 2)
    admin.create_topic(PLAIN)
    assert admin.topics(NAMESPACE) == [f"{ORDERS}-partition-0", f"{ORDERS}-partition-1", PLAIN]
    assert admin.list_partitioned_topics(NAMESPACE) == [ORDERS]
    assert admin.list_topics() == [{"topic": ORDERS, "partitions": 2}, {"topic": PLAIN, "partitions": 0}]
    assert admin.partitioned_topic_metadata(ORDERS) == {"partitions": 2}
    described = admin.describe(PLAIN)
    assert (described["partitions"], described["messages"], described["subscriptions"]) == (0, {-1: 0}, [])
    admin.delete_topic(ORDERS)
    assert admin.topics(NAMESPACE) == [PLAIN]


def test_resetting_a_namespace_leaves_it_empty_and_others_alone(admin):
    admin.create_topic(PLAIN)
    admin.create_topic("persistent://acme/other/kept")
    admin.reset_namespace(NAMESPACE)
    assert admin.topics(NAMESPACE) == []
    assert admin.topics("acme/other") == ["persistent://acme/other/kept"]


@pytest.mark.parametrize(
    "topic", ["../../escape", "a b/n/t", "o'brien/n/t", " \n", "x" * 300, "non-persistent://a/b/c"]
)
def test_hostile_names_are_refused_and_change_nothing(admin, topic):
    admin.create_topic(PLAIN)
    with pytest.raises(InvalidTopicName):
        admin.create_topic(topic)
    assert [found["topic"] for found in admin.list_topics()] == [PLAIN]


def test_what_cannot_be_done_says_so(admin, tmp_path):
    with pytest.raises(NotARoot, match="not a root of pulsar_spark"):
        Admin(f"delta:{tmp_path / 'none'}").topics(NAMESPACE)
    admin.create_topic(PLAIN)
    with pytest.raises(NotAllowedError, match="exists already"):
        admin.create_topic(PLAIN)
    with pytest.raises(TopicNotFound, match="does not exist"):
        admin.delete_topic(ORDERS)
    with pytest.raises(InvalidConfiguration, match="at least 1"):
        admin.create_partitioned_topic(ORDERS, 0)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    with pytest.raises(NotARoot, match="files of another program"):
        Admin(f"delta:{tmp_path / 'foreign'}").create_topic("t")
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["notes.txt"]

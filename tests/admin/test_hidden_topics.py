"""A topic whose name means a partition of another is refused by name, whichever of the two comes first."""

import contextlib
import threading

import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli.main import app
from pulsar_spark.errors import NotAllowedError, TopicNotFound
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import topics
from pulsar_spark.storage.topics.topics import create_topic, list_topics, read_topic


@pytest.fixture
def admin(root_url):
    return Admin(f"delta:{root_url}")


def made(root_url) -> list[str]:
    return [topic.name.local_name for topic in list_topics(Layout(root_url), "public", "default")]


@pytest.mark.parametrize("index", [0, 1, 2, 17, 123456789])
def test_a_partitioned_topic_hides_no_topic(admin, root_url, index):
    admin.create_topic(f"x-partition-{index}")
    with pytest.raises(NotAllowedError, match=f"'persistent://public/default/x' cannot .*x-partition-{index}'.*delete"):
        admin.create_partitioned_topic("x", 2)
    assert made(root_url) == [f"x-partition-{index}"]
    admin.delete_topic(f"x-partition-{index}")
    admin.create_partitioned_topic("x", 2)


@pytest.mark.parametrize("index", [0, 1, 2, 17])
def test_a_topic_is_not_made_where_a_partitioned_one_hides_it(admin, root_url, index):
    admin.create_partitioned_topic("x", 2)
    for make in (admin.create_topic, lambda name: admin.create_partitioned_topic(name, 3)):
        with pytest.raises(NotAllowedError, match=f"x-partition-{index}' cannot be created.*choose another name"):
            make(f"x-partition-{index}")
    assert made(root_url) == ["x"]


def test_names_that_only_look_like_it_are_free(admin, root_url):
    names = ["x-partition-", "x-partition-01", "x-partition--1", "x-partition-a", "xx-partition-0", "-partition-0"]
    for name in names:
        admin.create_topic(name)
    admin.create_topic("acme/other/x-partition-0")
    admin.create_partitioned_topic("x", 2)
    admin.create_topic("plain")
    admin.create_topic("plain-partition-0")
    assert set(made(root_url)) == {*names, "x", "plain", "plain-partition-0"}


def test_a_partition_that_is_added_hides_no_topic(admin, root_url, monkeypatch):
    admin.create_partitioned_topic("x", 2)
    with monkeypatch.context() as earlier:  # an earlier release made it
        earlier.setattr(topics, "check_not_hidden", lambda *_: None)
        create_topic(Layout(root_url), "x-partition-3")
    with pytest.raises(NotAllowedError, match="cannot have 4 partitions.*x-partition-3"):
        admin.update_partitioned_topic("x", 4)
    assert read_topic(Layout(root_url), "x").partitions == 2


def test_of_two_that_are_made_at_a_time_one_is_refused(root_url):
    layout = Layout(root_url)
    create_topic(layout, "t")
    for number in range(5):
        base, refused, together = f"x{number}", [], threading.Barrier(2)

        def make(name, partitions, refused=refused, together=together):
            together.wait(60)
            try:
                create_topic(layout, name, partitions)
            except NotAllowedError:
                refused.append(name)

        threads = [threading.Thread(target=make, args=given) for given in ((base, 2), (f"{base}-partition-0", 0))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert refused


def test_clients_and_the_command_line_make_none(root_url, admin):
    admin.create_partitioned_topic("x", 2)
    with contextlib.closing(pulsar.Client(f"delta:{root_url}")) as client:
        for make in (client.create_producer, lambda name: client.create_reader(name, pulsar.MessageId.earliest)):
            with pytest.raises(TopicNotFound, match="has 2 partitions, 0 to 1"):
                make("x-partition-7")
        client.create_producer("x-partition-1").send(b"to the partition")
        client.create_producer("y-partition-0").send(b"m")
    assert made(root_url) == ["x", "y-partition-0"]
    run = CliRunner().invoke(app, ["topics", "create", "y", "--partitions", "2", "--root", str(root_url)])
    assert isinstance(run.exception, NotAllowedError)


@pytest.mark.parametrize("name", ["dead_letter_topic", "retry_letter_topic"])
def test_a_letter_topic_that_would_be_hidden_is_refused(root_url, admin, name):
    admin.create_partitioned_topic("x", 2)
    admin.create_topic("t")
    policy = pulsar.ConsumerDeadLetterPolicy(3, **{name: "x-partition-7"})
    with contextlib.closing(pulsar.Client(f"delta:{root_url}", operation_timeout_seconds=5)) as client:
        with pytest.raises(NotAllowedError, match="x-partition-7' of subscription 's' cannot exist.*2 partitions"):
            client.subscribe(
                "t", "s", consumer_type=pulsar.ConsumerType.Shared, dead_letter_policy=policy, retry_enable=True
            )
    assert made(root_url) == ["t", "x"]

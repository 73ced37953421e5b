"""Finding topics made, deleted and made again beside a running broker, for the price of a stat per topic that is
known."""

from deltalake import DeltaTable

from pulsar_spark.broker.bundle import topics as topics_module
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, read_topic
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def make_anew(engine: SparkEngine) -> None:
    delete_topic(engine.layout, TOPIC)
    engine.create_topic(TOPIC)


def lose_first_commit(engine: SparkEngine) -> None:
    """As log clean-up does."""
    path = read_topic(engine.layout, TOPIC).path
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{0:020d}.json").unlink()


def test_definitions_are_read_of_new_topics_only(tmp_path, monkeypatch):
    engine, read = new_engine(None, tmp_path), []
    monkeypatch.setattr(
        topics_module, "read_topic", lambda layout, name: (read.append(name.local_name), read_topic(layout, name))[1]
    )
    for number in range(5):
        create_topic(engine.layout, f"t{number}")
        engine.round([], 0)
    assert read == [f"t{number}" for number in range(5)]
    assert engine.rounds.bundle.topics.keys() == {f"persistent://public/default/t{number}" for number in range(5)}


def test_a_topic_made_again_is_another(tmp_path):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.create_subscription("Earliest")], 0)
    for _ in range(2):
        before = read_topic(engine.layout, TOPIC)
        make_anew(engine)
        engine.round([], 0)
        state = engine.rounds.bundle.topics[TOPIC]
        assert (state.topic, state.end_position(-1)) == (read_topic(engine.layout, TOPIC), 0)
        assert state.topic.topic_id != before.topic_id
        assert engine.subscriptions(TOPIC) == [] == list(engine.rounds.bundle.cursors)
        engine.publish(TOPIC, -1, [1])
        engine.round([ON.create_subscription("Earliest")], 0)
        assert engine.subscriptions(TOPIC) == ["s"]


def test_a_topic_whose_first_commit_is_gone_from_the_log_stays_and_is_known_when_made_again(tmp_path):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.create_subscription("Earliest")], 0)
    lose_first_commit(engine)
    engine.create_topic("persistent://public/default/other")
    engine.round([], 0)
    assert engine.subscriptions(TOPIC) == ["s"]
    engine.start()
    engine.create_topic("persistent://public/default/third")
    engine.round([], 0)
    assert engine.subscriptions(TOPIC) == ["s"], "nor does a broker that starts now take it for another"
    make_anew(engine)
    engine.round([], 0)
    assert engine.subscriptions(TOPIC) == [] == list(engine.rounds.bundle.cursors)

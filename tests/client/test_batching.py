"""Which messages of a producer share an entry."""

from pulsar_spark.protocol.topics.batching import BatchContainer


def test_closes_at_the_number_of_messages():
    container = BatchContainer(max_messages=2, max_bytes=1000)
    assert [container.add(message, 1, None, now=5) for message in "abc"] == [[], [["a", "b"]], []]
    assert container.opened_at == 5
    assert container.close() == [["c"]]
    assert container.opened_at is None
    assert container.close() == []


def test_a_message_that_does_not_fit_any_more_starts_a_batch():
    container = BatchContainer(max_messages=100, max_bytes=10)
    assert [container.add(message, 6, None, now=0) for message in "ab"] == [[], [["a"]]]
    assert container.close() == [["b"]]


def test_a_message_at_the_limit_goes_alone():
    container = BatchContainer(max_messages=100, max_bytes=10)
    assert container.add("small", 1, None, now=0) == []
    assert container.add("large", 10, None, now=0) == [["small"], ["large"]]


def test_key_based_batches_close_together_in_the_order_of_their_first_messages():
    container = BatchContainer(max_messages=4, max_bytes=1000, is_key_based=True)
    sent = [("k2", "a"), ("k1", "b"), ("k2", "c"), (None, "d")]
    assert [container.add(message, 1, key, now=0) for key, message in sent] == [[], [], [], [["a", "c"], ["b"], ["d"]]]


def test_no_limit_of_messages():
    container = BatchContainer(max_messages=0, max_bytes=1000)
    assert not any(container.add(message, 1, None, now=0) for message in range(900))
    assert container.close() == [list(range(900))]

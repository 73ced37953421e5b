"""Who was fenced stays so: a producer that had a topic for itself publishes nothing once another has claimed it."""

import pytest

from pulsar_spark.errors import ProducerFenced
from pulsar_spark.storage.topics.exclusive import ExclusiveClaim
from pulsar_spark.storage.topics.topics import create_topic

TOPIC = "persistent://public/default/t"


def test_it_stays_fenced_when_the_other_has_left(layout):
    path = create_topic(layout, TOPIC).path
    ours, theirs, newcomer = (ExclusiveClaim(path, TOPIC, name) for name in ("ours", "theirs", "newcomer"))
    assert ours.take() and ours.check() is None
    assert theirs.take(is_fencing=True)
    theirs.release()
    with pytest.raises(ProducerFenced, match="'theirs'"):
        ours.check()
    assert newcomer.check() is None, "nobody has the topic for himself any more"

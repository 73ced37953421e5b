"""DataFrames on a root in an object store: what is published is there once, consumed by key, and looked at."""

import pytest

from tests.frames.on_s3 import CHUNKED, KEYS, MESSAGES
from tests.support.applications import said_by
from tests.support.object_store import asking, new_root

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def said(s3_url, tmp_path_factory):
    """What came of it: all in one application, because to start one takes longer than the rest."""
    with asking(s3_url):
        return said_by("tests.frames.on_s3", new_root(), str(tmp_path_factory.mktemp("s3")))


def test_what_is_published_is_stored_once(said):
    """A transaction that is there is not made again, and neither are messages of a producer's name and number."""
    found = said["published"]
    assert found["said"] == [MESSAGES, 0, MESSAGES] and found["stored"] == [[MESSAGES, MESSAGES]] * 2
    assert said["deduplicated"] == {"said": [50, 30], "stored": [80, 80]}
    assert found["by_spark"] == MESSAGES, "a topic is a Delta table for everybody"


def test_chunks_become_messages(said):
    assert said["published"]["chunked"] == [2500 + number for number in range(CHUNKED)]


def test_streams_publish(said):
    count, different = said["streamed"]
    assert count == different > 0


def test_consumers_get_each_message_once_and_a_key_stays_with_one(said):
    found = {"errors": [], "different": MESSAGES, "deliveries": MESSAGES, "keys": [KEYS, 0], "client": MESSAGES}
    assert said["consumed"] == found and said["set_aside"] == 0


def test_views_and_tables_by_name(said):
    assert said["looked_at"] == {"views": [3, True, True], "by_name": MESSAGES, "the_same": True}


def test_spark_leaves_nothing_beside_the_files(said):
    assert said["left"] == []

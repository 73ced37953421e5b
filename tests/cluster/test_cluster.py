"""Publishing, dealing, consuming and sending back on a cluster whose executors are killed while they work, on a disk
that all of it sees and in an object store: nothing is lost, and nothing there twice."""

import pytest

from tests.cluster.on_a_cluster import CHUNKED, KEYS, LETTERS, MESSAGES
from tests.support.applications import said_by
from tests.support.object_store import LOCAL, S3, asking, new_root

SIZES = [2500 + number for number in range(CHUNKED)]
pytestmark = pytest.mark.java


@pytest.fixture(scope="module", params=[LOCAL, S3])
def said(request, tmp_path_factory):
    """What came of it: all in one application a place, because to start one takes longer than the rest."""
    folder = tmp_path_factory.mktemp("cluster")
    if request.param == LOCAL:
        return said_by("tests.cluster.on_a_cluster", str(folder / "root"), str(folder))
    with asking(request.getfixturevalue("s3_url")):
        return said_by("tests.cluster.on_a_cluster", new_root(), str(folder))


def test_a_publish_whose_executor_is_killed_stores_each_message_once(said):
    assert said["published"] == {"was_killed": True, "said": MESSAGES, "stored": MESSAGES, "different": MESSAGES}


def test_consumers_whose_executors_are_killed_get_each_message_once(said):
    """A task that is lost is run again, so the functions see nothing of it; a key stays with its consumer."""
    found = dict(said["consumed_by_key"])
    assert found.pop("was_killed") >= 1
    assert found == {"errors": [], "different": MESSAGES, "most_often": 1, "redelivered": 0, "keys": [KEYS, 0]}


def test_chunks_become_messages_where_the_driver_is_not(said):
    assert said["chunked"] == SIZES


def test_a_job_that_sends_letters_back_sends_each_once(said):
    """Though its executor was killed half-way."""
    assert said["sent_back"] == {"was_killed": True, "sent": LETTERS, "stored": LETTERS, "different": LETTERS}


def test_no_subscription_is_to_blame_for_an_executor(said):
    assert said["set_aside"] == 0

"""Publishing, dealing, consuming and sending back on a cluster whose executors are killed while they work: nothing is
lost, and nothing there twice."""

import pytest

from tests.applications import said_by
from tests.cluster.on_a_cluster import CHUNKED, KEYS, LETTERS, MESSAGES

SIZES = [2500 + number for number in range(CHUNKED)]
pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What came of it: all in one application, because to start one takes longer than the rest."""
    return said_by("tests.cluster.on_a_cluster", str(tmp_path_factory.mktemp("cluster")))


def test_a_publish_whose_executor_is_killed_stores_each_message_once(said):
    assert said["published"] == {"was_killed": True, "said": MESSAGES, "stored": MESSAGES, "different": MESSAGES}


def test_consumers_whose_executors_are_killed_get_each_message_once(said):
    """A task that is lost is run again, so the functions see nothing of it; a key stays with its consumer."""
    found = said["consumed_by_key"]
    assert found.pop("was_killed") >= 1
    assert found == {"errors": [], "different": MESSAGES, "most_often": 1, "redelivered": 0, "keys": [KEYS, 0]}


def test_chunks_become_messages_where_the_driver_is_not(said):
    assert said["chunked"] == SIZES


def test_a_job_that_sends_letters_back_sends_each_once(said):
    """Though its executor was killed half-way."""
    assert said["sent_back"] == {"was_killed": True, "sent": LETTERS, "stored": LETTERS, "different": LETTERS}


def test_no_subscription_is_to_blame_for_an_executor(said):
    assert said["set_aside"] == 0

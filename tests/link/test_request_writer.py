"""Clients leave requests behind, and the broker who follows them leaves what makes their table quick to open."""

import json
import threading

from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.storage import checkpoints
from pulsar_spark.storage.checkpoints import last_checkpoint
from pulsar_spark.storage.scan import dataset_of
from pulsar_spark.storage.topics import prepare_root
from pulsar_spark.table_specs import REQUESTS
from tests.client.waiting import eventually
from tests.plain_broker import PlainBroker


def test_a_client_makes_no_checkpoint_of_requests_and_the_broker_does(layout, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 5)
    prepare_root(layout)
    path, writer = layout.broker_table(REQUESTS.name), RequestWriter(layout, lambda: True)
    for number in range(7):
        assert writer.write([dict(request_id=f"a{number}", kind="flow")]) == number + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]
    assert last_checkpoint(path) == (0, 0)
    with PlainBroker(layout.root) as broker:
        eventually(lambda: last_checkpoint(path)[0] == 7)
        for number in range(9):
            writer.write([dict(request_id=f"b{number}", kind="flow")])
        eventually(lambda: broker.rounds.bundle.requests_version == 16)
        eventually(lambda: last_checkpoint(path)[0] >= 10)
    told = json.loads((path / "_delta_log" / "_last_checkpoint").read_text())
    assert told["size"] >= told["version"]
    assert dataset_of(path).to_table().num_rows == 16

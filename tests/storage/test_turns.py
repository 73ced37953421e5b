"""Many who append to one table at once: each row is there once, and who finds its version taken waits for a turn."""

import threading

from pulsar_spark.storage.definitions import create_table
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.table_lock import turn
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.table_specs import REQUESTS

WRITERS, COMMITS = 8, 5


def _row(name: str) -> list[dict]:
    return [{"request_id": name, "kind": "keep_alive", "client_id": "c"}]


def test_all_who_append_at_once_come_to_a_version_of_their_own(tmp_path):
    create_table(tmp_path / "requests", REQUESTS)
    start, versions = threading.Barrier(WRITERS), []

    def append(number: int) -> None:
        table = AppendTable(tmp_path / "requests", makes_checkpoints=False)
        start.wait(60)
        for count in range(COMMITS):
            versions.append(table.append(REQUESTS.rows(_row(f"{number}-{count}"))))

    writers = [threading.Thread(target=append, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert sorted(versions) == list(range(1, WRITERS * COMMITS + 1))
    assert TableLog(tmp_path / "requests").latest() == WRITERS * COMMITS


def test_who_waits_for_a_turn_is_in_nobody_s_way_who_finds_a_version_free(tmp_path):
    create_table(tmp_path / "requests", REQUESTS)
    first, second = (AppendTable(tmp_path / "requests", makes_checkpoints=False) for _ in range(2))
    assert first.append(REQUESTS.rows(_row("a"))) == 1
    with turn(tmp_path / "requests"):
        assert first.append(REQUESTS.rows(_row("b"))) == 2
        second._known = 0
        waiting, found = threading.Event(), []

        def append() -> None:
            waiting.set()
            found.append(second._commit([], {}))

        writer = threading.Thread(target=append)
        writer.start()
        waiting.wait(60)
        assert first.append(REQUESTS.rows(_row("c"))) == 3
    writer.join(60)
    assert found == [4]

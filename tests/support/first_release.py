"""The root that the first release left (``tests/broker/first_release``), for tests that go on with it."""

import tarfile
from pathlib import Path

from pulsar_spark.storage.delta.log import TableLog, read_actions
from pulsar_spark.storage.layout import Layout

ARCHIVE = Path(__file__).parents[1] / "broker" / "first_release" / "root.tar.gz"
ORDERS, FLIGHTS = "persistent://public/default/orders", "persistent://public/default/flights"
TOPICS = (FLIGHTS, "persistent://public/default/from-client", ORDERS)


def unpack(folder: Path) -> Layout:
    """The root, in *folder*, and beside it ``state.json``: what its cursors are like."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it since 3.11.4
        archive.extractall(folder)
    return Layout(folder / "root")


def admitted_by_first_release(layout: Layout) -> set[int]:
    """What the first release looks at before it does anything: the layout versions in the first commits of the
    broker's tables, of which it admits 1 alone."""
    return {_version(layout.broker_table(name)) for name in ("requests", "cursor_ledger", "ledgers")}


def _version(table: Path) -> int:
    from pulsar_spark.storage.delta.definitions import parse_definition

    [found] = [action["metaData"] for action in read_actions(TableLog(table).file(0)) if "metaData" in action]
    return parse_definition(table, found["description"], found["id"]).layout_version

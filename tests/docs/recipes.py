"""What the recipes leave: the tables that their programs write, and nothing that is not acknowledged."""

from collections import Counter
from pathlib import Path

from pulsar_spark.admin import Admin
from pulsar_spark.frames import read_messages

ROOT = "pulsar-root"


def _rows(names: dict, path: str) -> list:
    return names["spark"].read.format("delta").load(path).collect()


def _backlogs(*topics: str) -> list[int]:
    stats = [Admin(f"delta:{ROOT}").stats(topic) for topic in topics]
    return [each["msgBacklog"] for of_topic in stats for each in of_topic["subscriptions"].values()]


def _forget_last_commit(checkpoint: str) -> None:
    """As if the driver had ended after the sink's commit and before the checkpoint's."""
    commits = Path(checkpoint, "commits")
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / f"{last}", commits / f".{last}.crc"):
        path.unlink(missing_ok=True)


def windows(names: dict) -> None:
    counted = Counter(row.partition_key for row in _rows(names, "windows"))
    assert counted == {"customer-0": 21, "customer-1": 21}
    assert sum(row["count"] for row in _rows(names, "windows")) == 105
    assert _backlogs("orders") == [0]


def join_topics(names: dict) -> None:
    rows = _rows(names, "paid-orders")
    assert sorted((row.id, row.item, row.amount) for row in rows) == sorted(
        (f"{id_}", f"item-{id_}", "20 EUR") for id_ in range(0, 60, 2)
    )
    assert _backlogs("orders", "payments") == [0, 0]


def merge(names: dict) -> None:
    def changes() -> dict:
        return {row.customer: (row.price, row.changes) for row in _rows(names, "latest")}

    numbers = {f"customer-{key}": range(key, 100, 7) for key in range(7)}
    expected = {customer: (max(each), len(each)) for customer, each in numbers.items()}
    assert changes() == expected
    _forget_last_commit("merge-checkpoint")
    names["run"]()
    assert changes() == expected
    assert {row.customer: row.price for row in _rows(names, "prices")} == {
        customer: price for customer, (price, _) in expected.items()
    }
    assert _backlogs("prices") == [0, 0]


def enrich(names: dict) -> None:
    rows = read_messages(names["spark"], ROOT, "orders-enriched").collect()
    assert len(rows) == 100 and len({row.payload for row in rows}) == 100
    with_country = {row.partition_key for row in rows if row.properties == {"country": "de"}}
    assert with_country == {f"customer-{number}" for number in range(5)}
    assert _backlogs("orders") == [0]


def many_topics(names: dict) -> None:
    for name in ("orders", "payments", "returns"):
        rows = _rows(names, f"lake/shop-{name}")
        assert sorted(row.text for row in rows) == sorted(f"{name} {number}" for number in range(10))
    assert _backlogs("shop-orders", "shop-payments", "shop-returns") == [0, 0, 0]


def delta_stream(names: dict) -> None:
    assert sorted(int(row.text) for row in _rows(names, "plain-orders")) == [*range(100)]
    assert _backlogs("orders") == []


RESULTS = {
    f"docs/how-to/recipes/{check.__name__.replace('_', '-')}.md": check
    for check in (windows, join_topics, merge, enrich, many_topics, delta_stream)
}
"""By page, the check of what its program left; it gets the program's names."""

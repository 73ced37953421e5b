"""The table writer, with fixed figures."""

import json

import pytest

from tests.benchmarks.figures import COUNT, PER_SECOND, SECONDS, Budget, Figure
from tests.benchmarks.table import write

FIGURES = [
    Figure(
        "rounds",
        "round, 1 message",
        SECONDS,
        [0.5, 0.1, 0.3],
        budget=Budget(0.5),
        parts={"plan": 0.2, "commit": 0.0301},
    ),
    Figure("rounds", "round, 10 messages", SECONDS, [1.5, 0.75], budget=Budget(0.9)),
    Figure(
        "publish",
        "publish",
        PER_SECOND,
        [700_000, 150_000, 900_000],
        "plain append",
        [1_000_000, 500_000, 1_000_000],
        Budget(0.7, is_most=False, is_ratio=True),
    ),
    Figure(
        "backlog",
        "consume",
        PER_SECOND,
        [100_000],
        "plain read",
        [1_234_567],
        Budget(0.5, is_most=False, is_ratio=True),
    ),
    Figure("latency", "publish to receive, p99", SECONDS, [index / 100 for index in range(1, 101)], share=0.99),
    Figure("key_shared", "rows of state", COUNT, [1, 1057, 12], budget=Budget(20_000)),
]


@pytest.fixture
def written(tmp_path):
    write(tmp_path / "out", {"cores": "2", "date": "2024-05-17"}, FIGURES)
    return tmp_path / "out"


def test_markdown(written):
    assert (
        (written / "benchmarks.md").read_text()
        == """\
- cores: 2
- date: 2024-05-17

| what | figure | runs | compared with | ratio | budget |  |
| --- | --- | --- | --- | --- | --- | --- |
| round, 1 message | 300 ms | 3: 100 ms to 500 ms |  |  | at most 500 ms | met |
| round, 10 messages | 1.12 s | 2: 750 ms to 1.5 s |  |  | at most 900 ms | missed by 25% |
| publish | 700,000 /s | 3: 150,000 /s to 900,000 /s | plain append: 1,000,000 /s | 0.70 | at least ratio 0.7 | met |
| consume | 100,000 /s | 1: 100,000 /s to 100,000 /s | plain read: 1,230,000 /s | 0.08 | at least ratio 0.5 | missed by 84% |
| publish to receive, p99 | 990 ms | 100: 10 ms to 1 s |  |  |  |  |
| rows of state | 12 | 3: 1 to 1,060 |  |  | at most 20,000 | met |

| what | where the time goes (medians) |
| --- | --- |
| round, 1 message | plan 200 ms, commit 30.1 ms |
"""
    )


def test_json(written):
    found = json.loads((written / "benchmarks.json").read_text())
    assert found["machine"] == {"cores": "2", "date": "2024-05-17"}
    publish = found["figures"][2]
    assert publish == {
        "family": "publish",
        "what": "publish",
        "value": 700_000,
        "unit": "/s",
        "share": 0.5,
        "runs": [700_000, 150_000, 900_000],
        "other": "plain append",
        "other_value": 1_000_000,
        "other_runs": [1_000_000, 500_000, 1_000_000],
        "ratio": 0.7,
        "budget": {"limit": 0.7, "is_most": False, "is_ratio": True},
        "missed_by": 0.0,
        "parts": {},
    }
    assert [figure["missed_by"] for figure in found["figures"]] == [0.0, 0.25, 0.0, pytest.approx(0.838), None, 0.0]


def test_the_ratio_is_of_pairs_not_of_medians():
    """A machine that slows down half-way slows both of a pair."""
    figure = Figure("publish", "publish", PER_SECOND, [80, 80, 40, 41, 40], "plain append", [100, 100, 50, 50, 50])
    assert figure.ratio == 0.8

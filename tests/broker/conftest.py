"""Roots that the broker's tests share: one with a topic, and one with something ill in it."""

import pytest

from tests.broker.hostile import HostileRoot
from tests.support.spark_engine import SparkEngine, new_engine


@pytest.fixture
def engine(root_url) -> SparkEngine:
    """Real rounds, planned without Spark, on a root with one topic."""
    engine = new_engine(None, root_url)
    engine.create_topic("persistent://public/default/t")
    return engine


@pytest.fixture
def hostile(tmp_path) -> HostileRoot:
    return HostileRoot(tmp_path / "root")

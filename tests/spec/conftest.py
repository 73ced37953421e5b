"""Which engines the specification runs on, and the one history a file's cases share.

``model`` is the reference broker. ``spark`` is the real one: ``tests.spark_engine`` offers ``new_engine(spark, root) -> engine`` with the model's methods
(create_topic, publish, round, state, subscriptions); while that module is missing its tests are skipped, and say so.
"""
from importlib.util import find_spec

import pytest

from tests.model import Model
from tests.spec.history import play

HAS_SPARK_ENGINE = find_spec("tests.spark_engine") is not None


@pytest.fixture(scope="module", params=[
    "model", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.skipif(not HAS_SPARK_ENGINE, reason="there is no tests/spark_engine.py")])])
def history(request, tmp_path_factory):
    """What happened to every case of the file, by the case's name."""
    if request.param == "model":
        return play(Model(), request.module.CASES)
    from tests.spark_engine import new_engine
    engine = new_engine(request.getfixturevalue("spark"), tmp_path_factory.mktemp(request.module.__name__.rpartition(".")[2]))
    return play(engine, request.module.CASES)

"""Which engines the specification runs on, and the one history a file's cases share.

``model`` is the reference broker. ``spark`` is the real one: ``tests.spark_engine`` offers ``new_engine(spark, root) ->
engine`` with the model's methods (create_topic, publish, round, state, subscriptions); while that module is missing its
tests are skipped, and say so.
"""

from importlib.util import find_spec

import pytest

from tests.model import Model
from tests.spec.history import play

HAS_SPARK_ENGINE = find_spec("tests.spark_engine") is not None


@pytest.fixture(
    scope="module",
    params=[
        "model",
        pytest.param(
            "spark",
            marks=[
                pytest.mark.spark,
                pytest.mark.skipif(not HAS_SPARK_ENGINE, reason="there is no tests/spark_engine.py"),
            ],
        ),
    ],
)
def history(request, tmp_path_factory):
    """What happened to every case of the file, by the case's name. A file whose cases are about a broker's OPTIONS has
    a broker for each of them."""
    cases, options = request.module.CASES, getattr(request.module, "OPTIONS", {})
    shared = [[case] for case in cases] if options else [cases]
    if request.param == "model":
        return {name: happened for several in shared for name, happened in play(Model(**options), several).items()}
    from tests.spark_engine import new_engine

    spark, folder = request.getfixturevalue("spark"), request.module.__name__.rpartition(".")[2]
    return {
        name: happened
        for several in shared
        for name, happened in play(new_engine(spark, tmp_path_factory.mktemp(folder), **options), several).items()
    }

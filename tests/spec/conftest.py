"""Which engines the specification runs on, and the one history a file's cases share.

``model`` is the reference broker. ``spark`` is the real one, and ``plain`` is it too, but for the plan, which is made
without Spark.
"""

import pytest

from tests.spec.history import play
from tests.support.model import Model
from tests.support.spark_engine import new_engine


@pytest.fixture(scope="module", params=["model", "plain", pytest.param("spark", marks=pytest.mark.spark)])
def history(request, tmp_path_factory):
    """What happened to every case of the file, by the case's name. A file whose cases are about a broker's OPTIONS has
    a broker for each of them."""
    cases, options = request.module.CASES, getattr(request.module, "OPTIONS", {})
    shared = [[case] for case in cases] if options else [cases]
    if request.param == "model":
        return {name: happened for several in shared for name, happened in play(Model(**options), several).items()}
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    folder = request.module.__name__.rpartition(".")[2]
    return {
        name: happened
        for several in shared
        for name, happened in play(new_engine(spark, tmp_path_factory.mktemp(folder), **options), several).items()
    }

"""Which messages a compaction keeps, and where they lie."""

import pytest

from tests.spec.compaction.history import Case, on_reference, on_tables

CASES = [
    Case(
        "the latest of a key",
        source="AbstractTwoPhaseCompactor.phaseOne, phaseTwo",
        says="""
        Of each key the latest message stays, in its place.""",
        table="""
        | publish             | view        |
        | a=1 b=1 a=2 c=1 b=2 | a=2@2 c=1@3 b=2@4 |
    """,
    ),
    Case(
        "a tombstone",
        source="PublishingOrderCompactor.compactMessage, test_null_value_compaction of the package",
        says="""
        A message without a payload, null or empty, takes its key out of the view, and does not stay itself; a later one brings it back.""",
        table="""
        | publish                     | view        |
        | a=1 a=- b=1 b= c=1 c=- c=2  | c=2@6       |
        | c= b=3                      | b=3@8       |
    """,
    ),
    Case(
        "without a key",
        source="topicCompactionRetainNullKey, false since 4.0",
        says="""
        A message without a key does not stay.""",
        table="""
        | publish     | view  |
        | =1 a=1 =2   | a=1@1 |
        | =3          | a=1@1 |
    """,
    ),
    Case(
        "again",
        source="Compactor: it reads the compacted view, and what follows",
        says="""
        The next compaction goes on from the view there is: what stays of it keeps its place.""",
        table="""
        | publish     | view              |
        | a=1 b=1 c=1 | a=1@0 b=1@1 c=1@2 |
        | b=2 d=1     | a=1@0 c=1@2 b=2@3 d=1@4 |
        | a=-         | c=1@2 b=2@3 d=1@4 |
    """,
    ),
    Case(
        "in batches",
        source="RawBatchConverter.rebatchMessage",
        says="""
        Messages of a batch are judged one by one, and keep the entry and batch index.""",
        table="""
        | publish                       | view                 |
        | [a=1 b=1 a=2] c=1 [b=2 =1 d=] | a=2@0{2} c=1@1 b=2@2{0} |
        | [c=- b=3]                     | a=2@0{2} b=3@3{1}    |
    """,
    ),
    Case(
        "in chunks",
        source="ours: Pulsar's compactor takes each chunk for a message",
        says="""
        A chunked message is one message, in the place of its last chunk, and stays or goes as a whole.""",
        table="""
        | publish                    | view              |
        | a=111222/2 b=111222333/3   | a=111222@1 b=111222333@4 |
        | a=444555666/3 b=1          | a=444555666@7 b=1@8 |
        | a=1                        | b=1@8 a=1@9       |
    """,
    ),
    Case(
        "compressed",
        source="AbstractTwoPhaseCompactor.extractKeyAndSize: by the uncompressed size",
        says="""
        What is compressed stays so, and is a tombstone where it was nothing before.""",
        table="""
        | publish                       | view                        |
        | a=aaaaaaaaaaaaaaaa~ b=1 b=~   | a=aaaaaaaaaaaaaaaa@0        |
    """,
    ),
    Case(
        "encrypted",
        source="the key of a message is not encrypted; extractKeyAndSize",
        says="""
        What is encrypted goes by its key, and stays encrypted; nothing, encrypted, is a tombstone.""",
        table="""
        | publish               | view  |
        | ~a=1 ~a=2 b=1 ~b=     | a=2@1 |
    """,
    ),
    Case(
        "nothing stays",
        source="the same",
        says="""
        A view may be empty, and what comes is compacted as ever.""",
        table="""
        | publish | view  |
        | a=1 a=- |       |
        | a=2     | a=2@2 |
    """,
    ),
]


@pytest.fixture(scope="module", params=["reference", "plain", pytest.param("spark", marks=pytest.mark.spark)])
def views(request, tmp_path_factory):
    """What the view of each case was, row by row."""
    if request.param == "reference":
        return on_reference(CASES)
    by_spark = None
    if request.param == "spark":
        from pulsar_spark.broker.compaction import compaction_plan
        from pulsar_spark.broker.compaction.compaction_job import SparkCompaction

        patch = pytest.MonkeyPatch()
        request.addfinalizer(patch.undo)
        patch.setattr(compaction_plan, "SMALL_MESSAGES", 0)
        by_spark = SparkCompaction(request.getfixturevalue("spark"))
    return on_tables(tmp_path_factory.mktemp("survivors") / "root", CASES, by_spark)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_survivors(case, views):
    assert views[case.name] == [view for _, view in case.rows]

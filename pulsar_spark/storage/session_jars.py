"""Jars that a Spark session needs beside Spark's own: Delta's, and for a root in S3 those of Hadoop's client of it.

They come from Spark's own resolver the first time, and are given as local files from then on: no look at a package
registry at each start. Of Delta only two are resolved (``delta-spark`` and ``delta-storage``; the rest of what its
artifact names is in Spark or serves other catalogs), because Spark puts every resolved jar on the Python workers'
``sys.path``, where each Python task reads all their directories again: 0.5 s a task with all forty, 0.2 s with two. Of
Amazon's library come only the parts that Hadoop's client calls; Hadoop names all of it, 600 MB.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pyspark

SDK_VERSION = "2.35.4"
"""Of Amazon's library, with which Hadoop's client was built."""
SDK_PARTS = ("s3", "s3-transfer-manager", "sts")
_NOT_OF_DELTA = ("io.unitycatalog:*", "io.delta:delta-kernel*", "io.airlift:*")
_IN_SPARK = ("org.*:*", "com.*:*", "javax.*:*", "commons-*:*")
NOT_NEEDED = ",".join((*_NOT_OF_DELTA, *_IN_SPARK))
NOT_OF_STORE = (
    "software.amazon.awssdk:bundle",
    "org.apache.hadoop:hadoop-client*",
    "org.apache.hadoop:hadoop-common",
    "org.slf4j:*",
    "io.netty:*",
    "commons-*:*",
    "org.apache.httpcomponents:*",
)
"""All of Amazon's library in one jar, and what Spark has."""


def delta_artifact() -> str:
    """Delta's artifact for the installed Spark, as a resolver names it: ``group:artifact:version``."""
    spark_version = ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark_{spark_version}_2.13:{version('delta-spark')}"


def store_artifacts() -> list[str]:
    """What a resolver is to fetch for roots in S3, in the version of the Hadoop that is in the installed Spark."""
    in_spark = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop_version = next(re.sub(r".*-([\d.]+)\.jar", r"\1", jar.name) for jar in in_spark)
    parts = (f"software.amazon.awssdk:{part}:{SDK_VERSION}" for part in SDK_PARTS)
    return [f"org.apache.hadoop:hadoop-aws:{hadoop_version}", *parts]


def jar_settings(given: Mapping[str, str], *, for_store: bool = False) -> dict[str, str]:
    """Settings that say where the jars come from, beside those that are *given*."""

    def also(name: str, values: Sequence[object]) -> dict[str, str]:
        return {name: ",".join(filter(None, (given.get(name), *map(str, values))))}

    wanted = [delta_artifact(), *(store_artifacts() if for_store else ())]
    folders = [Path(given["spark.jars.ivy"])] if "spark.jars.ivy" in given else sorted(Path.home().glob(".ivy2*"))
    for folder in folders:
        jars = _resolved(folder / "jars", for_store)
        if jars is not None:
            return also("spark.jars", jars)
    what = "the jars of Delta Lake and of Hadoop's client of S3 (15 MB)" if for_store else "Delta Lake's jar"
    print(f"resolving {what}, first time only ...", file=sys.stderr, flush=True)
    if "spark.jars.packages" in given:
        return also("spark.jars.packages", wanted)
    excluded = {"spark.jars.excludes": ",".join((*_NOT_OF_DELTA, *NOT_OF_STORE)) if for_store else NOT_NEEDED}
    return also("spark.jars.packages", wanted) | excluded


def _resolved(folder: Path, for_store: bool) -> list[Path] | None:
    """The jars, None where some are missing: what these name in turn a resolver brings with them."""
    _, artifact, delta_version = delta_artifact().split(":")
    jars = [folder / f"io.delta_{name}-{delta_version}.jar" for name in (artifact, "delta-storage")]
    named = [folder / "{}_{}-{}.jar".format(*each.split(":")) for each in store_artifacts()] if for_store else []
    if not all(jar.is_file() for jar in [*jars, *named]):
        return None
    beside = ("software.amazon.", "org.reactivestreams_", "org.wildfly.")
    more = [jar for jar in sorted(folder.glob("*.jar")) if for_store and jar.name.startswith(beside)]
    return jars + named[:1] + [jar for jar in more if not _is_of_other_sdk(jar.name)]


def _is_of_other_sdk(jar: str) -> bool:
    """Did another release bring it, of which the same classes lie there in another version?"""
    return jar.startswith("software.amazon.awssdk_") and not jar.endswith(f"-{SDK_VERSION}.jar")

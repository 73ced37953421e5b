"""Jars that a Spark session needs: Delta's, and Hadoop's client of a root's object store.

Only needed parts are resolved, because every Python task reads all jars' directories.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyspark

from pulsar_spark.storage.store.store_kinds import AZURE, GOOGLE, S3, Kind

SDK_VERSION = "2.35.4"
"""The version of Amazon's library with which Hadoop's client was built."""
SDK_PARTS = ("s3", "s3-transfer-manager", "sts")
_NOT_OF_DELTA = ("io.unitycatalog:*", "io.delta:delta-kernel*", "io.airlift:*")
_IN_SPARK = ("org.*:*", "com.*:*", "javax.*:*", "commons-*:*")
NOT_NEEDED = ",".join((*_NOT_OF_DELTA, *_IN_SPARK))
NOT_OF_STORE = (
    "software.amazon.awssdk:bundle",
    "com.microsoft.azure:*",
    "org.apache.hadoop:hadoop-client*",
    "org.apache.hadoop:hadoop-common",
    "org.apache.hadoop.thirdparty:*",
    "org.slf4j:*",
    "io.netty:*",
    "commons-*:*",
    "org.apache.httpcomponents:*",
)
"""All of Amazon's library in one jar, a jar of Azure's that Hadoop's client does not call, and jars that Spark has."""


class ClientJars(NamedTuple):
    """Hadoop's client of a store: artifacts, name prefixes of jars that come with them, and megabytes with Delta's."""

    artifact: str
    parts: tuple[str, ...]
    beside: tuple[str, ...]
    megabytes: int


_CLIENTS = {
    S3: ClientJars(
        "hadoop-aws",
        tuple(f"software.amazon.awssdk:{part}:{SDK_VERSION}" for part in SDK_PARTS),
        ("software.amazon.", "org.reactivestreams_", "org.wildfly."),
        15,
    ),
    AZURE: ClientJars("hadoop-azure", (), ("org.wildfly.", "org.hdrhistogram_"), 11),
    GOOGLE: ClientJars("hadoop-gcp", (), (), 45),
}


def delta_artifact() -> str:
    """Delta's ``group:artifact:version`` for the installed Spark."""
    spark_version = ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark_{spark_version}_2.13:{version('delta-spark')}"


def store_artifacts(kind: Kind) -> list[str]:
    """Artifacts for roots in a store, in the installed Spark's Hadoop version."""
    in_spark = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop_version = next(re.sub(r".*-([\d.]+)\.jar", r"\1", jar.name) for jar in in_spark)
    client = _CLIENTS[kind]
    return [f"org.apache.hadoop:{client.artifact}:{hadoop_version}", *client.parts]


def package_settings(store: Kind | None = None) -> dict[str, str]:
    """Settings with which Spark downloads the jars; *store* is the root's."""
    wanted = [delta_artifact(), *(store_artifacts(store) if store else ())]
    excluded = ",".join((*_NOT_OF_DELTA, *NOT_OF_STORE)) if store else NOT_NEEDED
    return {"spark.jars.packages": ",".join(wanted), "spark.jars.excludes": excluded}


def jar_settings(given: Mapping[str, str], *, store: Kind | None = None) -> dict[str, str]:
    """Settings that name the jars, beside *given*; *store* is the root's."""

    def also(name: str, values: Sequence[object]) -> dict[str, str]:
        return {name: ",".join(filter(None, (given.get(name), *map(str, values))))}

    folders = [Path(given["spark.jars.ivy"])] if "spark.jars.ivy" in given else sorted(Path.home().glob(".ivy2*"))
    for folder in folders:
        jars = _resolved(folder / "jars", store)
        if jars is not None:
            return also("spark.jars", jars)
    what = "Delta Lake's jar"
    if store:
        what = f"the jars of Delta Lake and of Hadoop's client of {store.name} ({_CLIENTS[store].megabytes} MB)"
    print(f"resolving {what}, first time only ...", file=sys.stderr, flush=True)
    packages = package_settings(store)
    if "spark.jars.packages" in given:
        return also("spark.jars.packages", [packages["spark.jars.packages"]])
    return packages


def _resolved(folder: Path, store: Kind | None) -> list[Path] | None:
    _, artifact, delta_version = delta_artifact().split(":")
    jars = [folder / f"io.delta_{name}-{delta_version}.jar" for name in (artifact, "delta-storage")]
    named = [folder / "{}_{}-{}.jar".format(*each.split(":")) for each in store_artifacts(store)] if store else []
    if not all(jar.is_file() for jar in [*jars, *named]):
        return None
    beside = _CLIENTS[store].beside if store else ()
    more = [jar for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(beside)] if beside else []
    sdk, own = "software.amazon.awssdk_", f"-{SDK_VERSION}.jar"
    return jars + named[:1] + [jar for jar in more if not jar.name.startswith(sdk) or jar.name.endswith(own)]

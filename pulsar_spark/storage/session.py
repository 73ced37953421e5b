"""The Spark session: Delta configured, quiet, and with settings that keep rounds short.

An existing session is used if it has Delta. To publish messages of 100 MiB and more as DataFrames, set
``spark.driver.memory`` to eight times the largest plus a gigabyte; to read them, three times (see
frames.reading.chunk_payloads).
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.errors import InvalidConfiguration, JavaNotFound
from pulsar_spark.storage.delta.data_files import spark_writer_options
from pulsar_spark.storage.spark.hadoop_stores import store_settings
from pulsar_spark.storage.spark.java_process import quiet_start
from pulsar_spark.storage.spark.session_jars import delta_artifact, jar_settings, package_settings
from pulsar_spark.storage.store.root import on_databricks, parse_root
from pulsar_spark.storage.store.store import StrPath, store_of

JAVA_VERSIONS = (17, 21)
DEFAULT_MASTER = "local[2]"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
ROUND_JAVA_OPTIONS = "-Xss8m -XX:+UseSerialGC"
_SETTINGS = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": _CATALOG,
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
    JAVA_OPTIONS: "-Xss8m",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    **{f"spark.hadoop.{name}": value for name, value in spark_writer_options().items()},
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Page checksums find flipped bits of payloads; small row groups fit memory; a round needs over a hundred cached
classes.
"""
_LOCAL_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_ROUND_SETTINGS = {
    JAVA_OPTIONS: ROUND_JAVA_OPTIONS,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    **dict.fromkeys(("spark.sql.ui.retainedExecutions", "spark.ui.retainedJobs", "spark.ui.retainedStages"), "50"),
}
"""By default Spark keeps a thousand executions, with plans as text, for a web page."""


def spark_session(
    app_name: str = "pulsar_spark",
    *,
    master: str | None = None,
    settings: dict[str, str] | None = None,
    for_rounds: bool = False,
    root: StrPath | None = None,
) -> SparkSession:
    """The active session if it has Delta, else a new one.

    *settings* are added to this package's own, or to the active session if Spark allows it. Without *master*, Spark's
    configuration chooses it, else two local cores. *for_rounds* adds settings for small plans, on a sibling of an
    active session. A new session can read *root*'s object store.

    :class:`JavaNotFound` without a supported Java; :class:`InvalidConfiguration` without Delta, or for a setting that
    comes too late.
    """
    has_session = on_databricks() or "SPARK_REMOTE" in os.environ
    active = SparkSession.getActiveSession() or (SparkSession.builder.getOrCreate() if has_session else None)
    if active is not None:
        check_delta(active)
        return _adapted(active, settings or {}, for_rounds)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not is_submitted:
        _find_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    given = {**(dict(pyspark.SparkConf().getAll()) if is_submitted else {}), **(settings or {})}
    master = master or given.get("spark.master") or DEFAULT_MASTER
    place = None if root is None else parse_root(root)
    kind = None if place is None else store_of(place).spark_kind
    chosen = {
        **_SETTINGS,
        **(_LOCAL_SETTINGS if master.startswith("local") else {}),
        **(_round_settings(master) if for_rounds else {}),
        **({f"spark.hadoop.{name}": value for name, value in store_settings(kind).items()} if kind else {}),
        **given,
        **({} if is_submitted else jar_settings(given, store=kind)),
        "spark.master": master,
    }
    if not is_submitted and JAVA_OPTIONS not in given:
        chosen[JAVA_OPTIONS] += _archive_options(is_made=for_rounds)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with quiet_start(chosen):
        spark = builder.getOrCreate()
    check_delta(spark)
    return spark


def settings_to_submit(root: StrPath | None = None) -> dict[str, str]:
    """The settings that spark-submit needs before a job can set its own; *root* adds the jars of its object store."""
    store = None if root is None else store_of(parse_root(root)).spark_kind
    return {**_SETTINGS, **package_settings(store)}


def check_delta(spark: SparkSession) -> None:
    """:class:`InvalidConfiguration`, with the settings to give, unless the session can read and write Delta tables."""
    if on_databricks():
        return
    has_extension = _EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "").split(",")
    has_catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") == _CATALOG
    if not (has_extension and has_catalog):
        raise InvalidConfiguration(
            f"the Spark session does not know Delta Lake: start it with spark.jars.packages={delta_artifact()}, "
            f"spark.sql.extensions={_EXTENSION} and "
            f"spark.sql.catalog.spark_catalog={_CATALOG}, or stop it and let pulsar_spark start one"
        )


def side_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session of the same application with *settings* of its own."""
    session = spark.newSession()
    catalog = "spark.sql.catalog.spark_catalog"
    for name, value in {**settings, catalog: spark.conf.get(catalog, _CATALOG) or _CATALOG}.items():
        session.conf.set(name, value)
    return session


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """*table* as a frame with all rows: Spark would end it at Arrow's first empty chunk."""
    return spark.createDataFrame(table.combine_chunks())


def is_running(spark: SparkSession) -> bool:
    """Can the session still be used? True for one without a context."""
    context = spark._sc if has_context(spark) else None
    try:
        return context is None or (context._jsc is not None and not context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return False


def has_context(spark: SparkSession) -> bool:
    """Does the session belong to this process's JVM, and so can cache frames?"""
    return getattr(spark, "_sc", None) is not None


def check_context(spark: SparkSession, what: str) -> None:
    """:class:`InvalidConfiguration` for a Spark Connect session, since *what* needs Spark's JVM."""
    if not has_context(spark):
        raise InvalidConfiguration(
            f"{what} does not run through Spark Connect: give it a session with a SparkContext of its own, as "
            "pulsar_spark.storage.session.spark_session() starts one where SPARK_REMOTE is not set"
        )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def class_archive() -> Path:
    """Where the archive of Spark's classes lies, if made (see broker.service.class_archive). Other JVMs ignore it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pulsar_spark" / f"spark-{pyspark.__version__}-delta-{version('delta-spark')}.jsa"


def _archive_options(*, is_made: bool) -> str:
    """Options to use the archive, or to make it at the JVM's end if *is_made*."""
    path = class_archive()
    if re.search(r"\s", str(path)):
        return ""
    if _is_whole(path):
        return f" -XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds*=off"
    if not is_made:
        return ""
    path.parent.mkdir(parents=True, exist_ok=True)
    return f" -XX:ArchiveClassesAtExit={path} -Xlog:cds*=off"


def _is_whole(archive: Path) -> bool:
    """Is the archive there? Java writes its first bytes last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _round_settings(master: str) -> dict[str, str]:
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:, ?\d+)?\])?", master)
    cores = (
        {} if not found else {"spark.sql.shuffle.partitions": str(os.cpu_count() if found[1] == "*" else found[1] or 1)}
    )
    return {**_ROUND_SETTINGS, **cores}


def _adapted(active: SparkSession, settings: dict[str, str], for_rounds: bool) -> SparkSession:
    fixed = {
        name: value
        for name, value in settings.items()
        if not active.conf.isModifiable(name) and active.conf.get(name, None) != value
    }
    if fixed:
        raise InvalidConfiguration(
            f"settings {sorted(fixed)} cannot change while a Spark session is active: stop it, or start it with them"
        )
    spark = active
    if for_rounds:
        spark = side_session(active, {})
        settings = {**_round_settings(active.conf.get("spark.master", "") or ""), **settings}
    for name, value in settings.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def _find_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if _java_version(Path(home) / "bin" / "java" if home else Path("java")) in JAVA_VERSIONS:
        return
    places = [
        *Path("/usr/lib/jvm").glob("*"),
        *Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"),
        *(
            Path(prefix) / "opt" / f"openjdk@{java}"
            for prefix in ("/opt/homebrew", "/usr/local")
            for java in JAVA_VERSIONS
        ),
    ]
    for place in sorted(places):
        if _java_version(place / "bin" / "java") in JAVA_VERSIONS:
            os.environ["JAVA_HOME"] = str(place)
            return
    command = "brew install openjdk@17" if sys.platform == "darwin" else "apt-get install openjdk-17-jre-headless"
    raise JavaNotFound(f"Spark needs Java {' or '.join(map(str, JAVA_VERSIONS))}, which was not found: {command}")


def _java_version(java: Path) -> int | None:
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None

"""The settings files for spark-submit say what the package sets where it starts Spark itself, in names that Spark has;
the Databricks bundle gives the jobs arguments that they take."""

import importlib
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from py4j.protocol import Py4JJavaError

from pulsar_spark.storage import session
from pulsar_spark.storage.spark import session_jars
from pulsar_spark.storage.store.store_kinds import S3

PROJECT = Path(__file__).parents[2]
CONF = PROJECT / "conf"
LOCAL = CONF / "spark-defaults.conf"
CLUSTERS = [CONF / f"{name}.conf" for name in ("standalone", "yarn", "kubernetes")]
BUNDLE = CONF / "databricks" / "databricks.yml"
OF_ONE_MACHINE = {"spark.ui.enabled", "spark.ui.showConsoleProgress"}
ENTRIES = ["deploy.k8s.Config", "deploy.yarn.config.package", "internal.config.package", "internal.config.UI"]
"""The objects of Spark in which it names settings that are not of SQL."""
FAMILIES = [
    r"spark\.hadoop\.parquet\..+",
    r"spark\.databricks\.delta\..+",
    r"spark\.(executorEnv|yarn\.appMasterEnv)\.[A-Z_]+",
    r"spark\.kubernetes\.(driver|executor)\.volumes\.persistentVolumeClaim\.\w+\.(options\.claimName|mount\.path)",
    r"spark\.sql\.catalog\.\w+",
]
"""Settings whose names hold one of somebody else's."""


def settings_of(path: Path) -> dict[str, str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def test_the_file_says_what_a_root_in_a_store_takes(tmp_path):
    said = dict(line[1:].split(None, 1) for line in LOCAL.read_text().splitlines() if line.startswith("#spark."))
    assert said == session_jars.jar_settings({"spark.jars.ivy": str(tmp_path)}, store=S3)


@pytest.mark.parametrize("path", [LOCAL, *CLUSTERS], ids=lambda path: path.stem)
def test_the_file_and_the_session_agree(path):
    given = settings_of(path)
    for name in session._SETTINGS.keys() - (OF_ONE_MACHINE if path in CLUSTERS else set()):
        assert given[name] == session._SETTINGS[name]
    of_files = {name: value for name, value in settings_of(LOCAL).items() if name.startswith("spark.hadoop.parquet.")}
    assert of_files.items() <= given.items()
    assert given["spark.jars.excludes"] == session_jars.NOT_NEEDED
    assert given["spark.jars.packages"].endswith(f":{version('delta-spark')}")


@pytest.mark.parametrize("path", [LOCAL, *CLUSTERS], ids=lambda path: path.stem)
def test_spark_knows_each_setting_by_its_name(spark, path):
    java, config = spark._jvm, spark._jvm.org.apache.spark.internal.config.ConfigEntry
    for name in ENTRIES:  # a setting is known once the object that names it was made
        try:
            java.java.lang.Class.forName(f"org.apache.spark.{name}$")
        except Py4JJavaError as failed:
            pytest.fail(f"Spark has no {name}: {failed.java_exception}")
    of_sql = spark._jsparkSession.sessionState().conf()
    of_sql.isModifiable("spark.sql.session.timeZone")
    names = [name for name in settings_of(path) if not any(re.fullmatch(family, name) for family in FAMILIES)]
    assert [name for name in names if config.findEntry(name) is None] == ["spark.master"], "which has no entry"


def test_the_bundle_gives_each_job_what_it_takes():
    """With the defaults of its variables, and something for those without; every job has a task."""
    bundle = yaml.safe_load(BUNDLE.read_text())
    variables = {name: each.get("default", f"/data/{name}") for name, each in bundle["variables"].items()}
    found = {}
    for job in bundle["resources"]["jobs"].values():
        clusters = {each["job_cluster_key"] for each in job["job_clusters"]}
        tasks = {each["task_key"] for each in job["tasks"]}
        for task in job["tasks"]:
            assert task["job_cluster_key"] in clusters
            assert {each["task_key"] for each in task.get("depends_on", ())} <= tasks
            script = (BUNDLE.parent / task["spark_python_task"]["python_file"]).resolve(strict=True)
            arguments = [filled(each, variables) for each in task["spark_python_task"]["parameters"]]
            found[script.stem] = importlib.import_module(f"pulsar_spark.jobs.{script.stem}").parse_arguments(arguments)
    assert found.keys() == {path.stem for path in (PROJECT / "jobs").glob("*.py")}
    assert found["consume"].available_now and found["broker"].root == "/data/root"
    assert found["register_tables"].schema == ["public/default=broker"]


def test_the_bundle_sets_on_its_machines_what_the_session_sets():
    bundle = yaml.safe_load(BUNDLE.read_text())
    for job in bundle["resources"]["jobs"].values():
        given = job["job_clusters"][0]["new_cluster"]["spark_conf"]
        assert {name: value for name, value in given.items() if name in session._SETTINGS}.items() <= (
            session._SETTINGS.items()
        )
        assert all(isinstance(value, str) for value in given.values()), "Databricks takes texts only"


def filled(text: str, variables: dict[str, str]) -> str:
    """A parameter as Databricks gives it: variables of the bundle, and values of a run, which are numbers."""
    known = re.sub(r"\$\{var\.(\w+)\}", lambda found: variables[found[1]], text)
    assert "${" not in known
    return re.sub(r"\{\{job\.(run_id|start_time\.timestamp_ms)\}\}", "1700000000000", known)

"""A recipe of a declarative pipeline that Spark's own command does not run as the page shows it is found here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.spark import java_process
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.docs.pages import SITE

PAGE = SITE / "how-to" / "recipes" / "pipelines.md"
FILE = re.compile(r"```\w+\n# (\S+)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"```bash\n(.*?)```", re.DOTALL)


@pytest.mark.java
@pytest.mark.long
def test_the_pipeline_of_the_page_writes_its_table(tmp_path):
    pytest.importorskip("grpc", reason="pip install 'pyspark[pipelines]'")
    text = PAGE.read_text(encoding="utf-8").replace("/data/", f"{tmp_path}/")
    for name, content in FILE.findall(text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (command,) = COMMAND.findall(text)
    with PlainBroker(tmp_path / "pulsar") as broker:
        client = pulsar.Client(f"delta:{broker.layout.root}")
        producer = client.create_producer("orders")
        for number in range(5):
            producer.send(b"%d" % number, partition_key="c")
        client.close()
        run(command, tmp_path)
        backlog = Admin(f"delta:{broker.layout.root}").stats("orders")["subscriptions"]["billing"]["msgBacklog"]
    rows = dataset_of(tmp_path / "spark-warehouse" / "billed").to_table().to_pylist()
    assert sorted((row["text"], row["position"]) for row in rows) == [(str(number), number) for number in range(5)]
    assert backlog == 0


def run(command: str, folder: Path) -> None:
    tools, sources = Path(sys.executable).parent, [*filter(None, sys.path), str(java_process._SOURCES)]
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sources),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"

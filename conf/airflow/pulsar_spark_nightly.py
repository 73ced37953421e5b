"""An Airflow DAG that runs the jobs of a night. Copy it into the folder of DAGs, and set the four constants.

The machine of the tasks needs pulsar_spark and Java; a broker must run on the root. A task that fails may run again:
its app version or job id is that of the day, so nothing is published, written or sent twice.
"""

from datetime import datetime, timedelta, timezone

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

PYTHON, ROOT = "/opt/pulsar_spark/bin/python", "/data/pulsar"
TOPIC, TARGET = "orders", "/data/orders_raw"


def job(name: str, arguments: str) -> BashOperator:
    """The task that runs the job of that name."""
    return BashOperator(
        task_id=name, bash_command=f"{PYTHON} -m pulsar_spark.jobs.{name} --root {ROOT} {arguments}", append_env=True
    )


with DAG(
    "pulsar_spark_nightly",
    schedule="10 1 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    source = "/data/in/{{ ds }}.parquet"
    publish = job("publish", f"--topic {TOPIC} --source {source} --app-id nightly --app-version {{{{ ds_nodash }}}}")
    consume = job("consume", f"--topic {TOPIC} --subscription lake --target {TARGET} --available-now")
    letters = job("reprocess_dead_letters", f"--topic {TOPIC} --subscription lake --job-id nightly-{{{{ ds }}}}")
    compact = job("compact", "--namespace public/default --threshold 100M")
    maintain = job("maintain", "--trim --optimize --vacuum-hours 168 --checkpoint")
    publish >> consume >> [letters, compact] >> maintain

"""Compact topics: write the latest message of each key to the topic's compacted view. A broker may run meanwhile.

    python -m pulsar_spark.jobs.compact --root /data/pulsar --topic orders
    python -m pulsar_spark.jobs.compact \\
        --root /data/pulsar --namespace public/default --threshold 100M

Run it on a schedule: each compaction continues where the topic's last one ended. The job prints one line of JSON per
topic, and ends at the first topic that fails.
"""

import argparse
import json

from pulsar_spark.admin import Admin
from pulsar_spark.broker.compaction.compaction import uncompacted_bytes
from pulsar_spark.cli.common import errors_as_one_line, service_url
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.cli.policies.compaction import bytes_of
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import read_topic


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", action="append", help="a topic, or one partition; repeatable")
    which.add_argument("--namespace", help="compact the topics of 'tenant/namespace'")
    parser.add_argument(
        "--threshold", default="0", help="with --namespace: only topics with more uncompacted bytes than this"
    )
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    threshold, admin = bytes_of("--threshold", given.threshold), Admin(service_url(given.root))
    for topic in given.topic or [found["topic"] for found in admin.list_topics(given.namespace)]:
        if given.topic or uncompacted_bytes(admin.layout, read_topic(admin.layout, topic)) > threshold:
            status = admin.compact(topic, lambda: spark_session("pulsar_spark compact", root=given.root))
            print(json.dumps({"topic": topic, "status": status, **admin.stats(topic)["compaction"]}), flush=True)


if __name__ == "__main__":
    with errors_as_one_line():
        main()

"""A dashboard, an alert or a probe that names what nobody serves is found here."""

import json
import re
from pathlib import Path

import pytest
import typer
import yaml

from pulsar_spark.cli import app
from pulsar_spark.metrics import metrics
from pulsar_spark.metrics.exporter import Exporter
from pulsar_spark.metrics.server import listener, serving
from pulsar_spark.metrics.settings import LOOPBACK
from tests.metrics.test_server import ask
from tests.support.exposition import read_exposition
from tests.support.waiting import send

CONF = Path(__file__).parents[2] / "conf"
DASHBOARD = json.loads((CONF / "grafana" / "pulsar-spark.json").read_text(encoding="utf-8"))
RULES = [rule for group in yaml.safe_load((CONF / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
BROKER = yaml.safe_load((CONF / "kubernetes" / "broker.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]
VARIABLES = [each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *VARIABLES,
    *(rule["expr"] for rule in RULES),
]


def served_names() -> set[str]:
    found = {metric.name for metric in metrics.ALL}
    return found | {
        f"{metric.name}{end}" for metric in metrics.ALL if metric.type == "summary" for end in ("_sum", "_count")
    }


@pytest.fixture
def labels(pulsar_client, pulsar_broker) -> dict[str, set[str]]:
    """The labels of each metric of a broker with one subscription."""
    pulsar_client.subscribe("orders", "billing").close()
    send(pulsar_client, "orders", "a")
    pulsar_broker.settle()
    found = read_exposition(Exporter(pulsar_broker.layout.root).text())
    return {name: {label for of in family.samples for label, _ in of} for name, family in found.items()}


def test_expressions_name_what_is_served(labels):
    served = served_names()
    assert len(EXPRESSIONS) > 25
    for expression in EXPRESSIONS:
        names = re.findall(r"pulsar_\w+", expression)
        assert names and {*names} <= served, expression
        known = {
            label
            for name in names
            for label in labels[re.sub(r"_(sum|count)$", "", name) if name not in labels else name]
        }
        used = re.findall(r"(\w+)=~?\"", expression) + re.findall(r"label_values\(.*, (\w+)\)", expression)
        for by in re.findall(r"by \(([\w, ]+)\)", expression):
            used += by.split(", ")
        assert {*used} <= known, expression
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_texts_name_labels_that_are_there(labels):
    for rule in RULES:
        (name, *_) = re.findall(r"pulsar_\w+", rule["expr"])
        by = re.search(r"by \(([\w, ]+)\)", rule["expr"])
        known = {*by[1].split(", ")} if by else labels[name]
        assert {*re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])} <= known
        assert rule["labels"]["severity"] in ("warning", "critical")
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            wanted = {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])}
            name = re.search(r"pulsar_\w+", target["expr"])[0]
            assert wanted <= {"bundle", "reason", "step"} | labels.get(name, set())


def test_reasons_and_steps_in_expressions_are_those_served(labels):
    reasons = re.findall(r'reason=~"([\w|]+)"', " ".join(EXPRESSIONS))
    assert reasons and {each for found in reasons for each in found.split("|")} <= {*metrics.BLOCKED}


def test_panels_lie_apart():
    places = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
        for p in DASHBOARD["panels"]
        for x in range(p["gridPos"]["w"])
        for y in range(p["gridPos"]["h"])
    ]
    assert len(places) == len({*places}) and max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_deployment_starts_a_broker_and_asks_what_it_answers(pulsar_broker):
    program, name, *arguments = BROKER["command"]
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, arguments, resilient_parsing=True).params
    (port,) = BROKER["ports"]
    assert program == "pulsar-spark" and given["metrics_port"] == port["containerPort"]
    assert given["metrics_host"] == "0.0.0.0" and given["root"].startswith(BROKER["volumeMounts"][0]["mountPath"])
    with serving(Exporter(pulsar_broker.layout.root), listener(LOOPBACK, 0)) as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert BROKER[probe]["httpGet"]["port"] == port["name"]
            assert ask(server.server_address, BROKER[probe]["httpGet"]["path"])[0] == 200


def test_the_page_has_every_metric():
    page = (CONF.parent / "docs" / "how-to" / "prometheus.md").read_text(encoding="utf-8")
    names = {*re.findall(r"`(pulsar_\w+)`", page)}
    assert {metric.name for metric in metrics.ALL} - names == {"pulsar_spark_look_seconds"} and names <= served_names()

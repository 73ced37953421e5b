"""The Python client's speed: a backlog of 100 B messages in batches, received and acknowledged one by one, by consumers
in processes of their own; and what many consumers and many clients cost a broker.

A rate is that of all messages from the moment the consumers, which have subscribed, are let go until the last of them
was received, on a broker that is warm.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar_spark as pulsar
from pulsar_spark.demo.broker_process import BrokerProcess
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns
from tests.benchmarks.figures import PER_SECOND, Budget, Figure

FAMILY = "client"
KEYS = 1000
PROCESSES = 4
QUEUE = 1000
KEYED, PLAIN = "keyed", "plain"
RATE, KEYED_RATE = Budget(100_000, is_most=False), Budget(60_000, is_most=False)
GIVEN_BACK = Budget(2 / 3, is_most=False, is_ratio=True)


def measure(bench: Bench) -> Iterator[Figure]:
    messages, repeats = bench.few(100_000, 10**6), bench.few(1, 2)
    root = bench.new_folder(FAMILY) / "root"
    with BrokerProcess(root, bench.folder / "client.log"):
        rig = _Rig(bench, root, messages)
        for kind in ("Exclusive", "Failover", "Shared", "KeyShared"):
            (rates,) = in_turns(repeats, lambda: rig.rate(kind))
            budget = KEYED_RATE if kind == "KeyShared" else RATE
            yield rig.figure(f"{kind}, each acknowledged", rates, budget=budget)
        for kind in ("Shared", "KeyShared"):
            many, one = in_turns(
                repeats, lambda: rig.rate(kind, processes=PROCESSES), lambda: rig.rate(kind), warm_up=0
            )
            yield rig.figure(f"{kind}, {PROCESSES} processes, each acknowledged", many, "one process", one)
            some, none = in_turns(repeats, lambda: rig.rate(kind, "tenth"), lambda: rig.rate(kind))
            yield rig.figure(f"{kind}, a tenth given back once", some, "none given back", none, GIVEN_BACK)
        for way, what in (("listener", "by a listener, each acknowledged"), ("batch", "by batch_receive of 1,000")):
            (rates,) = in_turns(repeats, lambda: rig.rate("Shared", way), warm_up=0)
            yield rig.figure(f"Shared, {what}", rates, budget=RATE)


class _Rig:
    """A root with a backlog of *messages* on two topics, one with keys; each rate is a new subscription's on all of
    it."""

    def __init__(self, bench: Bench, root: Path, messages: int):
        self._bench, self._root, self._messages = bench, root, messages
        self._subscriptions = 0
        bench.say(f"client: sending {messages:,} messages twice")
        client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=120)
        for topic, batching in ((PLAIN, pulsar.BatchingType.Default), (KEYED, pulsar.BatchingType.KeyBased)):
            producer = client.create_producer(
                topic,
                batching_enabled=True,
                batching_type=batching,
                batching_max_messages=1000,
                max_pending_messages=50_000,
                block_if_queue_full=True,
            )
            for number in range(messages):
                producer.send_async(b"x" * PAYLOAD_BYTES, None, partition_key=f"key-{number % KEYS}")
            producer.flush()
        client.close()

    def rate(self, kind: str, way: str = "each", processes: int = 1) -> float:
        """Messages a second of a new subscription of that kind."""
        self._subscriptions += 1
        self._bench.say(f"client: {kind}, {way}, {processes} processes")
        topic = KEYED if kind == "KeyShared" else PLAIN
        given = [str(self._root), topic, f"s{self._subscriptions}", kind, way, str(QUEUE)]
        with ExitStack() as ending:
            consumers = [
                ending.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.benchmarks.client_process", *given],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                for _ in range(processes)
            ]
            for consumer in consumers:
                consumer.stdout.readline()
            began = time.time()
            for consumer in consumers:
                consumer.stdin.write("go\n")
                consumer.stdin.flush()
            found = [json.loads(consumer.stdout.readline()) for consumer in consumers]
        received = sum(each["messages"] for each in found)
        if received != self._messages:
            raise AssertionError(f"{received:,} of {self._messages:,} messages were received")
        return self._messages / (max(each["last"] for each in found) - began)

    def figure(self, what: str, rates: list[float], *compared_and_budget, **given) -> Figure:
        what = f"client, receive {self._messages:,} x {PAYLOAD_BYTES} B: {what}"
        return Figure(FAMILY, what, PER_SECOND, rates, *compared_and_budget, **given)

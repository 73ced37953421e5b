"""What all measurements share: Spark, a folder, how often to repeat, and the generated messages."""

import shutil
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.broker.planning.planner import Planner
from pulsar_spark.storage.session import spark_session

PAYLOAD_BYTES = 100
KEYS = 10_000


class Bench:
    """One run of the benchmark in *folder*, which must not be in use; *say* tells the user what is under way."""

    def __init__(self, folder: Path, is_quick: bool, say: Callable[[str], None]):
        self.folder, self.is_quick, self.say = folder, is_quick, say

    def few(self, quick: int, full: int) -> int:
        """A count that --quick makes smaller."""
        return quick if self.is_quick else full

    @cached_property
    def spark(self) -> SparkSession:
        self.say("starting Spark")
        return spark_session("pulsar_spark benchmarks", settings={"spark.sql.shuffle.partitions": "2"})

    @cached_property
    def planner(self) -> Planner:
        """One planner for all in-process rounds, on a session with a broker's settings: its plan is as warm for the
        last root as for the first."""
        master = self.spark.sparkContext.master
        self.say("preparing the round's plan")
        planner = Planner(spark_session(master=master, for_rounds=True), self.folder / "inputs")
        planner.warm_up()
        planner.compile()
        return planner

    def new_folder(self, name: str) -> Path:
        """A folder of that name, empty; what an earlier measurement left there is removed."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def messages(self, first: int, until: int) -> DataFrame:
        """Messages *first* to *until* - 1: a payload of :data:`PAYLOAD_BYTES` that does not compress well, and a
        key."""
        rows = self.spark.range(first, until, numPartitions=2)
        hashes = [F.hex(F.xxhash64("id", F.lit(word))) for word in range(PAYLOAD_BYTES // 16 + 1)]
        payload = F.substring(F.concat(*(F.lpad(part, 16, "0") for part in hashes)), 1, PAYLOAD_BYTES)
        return rows.select(
            payload.cast("binary").alias("payload"),
            F.concat(F.lit("key-"), (F.col("id") % KEYS).cast("string")).alias("partition_key"),
        )


def seconds(action: Callable[[], object]) -> float:
    """How long *action* takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def files_under(folder: Path) -> tuple[int, int]:
    """How many, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def resident_memory(pid: int | str = "self") -> int:
    """Bytes of a process that are in memory; of this one, without its JVM's."""
    with open(f"/proc/{pid}/statm") as status:
        return int(status.read().split()[1]) * 4096


def peak_memory(pid: int | str = "self") -> int:
    """The most that it was, since the process began or its peak was begun anew."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def warm_up(action: Callable[[], float]) -> None:
    """Repeat *action* until ten of its runs are at the median no more than a tenth quicker than the ten before: the JVM
    has compiled what matters."""
    before = float("inf")
    for _ in range(8):
        now = median(action() for _ in range(10))
        if now > 0.9 * before:
            return
        before = now


def in_turns(repeats: int, *actions: Callable[[], float], warm_up: int = 1) -> list[list[float]]:
    """What each action measured, in turns so that all see the same machine; the first *warm_up* turns are left out."""
    measured = [[action() for action in actions] for _ in range(warm_up + repeats)][warm_up:]
    return [list(values) for values in zip(*measured)]

"""Which modules know that a root may be a folder of a local disk: those of the door (storage.store), what a local disk
alone has, and what is of this machine only."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "pulsar_spark"
DOOR = {"storage/store/store", "storage/store/local_store", "storage/store/object_path", "storage/store/root"}
OF_THIS_MACHINE = {
    "broker/service/class_archive",
    "broker/planning/planner",
    "broker/service/source",
    "broker/service/stream",
    "broker/service/lease_keeper",
    "cli/messages/messages",
    "cli/monitor/root_stats",
    "cli/operations/processes",
    "cli/administration/schemas",
    "cli/messages/shown",
    "demo/billing",
    "demo/broker_process",
    "demo/consumers",
    "demo/flight_plan",
    "demo/flights",
    "demo/group",
    "demo/reminders",
    "demo/run",
    "documentation",
    "frames/sinks/delta_sink",
    "frames/sinks/target",
    "jobs/__main__",
    "storage/store/padded",
    "storage/session",
    "storage/spark/java_process",
    "storage/spark/session_jars",
    "storage/processes/this_machine",
    "testing/plugin",
}
"""Whose files are this machine's wherever a root lies: what people give and are given, jars, processes, what a plan or
a broker needs no longer than it runs."""
OF_LOCAL_DISKS = {"storage/store/durability", "storage/processes/held_file", "storage/delta/table_lock"}
"""What a local disk has and an object store has not: what is written is sure only once it was said so, and the lock on
a file goes with the process that holds it. In an object store each of them does nothing, or something else."""

CALLS = {"link", "rename", "replace", "stat", "lstat", "utime", "scandir", "listdir", "unlink", "mkdir", "open"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file.relative_to(PACKAGE).with_suffix("").as_posix(), ast.parse(file.read_text())


def knows_the_disk(module: ast.Module) -> bool:
    """Does it make a ``Path``, or name ``shutil``, ``fcntl``, or what ``os`` does to files? To ask whether something is
    a ``Path`` is to ask where it lies."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import) and {name.name for name in node.names} & {"pathlib", "shutil", "fcntl"}:
            return True
        made = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Attribute) else None
        if isinstance(made, ast.Name) and made.id == "Path":
            return True
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr in CALLS
        ):
            return True
    return False


def test_nobody_else_knows_the_disk():
    knowing = {name for name, module in modules() if knows_the_disk(module)} - DOOR - OF_THIS_MACHINE
    assert knowing - OF_LOCAL_DISKS == set(), "ask storage.store instead"
    assert OF_LOCAL_DISKS - knowing == set(), "they ask storage.store now: take them off the list"


def test_the_list_is_of_modules_that_are_there():
    assert (DOOR | OF_LOCAL_DISKS | OF_THIS_MACHINE) <= {name for name, _ in modules()}

"""Following a table's Delta log commit by commit, without a JVM and without opening the table.

A reader that knows version v asks whether ``v + 1`` exists (microseconds) and parses only that JSON file: this is what makes an idle topic cost a
look at its log version. Only commits are read, no checkpoints: who starts from nothing opens the table (see tables) or a projection instead.
Source: the Delta protocol, sections "Delta Log Entries" and "Actions".
"""
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from pulsar_spark.errors import DOCTOR, CorruptState

ENGINE = "pulsar_spark"
"""What commits of ours say who made them."""
_NO_STATS: dict = {}
TRIMMED = "trimmed/"
"""Transaction of a commit that trims a topic: this and the partition; its version is the last ledger that is gone."""


@dataclass(frozen=True)
class AddedFile:
    """One ``add`` action."""

    path: str
    size: int
    rows: int
    partition_values: dict[str, str | None]
    min_values: dict
    max_values: dict
    null_counts: dict


@dataclass(frozen=True)
class Commit:
    """One version. ``added`` holds data-changing adds only; ``removed`` counts data-changing removes."""

    version: int
    added: tuple[AddedFile, ...]
    removed: int
    transactions: dict[str, int] = field(default_factory=dict)
    is_overwrite: bool = False

    @property
    def trimmed(self) -> dict[int, int]:
        """Of each partition that was trimmed by it the last ledger that is gone."""
        return {int(app_id.removeprefix(TRIMMED)): ledger_id for app_id, ledger_id in self.transactions.items() if app_id.startswith(TRIMMED)}


class TableLog:
    """The log of one table, by path. Holds no state but the path; safe to share."""

    def __init__(self, table: str | os.PathLike):
        self.folder = Path(table) / "_delta_log"

    def _file(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def exists(self) -> bool:
        return self.folder.is_dir()

    def life(self) -> tuple[int, int] | None:
        """What tells the table from another that was made in its place: its first commit's file, for the price of a stat. None when log clean-up has taken that
        file; FileNotFoundError without a table."""
        try:
            found = os.stat(f"{self.folder}/{0:020d}.json")
        except FileNotFoundError:
            if not self.exists():
                raise
            return None
        return found.st_ino, found.st_mtime_ns

    def has(self, version: int) -> bool:
        return os.path.exists(f"{self.folder}/{version:020d}.json")

    def latest(self, known: int = -1) -> int:
        """The highest version, at least *known*; -1 for no table. Cheap when little came after *known*."""
        if known < 0 or not self.has(known):
            try:
                names = os.listdir(self.folder)
            except FileNotFoundError:
                return -1
            known = max((int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()), default=-1)
        while known >= 0 and self.has(known + 1):
            known += 1
        return known

    def earliest(self) -> int:
        """The lowest version whose commit file still exists; -1 for no table."""
        try:
            return min((int(name[:20]) for name in os.listdir(self.folder) if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()), default=-1)
        except FileNotFoundError:
            return -1

    def commit(self, version: int) -> Commit:
        """The commit of one version; :class:`CorruptState` when it is missing or unreadable."""
        try:
            actions = read_actions(self._file(version))
        except FileNotFoundError as missing:
            raise CorruptState(f"{self.folder.parent}: commit {version} is gone from the log: it was trimmed before it was "
                               f"read; {DOCTOR}") from missing
        except ValueError as broken:
            raise CorruptState(f"{self.folder.parent}: commit {version} is not a Delta commit ({broken}); "
                               f"{DOCTOR}") from broken
        added, removed, transactions, is_overwrite = [], 0, {}, False
        try:
            for action in actions:
                if add := action.get("add"):
                    if add.get("dataChange", True):
                        added.append(_added_file(add))
                elif remove := action.get("remove"):
                    removed += bool(remove.get("dataChange", True))
                elif transaction := action.get("txn"):
                    transactions[transaction["appId"]] = transaction["version"]
                elif info := action.get("commitInfo"):
                    is_overwrite = (info.get("operationParameters") or {}).get("mode") == "Overwrite"
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise CorruptState(f"{self.folder.parent}: commit {version} is not a Delta commit ({broken}); "
                               f"{DOCTOR}") from broken
        return Commit(version, tuple(added), removed, transactions, is_overwrite)

    def commits(self, after: int, until: int | None = None) -> Iterator[Commit]:
        """The commits above *after*, in order, up to the latest or *until*."""
        version = after + 1
        while (until is None or version <= until) and self.has(version):
            yield self.commit(version)
            version += 1


def read_actions(path: Path) -> list[dict]:
    """The actions of a commit's file. ValueError, with the cause in words, for one that is empty, as a power loss
    leaves it, cut off, or no commit at all."""
    lines = path.read_text().splitlines()
    actions = [json.loads(line) for line in lines if line.strip("\0 \t")]
    if not actions:
        raise ValueError(f"it holds nothing in {path.stat().st_size} bytes, as after a power loss")
    if other := next((action for action in actions if not isinstance(action, dict)), None):
        raise ValueError(f"a line is {type(other).__name__}, not an action")
    _check_whole(actions)
    return actions


def _check_whole(actions: list[dict]) -> None:
    """Commits of ours say how many files they name, so that one that was cut off between two lines is known."""
    info = actions[0].get("commitInfo")
    if not isinstance(info, dict) or info.get("engineInfo") != ENGINE:
        return
    metrics = info.get("operationMetrics")
    said = metrics.get("numFiles") if isinstance(metrics, dict) else None
    found = sum("add" in action or "remove" in action for action in actions)
    if said is not None and said != str(found):
        raise ValueError(f"it says {said} files and names {found}: it was cut off")


def _added_file(add: dict) -> AddedFile:
    stats = json.loads(add["stats"]) if add.get("stats") else _NO_STATS
    if "numRecords" not in stats:
        raise KeyError(f"no row count in the statistics of {add['path']!r}")
    return AddedFile(unquote(add["path"]), add["size"], stats["numRecords"], add.get("partitionValues") or {}, stats.get("minValues") or {},
                     stats.get("maxValues") or {}, stats.get("nullCount") or {})

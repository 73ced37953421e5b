"""Repair findings of :mod:`~pulsar_spark.storage.repair.examination`: broken commits or checkpoints, lost ledger rows.

A broken commit is written again from data files that no other commit names, found by the rest of its text, or by round
(``cursor_ledger``), publish id (topics), and age. The broken file stays under a hidden name.
"""

import contextlib
import functools
import json
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pulsar_spark.errors import CorruptState, InvalidConfiguration, NotAllowedError
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.delta.checkpoints import checkpoints
from pulsar_spark.storage.delta.commits import commit_text, replace_commit
from pulsar_spark.storage.delta.data_files import file_add, sync_files, write_files
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_lock import lock_where_there_is_one
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.delta.unnamed_files import Group, unnamed_files
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.renumbering import missing_numbers
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.repair.broken_log import broken_checkpoints, broken_commits
from pulsar_spark.storage.repair.examination import tables_of
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.table_specs import CURSOR_LEDGER, LEDGERS, MESSAGES

_CLOCK_SLACK_SECONDS = 2.0
_UNDER_WAY_SECONDS = 60 * 60
"""In an object store, younger files may belong to a running writer."""
_IDENTITY = {CURSOR_LEDGER.name: "round", MESSAGES.name: "publish_id"}
"""The column with one value in all rows of a commit."""


class Repaired(NamedTuple):
    """The result for one finding, and the files that the commit now names."""

    table: str
    version: int | None
    is_done: bool
    text: str
    files: tuple[str, ...] = ()


def repair_root(
    layout: Layout, table: str | None = None, *, files: Sequence[str] = (), forget: bool = False, dry_run: bool = False
) -> list[Repaired]:
    """Repair one table (a topic's full name or a broker's table) or all; *files* are those of the only broken commit.

    *forget* replaces a commit whose rows are lost by one without rows. :class:`NotAllowedError` while a broker serves
    the root.
    """
    for bundle in layouts_of(layout) if not dry_run else ():
        holder = BundleLease(bundle, "repair").sure_holder()
        if holder is not None:
            raise NotAllowedError(
                f"broker {holder.broker_id!r} (process {holder.pid} on {holder.host}) serves "
                f"{str(layout.root)!r}: stop it first"
            )
    chosen = [found for found in tables_of(layout) if table is None or table == found[0]]
    if not chosen:
        raise InvalidConfiguration(
            f"table {table!r}: give a topic's full name, such as "
            "'persistent://public/default/t', or requests, cursor_ledger, ledgers"
        )
    done = [
        mended for name, path, topic in chosen for mended in TableRepair(name, path, topic).mend(files, forget, dry_run)
    ]
    if table in (None, LEDGERS.name) and all(mended.is_done for mended in done) and not dry_run:
        for bundle in layouts_of(layout):
            done += _number_again(bundle)
    return done


class TableRepair:
    """Repairs one table's commits and checkpoints."""

    def __init__(self, name: str, path: AnyPath, topic: TopicName | None):
        self.name, self.path, self.log = name, path, TableLog(path)
        self.identity = _IDENTITY.get(MESSAGES.name if topic else name)

    @functools.cached_property
    def _broken(self) -> list[int]:
        return [version for version, _ in broken_commits(self.path)]

    @functools.cached_property
    def _unnamed(self) -> list[Group]:
        return unnamed_files(self.path, self.identity, set(self._broken)) if self._broken else []

    def restore(self, version: int, dry_run: bool) -> Repaired | None:
        """Write a broken commit again from its data files of one identity; None if unclear. Call it by version."""
        chosen = self._take(version)[0] if version in self._broken else None
        if chosen is None or chosen.identity in chosen.files:
            return None
        return self._replace(version, chosen, "", False, dry_run)

    def _take(self, version: int) -> tuple[Group | None, str]:
        chosen, why = self._choose(version, self._unnamed, len(self._broken))
        self._unnamed = [group for group in self._unnamed if group is not chosen]
        return chosen, why

    def mend(self, files: Sequence[str], forget: bool, dry_run: bool) -> Iterator[Repaired]:
        if self.log.latest() < 0:
            return
        with lock_where_there_is_one(self.path) if not dry_run else contextlib.nullcontext():
            broken = self._broken
            if broken and broken[0] == 0:
                text = "the first commit defines the table and is in no other file: restore it, or delete the folder"
                yield Repaired(self.name, 0, False, text)
                return
            if files and len(broken) != 1:
                raise InvalidConfiguration(
                    f"files {list(files)!r} of table {self.name!r}: it has {len(broken)} broken commits: give "
                    "files when there is only one"
                )
            for version in broken:
                chosen, why = (Group(None, tuple(files), 0), "") if files else self._take(version)
                yield self._replace(version, chosen, why, forget, dry_run)
            if not broken:
                yield from self._mend_checkpoints(dry_run)

    def _choose(self, version: int, groups: list[Group], broken: int) -> tuple[Group | None, str]:
        text = self._text(version)
        named = [group for group in groups if any(json.dumps(name)[1:-1] in text for name in group.files)]
        if len(named) == 1:
            return named[0], ""
        if self.name == CURSOR_LEDGER.name:
            wanted = self._round_of(version)
            groups = [group for group in groups if group.identity == wanted]
        with contextlib.suppress(FileNotFoundError):
            before = self.log.file(version).stat().st_mtime + _CLOCK_SLACK_SECONDS
            groups = [group for group in groups if group.written <= before]
        settled = groups
        if not store_of(self.path).is_local:
            settled = [group for group in groups if group.written < time.time() - _UNDER_WAY_SECONDS]
        if not settled:
            if groups:
                return None, "files of the last hour may be its own, or those of a running writer: run it again later"
            return None, "no file of the table has its rows: they are lost"
        groups = settled
        if len(groups) <= broken:
            return groups[0], ""
        if version == self.log.latest() or broken == 1:
            latest = groups[-1]
            since = self._time_of(version - 1)
            if since is not None and latest.written > since and all(group.written <= since for group in groups[:-1]):
                return latest, ""
        names = ", ".join(repr(name) for group in groups for name in group.files)
        return None, f"several files may be its own: {names}; look into them, and give the right ones with --file"

    def _round_of(self, version: int) -> int | None:
        """The round of a commit of ``cursor_ledger``; broken commits since the last readable one count as rounds."""
        passed = 1
        for before in range(version - 1, 0, -1):
            try:
                rounds = [file.max_values["round"] for file in self.log.commit(before).added]
            except (CorruptState, KeyError):
                passed += 1
                continue
            if rounds:
                return max(rounds) + passed
        return passed

    def _time_of(self, version: int) -> float | None:
        try:
            return self.log.file(version).stat().st_mtime
        except FileNotFoundError:
            return None

    def _text(self, version: int) -> str:
        try:
            return self.log.file(version).read_bytes().decode(errors="replace")
        except OSError as fault:
            if not (store_of(self.path).is_local or isinstance(fault, FileNotFoundError)):
                raise  # the store does not answer, so the commit may have text
            return ""

    def _replace(self, version: int, group: Group | None, why: str, forget: bool, dry_run: bool) -> Repaired:
        if group is None and not forget:
            if "--file" not in why and "later" not in why:
                why += "; 'pulsar-spark repair --forget' replaces it with a commit without rows, and readers continue"
            return Repaired(self.name, version, False, f"commit {version}: {why}")
        files = group.files if group else ()
        outcome = "repaired: it lists its files again" if group else "replaced by one without rows: its content is lost"
        if dry_run:
            return Repaired(self.name, version, True, f"commit {version} would be {outcome}", files)
        adds = [file_add(self.path, name) for name in files] if group else self._empty_round(version)
        replace_commit(self.path, version, commit_text(adds, self._transactions(version, group)))
        return Repaired(self.name, version, True, f"commit {version} is {outcome}", files)

    def _empty_round(self, version: int) -> list[dict]:
        """Rows of an empty ``cursor_ledger`` round, since letters need its number."""
        if self.name != CURSOR_LEDGER.name:
            return []
        for before in range(version - 1, 0, -1):
            with contextlib.suppress(CorruptState, FileNotFoundError):
                for row in read_round(self.path, before, ["round"]).to_pylist():
                    again = row | {"round": self._round_of(version), "is_snapshot": False}
                    adds = write_files(self.path, CURSOR_LEDGER.rows([again]), is_partitioned=False)
                    sync_files(self.path, adds)
                    return adds
        return []

    def _transactions(self, version: int, group: Group | None) -> dict[str, int]:
        """Readable transactions of the broken text, without which a retry would write twice."""
        found = {}
        for line in self._text(version).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                transaction = json.loads(line)["txn"]
                found[transaction["appId"]] = transaction["version"]
        return found if group else {}

    def _mend_checkpoints(self, dry_run: bool) -> Iterator[Repaired]:
        """Set broken checkpoints aside and make a new one, if all commits or a sound checkpoint exist."""
        broken = list(broken_checkpoints(self.path))
        if not broken:
            return
        sound = (each for each in checkpoints(self.path) if not set(broken).intersection(each.files))
        if self.log.earliest() > 0 and not any(self.log.has(each.version) for each in sound):
            text = "no checkpoint can be read, and earlier commits are missing from the log: restore one from a backup"
            yield Repaired(self.name, None, False, text)
            return
        if not dry_run:
            for file in [*broken, self.log.folder / "_last_checkpoint"]:
                if file.exists():
                    store_of(file).move(file, file.with_name(f".{file.name}.broken-{time.time_ns()}"))
            open_table(self.path).create_checkpoint()
        text = "a checkpoint that cannot be read is set aside" + ("" if dry_run else ", and another one made")
        yield Repaired(self.name, None, True, text)


def _number_again(layout: Layout) -> list[Repaired]:
    rows, lost = missing_numbers(layout)
    done = [Repaired(LEDGERS.name, None, False, text) for text in lost]
    if rows:
        AppendTable(layout.broker_table(LEDGERS.name)).append(LEDGERS.rows(rows))
        done.append(Repaired(LEDGERS.name, None, True, f"{len(rows)} rows are numbered again from the topics' logs"))
    return done

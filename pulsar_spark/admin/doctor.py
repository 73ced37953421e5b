"""A root's health: ``doctor`` and ``repair``, durability, and which broker serves it."""

import datetime
import time
from collections.abc import Sequence

from pulsar_spark.errors import CorruptState, NotARoot
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delay_index.delay_table import remove_index
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.processes.starting import starting
from pulsar_spark.storage.repair.examination import examine_root
from pulsar_spark.storage.repair.repair import Repaired, repair_root
from pulsar_spark.storage.store.durability import read_durability, write_durability
from pulsar_spark.storage.topics.bundles import bundles_of, layouts_of
from pulsar_spark.table_specs import BROKER_TABLES, DELAY_INDEX, REPROCESSING, SCHEMAS

_BROKERS = {spec.name for spec in (*BROKER_TABLES, REPROCESSING, SCHEMAS)}


class Doctor:
    """Part of ``Admin`` for a root's health."""

    layout: Layout
    _requester: Requester

    def broker_status(self) -> dict | None:
        """The broker that serves the root, or its first served bundle: ``broker_id``, ``host``, ``pid``, ``lease_ms``
        (until its lease ends), ``unserved`` (bundles without a broker).

        None if no broker serves any bundle; :class:`NotARoot` for a folder that is not a root.
        """
        require_root(self.layout)
        holders = {
            str(served): BundleLease(layout, "").holder()
            for served, layout in zip(bundles_of(self.layout).ranges, layouts_of(self.layout), strict=True)
        }
        holder = next(filter(None, holders.values()), None)
        if holder is None:
            return None
        return {
            "broker_id": holder.broker_id,
            "host": holder.host,
            "pid": holder.pid,
            "lease_ms": max(0, round((holder.until - time.time()) * 1000)),
            "unserved": [bundle for bundle, found in holders.items() if found is None],
        }

    def starting_broker(self) -> dict | None:
        """A broker of the root that is starting, or restarting its query: ``what`` it does, ``since`` (ISO 8601),
        ``pid``, ``host``, and all of it as ``text``. None if there is none."""
        require_root(self.layout)
        found = starting(self.layout)
        if found is None:
            return None
        since = datetime.datetime.fromtimestamp(found.since_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
        return {"what": found.what, "since": since, "pid": found.pid, "host": found.host, "text": str(found)}

    def doctor(self) -> list[dict]:
        """Check the root for damage: one row per finding. Changes nothing, and may run beside a broker.

        Columns: ``kind``, ``table``, ``path``, ``version``, ``text`` (its meaning) and ``command`` (the repair, or what
        to do by hand).
        """
        _require_any(self.layout)
        return [finding._asdict() for finding in examine_root(self.layout)]

    def repair(
        self, table: str | None = None, *, files: Sequence[str] = (), forget: bool = False, dry_run: bool = False
    ) -> list[dict]:
        """Repair the broken commits and checkpoints of *table* (a topic, or ``requests``, ``cursor_ledger``,
        ``ledgers``), or of all tables. Returns a row per repair: ``table``, ``version``, ``is_done``, ``text`` and
        ``files``.

        ``delay-index`` is rebuilt, even while a broker serves. *files* names the data files of the only broken commit,
        if they cannot be determined. With *forget* a commit whose data files are gone is replaced by one without rows.
        :class:`NotAllowedError` while a broker serves the root.
        """
        _require_any(self.layout)
        if table in (DELAY_INDEX.name, "delay-index"):
            return [self._rebuild_delay_index(dry_run)._asdict() | {"files": []}]
        name = table if table is None or table in _BROKERS else str(parse_topic_name(table))
        done = repair_root(self.layout, name, files=files, forget=forget, dry_run=dry_run)
        return [repaired._asdict() | {"files": list(repaired.files)} for repaired in done]

    def _rebuild_delay_index(self, dry_run: bool) -> Repaired:
        """Without a serving broker, remove it for the next one to rebuild."""
        bundles = layouts_of(self.layout)
        holder = next(filter(None, (BundleLease(bundle, "repair").sure_holder() for bundle in bundles)), None)
        if dry_run:
            return Repaired(DELAY_INDEX.name, None, True, "it would be rebuilt from the topics")
        if holder is None:
            for bundle in bundles:
                remove_index(bundle)
            return Repaired(DELAY_INDEX.name, None, True, "removed: the next broker rebuilds it from the topics")
        (reply,) = self._requester.ask([{"kind": "rebuild_delay_index"}])
        return Repaired(
            DELAY_INDEX.name,
            None,
            True,
            f"broker {holder.broker_id!r} rebuilds it from {reply.text} topics; the present index serves until then",
        )

    def get_durability(self) -> str:
        """``"fsync"`` (a finished write survives a power loss) or ``"none"``."""
        require_root(self.layout)
        return read_durability(self.layout.root)

    def set_durability(self, durability: str) -> None:
        """Set the *durability* of all appends from now on, also of running processes."""
        require_root(self.layout)
        write_durability(self.layout.root, durability)


def _require_any(layout: Layout) -> None:
    """:class:`NotARoot` for a folder without a bundle; a broken root passes."""
    try:
        require_root(layout)
    except CorruptState:
        return
    except NotARoot:
        if not layout.bundle_folder().is_dir():
            raise

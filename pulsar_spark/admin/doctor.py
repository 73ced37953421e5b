"""A root's health: ``doctor`` and ``repair`` (what is broken in its tables, and mending it), the durability of its
writes, and which broker serves it. No broker and no JVM is needed, and none is asked.

Every function gives rows, dicts of plain values, as ``--json`` prints them.
"""

import datetime
import time
from collections.abc import Sequence

from pulsar_spark.errors import CorruptState, NotARoot
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.protocol.topic_name import parse_topic_name
from pulsar_spark.storage.bundles import bundles_of, layouts_of
from pulsar_spark.storage.delay_table import remove_index
from pulsar_spark.storage.durability import read_durability, write_durability
from pulsar_spark.storage.examination import Finding, examine_root
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import BundleLease
from pulsar_spark.storage.migrations import migrate_by_hand
from pulsar_spark.storage.repair import Repaired, repair_root
from pulsar_spark.storage.starting import starting
from pulsar_spark.table_specs import BROKER_TABLES, DELAY_INDEX, REPROCESSING, SCHEMAS

MIGRATE = "pulsar-spark migrate"
_BROKERS = {spec.name for spec in (*BROKER_TABLES, REPROCESSING, SCHEMAS)}


class Doctor:
    """The part of :class:`~pulsar_spark.admin.Admin` that has to do with a root's health."""

    layout: Layout
    _requester: Requester

    def broker_status(self) -> dict | None:
        """``broker_id``, ``host``, ``pid`` and ``lease_ms`` (until when its lease holds unless it is renewed) of the
        broker that serves the root, or its first bundle that is served, and ``unserved``, the bundles that no broker
        serves (:meth:`bundles` says who serves which); None where none serves any. :class:`NotARoot` for a folder that
        is no root."""
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
        """A broker of the root that is on its way, or whose query is: ``what`` goes on, ``since`` (ISO 8601), ``pid``
        and ``host``, and all of it as a ``text``; None where none is."""
        require_root(self.layout)
        found = starting(self.layout)
        if found is None:
            return None
        since = datetime.datetime.fromtimestamp(found.since_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
        return {"what": found.what, "since": since, "pid": found.pid, "host": found.host, "text": found.told()}

    def doctor(self) -> list[dict]:
        """A row for each thing that is broken: ``kind``, ``table``, ``path``, ``version``, ``text`` (what it means) and
        ``command`` (what mends it, or what to do where no command does). None for a root that is sound. Changes
        nothing, and may run beside a broker."""
        _require_any(self.layout)
        findings = examine_root(self.layout)
        return [finding._asdict() for finding in findings or _older_layout(self.layout)]

    def migrate(self, *, dry_run: bool = False) -> dict:
        """Bring the root to this release's layout, as a broker of it does at its start: ``before`` and ``after``, the
        versions, ``brought``, what came with each version between, and ``changes``, a row for each table: ``table``,
        ``version``, ``columns`` that were added and ``error``, why a topic was left as it is. :class:`NotAllowedError`
        while a broker serves the root, unless in a dry run; :class:`OlderLayout` where the disk refuses."""
        require_root(self.layout)
        done = migrate_by_hand(self.layout, dry_run=dry_run)
        changes = [change._asdict() | {"columns": list(change.columns)} for change in done.changes]
        brought = [{"version": version, "what": what} for version, what in done.brought.items()]
        return {"before": done.before, "after": done.after, "brought": brought, "changes": changes}

    def repair(
        self, table: str | None = None, *, files: Sequence[str] = (), forget: bool = False, dry_run: bool = False
    ) -> list[dict]:
        """Mend the commits and checkpoints that are broken: of *table* (a topic, or ``requests``, ``cursor_ledger``,
        ``ledgers``), or all; or have ``delay-index`` made anew, also while a broker serves. A row for each: ``table``,
        ``version``, ``is_done``, ``text`` and ``files``.

        *files* names the data files of the one commit that is broken, where they cannot be told from others. With
        *forget* a commit whose data files are gone is replaced by one without rows. :class:`NotAllowedError` while a
        broker serves the root."""
        _require_any(self.layout)
        if table in (DELAY_INDEX.name, "delay-index"):
            return [self._rebuild_delay_index(dry_run)._asdict() | {"files": []}]
        name = table if table is None or table in _BROKERS else str(parse_topic_name(table))
        done = repair_root(self.layout, name, files=files, forget=forget, dry_run=dry_run)
        return [mended._asdict() | {"files": list(mended.files)} for mended in done]

    def _rebuild_delay_index(self, dry_run: bool) -> Repaired:
        """Have the broker that serves make the delay index anew; without one it is removed, which the next one takes
        for the same."""
        bundles = layouts_of(self.layout)
        holder = next(filter(None, (BundleLease(bundle, "repair").sure_holder() for bundle in bundles)), None)
        if dry_run:
            return Repaired(DELAY_INDEX.name, None, True, "it would be made anew from the topics")
        if holder is None:
            for bundle in bundles:
                remove_index(bundle)
            return Repaired(DELAY_INDEX.name, None, True, "removed: the next broker makes it anew from the topics")
        (reply,) = self._requester.ask([{"kind": "rebuild_delay_index"}])
        return Repaired(
            DELAY_INDEX.name,
            None,
            True,
            f"broker {holder.broker_id!r} makes it anew from {reply.text} topics; what is there serves until then",
        )

    def get_durability(self) -> str:
        """``"fsync"`` (a write that returned outlives a power loss) or ``"none"``."""
        require_root(self.layout)
        return read_durability(self.layout.root)

    def set_durability(self, durability: str) -> None:
        """Set it to one of these (*durability*), for every append from now on, also those of processes that run."""
        require_root(self.layout)
        write_durability(self.layout.root, durability)


def _older_layout(layout: Layout) -> list[Finding]:
    """What a migration would change in a root whose tables are sound."""
    done, root = migrate_by_hand(layout, dry_run=True), str(layout.root)
    if done.before == done.after:
        text = "the topic lacks what layout {} brought, and is served without"
        return [
            Finding("older_layout", each.table, root, None, each.error or text.format(each.version), MIGRATE)
            for each in done.changes
        ]
    text = f"the root has layout {done.before}; a broker that starts brings it to {done.after}, and so does the command"
    return [Finding("older_layout", "", root, None, text, MIGRATE)]


def _require_any(layout: Layout) -> None:
    """:class:`NotARoot` for a folder without a bundle; a broken one is what this is for."""
    try:
        require_root(layout)
    except CorruptState:
        return
    except NotARoot:
        if not layout.bundle_folder().is_dir():
            raise

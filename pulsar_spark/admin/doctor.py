"""``doctor`` and ``repair`` of a root: what is broken in its tables, and mending it; the durability of its writes. No
broker and no JVM is needed.

Every function gives rows, dicts of plain values, as ``--json`` prints them.
"""

from collections.abc import Sequence

from pulsar_spark.errors import CorruptState, NotARoot
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.topic_name import parse_topic_name
from pulsar_spark.storage.durability import read_durability, write_durability
from pulsar_spark.storage.examination import examine_root
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.repair import repair_root
from pulsar_spark.table_specs import BROKER_TABLES, REPROCESSING

_BROKERS = {spec.name for spec in (*BROKER_TABLES, REPROCESSING)}


class Doctor:
    """The part of :class:`~pulsar_spark.admin.Admin` that has to do with a root's health."""

    layout: Layout

    def doctor(self) -> list[dict]:
        """A row for each thing that is broken: ``kind``, ``table``, ``path``, ``version``, ``text`` (what it means) and
        ``command`` (what mends it, or what to do where no command does). None for a root that is sound. Changes
        nothing, and may run beside a broker."""
        _require_any(self.layout)
        return [finding._asdict() for finding in examine_root(self.layout)]

    def repair(
        self, table: str | None = None, *, files: Sequence[str] = (), forget: bool = False, dry_run: bool = False
    ) -> list[dict]:
        """Mend the commits and checkpoints that are broken: of *table* (a topic, or ``requests``, ``cursor_ledger``,
        ``ledgers``), or all. A row for each: ``table``, ``version``, ``is_done``, ``text`` and ``files``.

        *files* names the data files of the one commit that is broken, where they cannot be told from others. With
        *forget* a commit whose data files are gone is replaced by one without rows. :class:`NotAllowedError` while a
        broker serves the root."""
        _require_any(self.layout)
        name = table if table is None or table in _BROKERS else str(parse_topic_name(table))
        done = repair_root(self.layout, name, files=files, forget=forget, dry_run=dry_run)
        return [mended._asdict() | {"files": list(mended.files)} for mended in done]

    def get_durability(self) -> str:
        """``"fsync"`` (a write that returned outlives a power loss) or ``"none"``."""
        require_root(self.layout)
        return read_durability(self.layout.root)

    def set_durability(self, durability: str) -> None:
        """Set it, for every append from now on, also those of processes that run."""
        require_root(self.layout)
        write_durability(self.layout.root, durability)


def _require_any(layout: Layout) -> None:
    """:class:`NotARoot` for a folder without a bundle; a broken one is what this is for."""
    try:
        require_root(layout)
    except CorruptState:
        return
    except NotARoot:
        if not layout.bundle_folder().is_dir():
            raise

"""A file system without hard links, such as a mounted volume of a catalog's, is named when a root on it is opened."""

import errno
import os

import pytest

from pulsar_spark.errors import NotARoot
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store import local_store
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.faults import FULL, faults


@pytest.mark.parametrize("is_there", [False, True], ids=["a new root", "one that was copied there"])
@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_it_is_refused_by_name(tmp_path, monkeypatch, is_there, number):
    layout = Layout(tmp_path / "root")
    if is_there:
        prepare_root(layout)

    def link(source, target) -> None:
        raise OSError(number, os.strerror(number), str(source), None, str(target))

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(local_store, "_checked", set())
    before = sorted(tmp_path.rglob("*.json"))
    for use in (prepare_root, lambda layout: PlainBroker(layout.root).start()):
        with pytest.raises(NotARoot, match="without hard links .*: give a folder of a local disk or of NFS"):
            use(layout)
    assert sorted(tmp_path.rglob("*.json")) == before


@pytest.mark.local_disk
def test_a_disk_that_is_full_is_no_such_one(layout, monkeypatch):
    monkeypatch.setattr(local_store, "_checked", set())
    with faults(FULL, first=1, threads={"MainThread"}) as full:
        prepare_root(layout)
    left = [path.name for path in layout.bundle_folder().glob(".*") if path.suffix != ".lock"]
    assert full.raised == 1 and not left

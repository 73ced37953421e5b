"""What tests share: one Spark session for the whole run, a root of their own, a clock they set.

There are two suites. ``pytest`` runs the default one: every case that is not ``long`` (see tests.support.suites).
``pytest -m everything`` runs both, the cheapest files first.

A test that asks for ``spark`` is marked ``spark`` by that. One that starts Java in a process of its own is marked
``java``, and ``spark`` by that, so ``pytest -m "not spark"`` needs no Java. Several workers (``-n 3 --dist loadgroup``)
share the work like this: one gets the tests of DataFrames, one all others that share a session, one the processes, and
whoever is done whatever needs no Java.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from pulsar_spark.storage.delta import reader_rows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.durability import ENVIRONMENT
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.testing.plugin import (  # noqa: F401
    _new_pulsar_root,
    _pulsar_time,
    pulsar_broker,
    pulsar_client,
    pulsar_clock,
    pulsar_root,
    pulsar_service_url,
)
from tests.support.costs import Choosing, Measuring, read_costs
from tests.support.gs_server import gs_server
from tests.support.object_store import (
    ABFSS,
    BUCKET,
    DBFS,
    GS,
    LENT,
    LOCAL,
    S3,
    URLS,
    VOLUME,
    asking,
    lending,
    new_root,
    s3_server,
)
from tests.support.suites import is_long
from tests.support.unity_catalog import unity_catalog

os.environ.setdefault(ENVIRONMENT, "none")
"""No test but those of durability cuts the power."""

START = datetime(2024, 5, 17, 12, tzinfo=timezone.utc)


class Clock:
    """A clock that stands still until it is told otherwise. Calling it gives the time, as calling the system's clock
    does."""

    def __init__(self, now: datetime = START):
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> datetime:
        """Move on by ``timedelta(**duration)``; the new time."""
        self.now += timedelta(**duration)
        return self.now

    def set(self, now: datetime) -> None:
        self.now = now


def pytest_addoption(parser):
    parser.addoption(
        "--store",
        choices=(LOCAL, S3, GS, ABFSS, DBFS),
        default=LOCAL,
        help="where roots of tests lie: on the local disk; on a server in the process of the tests that is S3's, or "
        "like Google's; in a volume that a catalog lends in the first; or in azurite, where that runs. In a store "
        "those that ask for `root_url` or `in_store` run, and no others",
    )
    parser.addoption("--within", type=float, metavar="MINUTES", help="of what is chosen, the cheapest cases that fit")
    parser.addoption("--measure", action="store_true", help="write what each case takes to tests/costs.tsv")


def pytest_configure(config):
    # A shell ignores these for what it starts in the background, and children inherit that.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    config.addinivalue_line("markers", "long: not in the default suite")
    config.addinivalue_line("markers", "default: in the default suite, whatever it costs")
    config.addinivalue_line("markers", "everything: every case (set by itself)")
    config.pluginmanager.register(Choosing(config.getoption("--within")))
    if config.getoption("--measure"):
        config.pluginmanager.register(Measuring())
    config.addinivalue_line("markers", "local_disk: of what only a local disk has; not run with --store s3")
    config.addinivalue_line("markers", "spark: needs a JVM (set by itself for tests that use the spark fixture)")
    config.addinivalue_line("markers", "java: starts a JVM in a process of its own, and so is marked spark, too")


def pytest_unconfigure():
    """A client that a failed test left open is closed when Python ends, and says so where pytest's streams are no
    more: the run's last line stays pytest's own."""
    logging.raiseExceptions = False


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(config, items):
    if config.getoption("--store") != LOCAL:
        on_any = [
            item
            for item in items
            if {"root_url", "in_store"} & {*item.fixturenames} and not item.get_closest_marker("local_disk")
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in on_any])
        items[:] = on_any
    costs = read_costs()
    for item in items:
        item.add_marker("everything")
        is_process = item.get_closest_marker("java") is not None
        if is_process or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        is_long_one = is_long(item, costs)
        if is_long_one:
            item.add_marker("long")
        if item.get_closest_marker("spark"):
            # The default suite has one session; of the long one that of frames is another.
            session = "frames" if is_long_one and "frames" in item.path.parts else "spark"
            item.add_marker(pytest.mark.xdist_group("java" if is_process else session))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets up logging to a stream that is closed after its test."""
    loggers = [logging.getLogger(name) for name in (None, "pulsar_spark", "py4j")]
    before = [(list(each.handlers), each.level) for each in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers = handlers
        logger.setLevel(level)


@pytest.fixture
def only_in_files(monkeypatch) -> None:
    """No commit states its rows, so readers open data files."""
    monkeypatch.setattr(reader_rows, "MOST_STATED", 0)
    monkeypatch.setattr(reader_rows, "MOST_ROWS", -1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session whose JVM works in a folder of its own."""
    from pulsar_spark.storage.session import spark_session  # here, so that tests without Spark do not import it

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # else a VACUUM lists in 10,000 tasks
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "2g",  # a thousand tests leave plans and code behind
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.chdir(tmp_path_factory.mktemp("jvm"))
        session = spark_session("pulsar_spark tests", master="local[2]", settings=settings)
    yield session
    session.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def s3_url():
    """The URL of an S3 server of this run."""
    with s3_server() as url:
        yield url


@pytest.fixture
def s3(s3_url):
    """Stores of this process are on that server."""
    with asking(s3_url):
        yield s3_url


@pytest.fixture(scope="session")
def gs_url():
    """The URL of a server like Google's of this run."""
    with gs_server(BUCKET) as url:
        yield url


@pytest.fixture
def gs(gs_url):
    """Stores of this process are on that server."""
    with asking(gs_url, GS):
        yield gs_url


@pytest.fixture
def catalog(s3_url):
    """A catalog that lends a volume in the S3 server."""
    with unity_catalog(VOLUME, f"{URLS[S3]}/lent/a-volume", LENT) as found:
        yield found


@pytest.fixture
def dbfs(s3_url, catalog):
    """Stores of this process are what that catalog lends."""
    with asking(s3_url, DBFS, **lending(s3_url, catalog.url)):
        yield s3_url


@pytest.fixture
def abfss():
    """Stores of this process are in azurite."""
    url = os.environ.get("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000")
    with asking(url, ABFSS):
        yield url


@pytest.fixture
def in_store(request):
    """Stores of this process are those that the run is for, by default on the S3 server."""
    chosen = request.config.getoption("--store")
    return request.getfixturevalue(S3 if chosen == LOCAL else chosen)


@pytest.fixture
def root_url(request, tmp_path):
    """Where a root may be made, on the disk or in the store that the run is for."""
    if request.config.getoption("--store") == LOCAL:
        return tmp_path / "root"
    request.getfixturevalue("in_store")
    return new_root()


@pytest.fixture
def root(root_url):
    """An empty root with its bundle's tables: a path, in a store a URL."""
    prepare_root(Layout(root_url))
    return root_url


@pytest.fixture
def layout(root) -> Layout:
    return Layout(root)

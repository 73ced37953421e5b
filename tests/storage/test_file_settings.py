"""Settings that a writer takes from its session: several writers at once, and what the session has behind them."""

import threading

import pytest

from pulsar_spark.storage.delta import staging
from pulsar_spark.storage.delta.staging import _file_settings
from tests.support.waiting import eventually

MICROS, MILLIS = {"type": "MICROS"}, {"type": "MILLIS"}


class Session:
    """One of Python's objects for the session *of* the JVM."""

    def __init__(self, of: "Conf"):
        self._jsparkSession = self.conf = of


class Conf(dict):
    """What a session is set to, by its identity as the JVM's object is."""

    __hash__, __eq__ = object.__hash__, object.__eq__
    set, unset = dict.__setitem__, dict.__delitem__


@pytest.fixture
def conf():
    found = Conf(type="INT96")
    yield found
    assert found["type"] == "INT96" and not staging._in_use and not staging._waiting


def test_settings_stay_until_the_last_writer_is_done(conf):
    first, second = _file_settings(Session(conf), MICROS), _file_settings(Session(conf), {**MICROS, "more": "1"})
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert conf["type"] == "MICROS" and conf["more"] == "1"
    second.__exit__(None, None, None)
    assert "more" not in conf


def test_a_writer_that_fails_sets_back(conf):
    with pytest.raises(OSError), _file_settings(Session(conf), MICROS):
        raise OSError


def test_who_needs_another_value_waits(conf):
    found, entered = [], threading.Event()

    def write() -> None:
        with _file_settings(Session(conf), MILLIS):
            entered.set()
            found.append(conf["type"])

    other = threading.Thread(target=write)
    with _file_settings(Session(conf), MICROS), _file_settings(Session(Conf()), MILLIS):
        other.start()
        assert not entered.wait(0.05) and conf["type"] == "MICROS"
    other.join()
    assert found == ["MILLIS"]


def test_who_comes_later_does_not_overtake_who_waits(conf):
    order = []

    def write(settings: dict[str, str]) -> None:
        with _file_settings(Session(conf), settings):
            order.append(conf["type"])

    def wait_in_line(settings: dict[str, str], place: int) -> threading.Thread:
        thread = threading.Thread(target=write, args=(settings,))
        thread.start()
        eventually(lambda: len(staging._waiting.get(conf, ())) == place)
        return thread

    with _file_settings(Session(conf), MICROS):
        others = [wait_in_line(MILLIS, 1), wait_in_line(MICROS, 2)]
    for other in others:
        other.join()
    assert order == ["MILLIS", "MICROS"]


@pytest.mark.parametrize("when", ["set", "set back"])
def test_nobody_waits_for_a_writer_whom_the_session_failed(conf, when):
    class Failing(Session):
        is_failing = when == "set"

        def __init__(self, of):
            super().__init__(of)
            self.conf = self

        def get(self, name, default):
            return self._jsparkSession.get(name, default)

        def set(self, name, value):
            if self.is_failing:
                raise ConnectionError
            self._jsparkSession.set(name, value)

        unset = set

    failing, entered = Failing(conf), threading.Event()

    def write() -> None:
        with _file_settings(Session(conf), MILLIS):
            entered.set()

    other = threading.Thread(target=write, daemon=True)
    with pytest.raises(ConnectionError), _file_settings(failing, MICROS | {"more": "1"}):
        other.start()
        failing.is_failing = True
    if when == "set":
        other.start()
    assert entered.wait(60)
    other.join()
    conf.update(type="INT96")
    staging._in_use.pop(conf, None)

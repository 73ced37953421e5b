"""A copy of the checkout, in which the product may be broken: of the files that git knows, and of new ones."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from tests.mutants.mutant import PROJECT, Mutant

_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_PASSED, _TESTS_FAILED, _BROKE_DOWN = 0, 1, 3
_OPTIONS = ("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider")
_LIBRARIES = ("numpy", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "deltalake", "pyspark.sql")
_EVERYTHING = ("-m", "")
"""Whatever suite it is of, a doctest too, which has no marks."""
_LOOK_SECONDS = 0.05
NO_END = "the tests do not end"
"""What kills a mutant that makes somebody wait for ever."""


class Killer(NamedTuple):
    """The *test* that fails where the product is broken, None where none does; or the *problem* of finding out."""

    test: str | None
    problem: str | None = None


class Checkout:
    """The copy in *folder*. A run of tests that takes longer than *timeout* seconds has failed."""

    def __init__(self, folder: Path, timeout: float):
        self._folder, self._timeout = folder, timeout
        for name in _LIBRARIES:
            importlib.import_module(name)

    @classmethod
    @contextlib.contextmanager
    def copied(cls, timeout: float) -> Iterator["Checkout"]:
        """The copy, which is removed in the end."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=PROJECT, check=True, capture_output=True, text=True).stdout.split("\0")
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            for name in filter(None, names):
                if (PROJECT / name).is_file():
                    target = Path(folder, name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(PROJECT / name, target)
            yield cls(Path(folder), timeout)

    def killer(self, mutant: Mutant, arguments: Sequence[str]) -> Killer:
        """Which test sees the *mutant*, of those that pytest runs with these *arguments*."""
        with self._broken(mutant):
            code, output = self._run([*_EVERYTHING, *arguments])
        if code == _PASSED:
            return Killer(None)
        failed = _FAILED.findall(output)
        if code is not None and (code != _TESTS_FAILED or not failed):
            return Killer(None, f"pytest ends with {code}: {output.strip().splitlines()[-1:]}")
        return Killer(failed[0] if failed else NO_END)

    @contextlib.contextmanager
    def _broken(self, mutant: Mutant) -> Iterator[None]:
        path = mutant.path(self._folder)
        source = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutant.mutated(source))
            yield
        finally:
            self._write(path, source)

    @staticmethod
    def _write(path: Path, source: str) -> None:
        """Without what was compiled of it, which Python tells from the source by size and second."""
        path.write_text(source, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def unsound(self, tests: Sequence[str]) -> set[str]:
        """Those of *tests* that fail where nothing is broken."""
        code, output = self._run([*tests, *_EVERYTHING, "--maxfail=1000000"]) if tests else (_PASSED, "")
        return set(_FAILED.findall(output)) if code in (_PASSED, _TESTS_FAILED) else set(tests)

    def of_default_suite(self, tests: Sequence[str]) -> set[str]:
        """Those of *tests* that are run without being asked for."""
        return set(self._run([*tests, "--collect-only"])[1].splitlines()) if tests else set()

    def _run(self, arguments: Sequence[str]) -> tuple[int | None, str]:
        """What pytest ends with, None after the timeout, and what it says. It runs in a fork, which has its libraries
        already; they take longer to import than most tests."""
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                self._become_pytest([*_OPTIONS, *arguments], said.fileno())
            until = time.monotonic() + self._timeout
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
            if ended[0] == 0:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None, ""
            said.seek(0)
            return os.waitstatus_to_exitcode(ended[1]), said.read().decode(errors="replace")

    def _become_pytest(self, arguments: list[str], said: int) -> NoReturn:
        code = _BROKE_DOWN
        try:
            os.setsid()
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.chdir(self._folder)
            os.environ["PYTHONPATH"] = sys.path[0] = str(self._folder)
            for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
                del sys.modules[name]
            code = int(pytest.main(arguments))
        finally:
            sys.stdout.flush()
            os._exit(code)

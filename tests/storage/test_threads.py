"""A pool of threads works while the interpreter ends, as it did before."""

import subprocess
import sys

from tests.support.processes import ROOT

ENDING = """
import threading
from pulsar_spark.storage.processes.threads import Threads

def after_the_last_line():
    threading.main_thread().join()
    with Threads(2) as pool:
        print(pool.submit(int, "7").result(), list(pool.map(abs, [-1, -2])), type(pool.submit(int, "x").exception()))

threading.Thread(target=after_the_last_line).start()
"""


def test_what_is_begun_while_the_interpreter_ends_is_done():
    done = subprocess.run([sys.executable, "-c", ENDING], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 [1, 2] <class 'ValueError'>\n", "")

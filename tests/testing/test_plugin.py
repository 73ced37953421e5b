"""A project whose tests cannot use the plugin as its page says, or that pays for it without using it, is seen here."""

import configparser
import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import SITE

PLUGIN = "pulsar_spark.testing.plugin"
PAGE = SITE / "how-to" / "test-your-consumer.md"
HEAVY = ["deltalake", "numpy", "pyarrow", "pyspark", "py4j", "pulsar_spark.client.client", "pulsar_spark.broker"]


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN]
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.long
def test_the_project_of_the_page_passes_its_tests(tmp_path):
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [name for name, _ in files] == ["billing.py", "test_billing.py"]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = run(tmp_path)
    assert "3 passed" in done.stdout and done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_test_that_fails_says_where_the_message_is_and_no_more(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "def test_it(pulsar_client, pulsar_broker):\n"
        "    pulsar_client.subscribe('t', 's', consumer_name='worker')\n"
        "    sent = pulsar_client.create_producer('t').send(b'secret')\n"
        "    pulsar_broker.assert_acknowledged(sent, 's')\n"
    )
    done = run(tmp_path, "--tb=short")
    assert "1 failed" in done.stdout
    (error,) = re.findall(r"AssertionError: (.*)", done.stdout)[:1]
    assert error.endswith("is not acknowledged on 's': it is out at consumer 'worker'")
    assert "broker.py" not in done.stdout and "settle" not in done.stdout


def test_those_who_do_not_use_it_import_nothing_heavy(tmp_path):
    (tmp_path / "test_it.py").write_text(
        f"import sys\ndef test_it():\n    assert [name for name in {HEAVY} if name in sys.modules] == []\n"
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_installed_under_the_name_of_its_module_and_not_loaded_here(request):
    """So ``-p pulsar_spark.testing.plugin`` loads it once, and an installed copy is not what this suite tests."""
    setup = configparser.ConfigParser()
    setup.read(SITE.parent / "setup.cfg", encoding="utf-8")
    assert setup["options.entry_points"]["pytest11"].strip() == f"{PLUGIN} = {PLUGIN}"
    assert request.config.pluginmanager.is_blocked(PLUGIN)


def test_the_fixtures_are_described(tmp_path):
    done = run(tmp_path, "--fixtures")
    shown = re.findall(r"^(pulsar_\w+).*\n    (\w.*)", done.stdout, flags=re.MULTILINE)
    page = PAGE.read_text(encoding="utf-8")
    assert len(shown) == 5 and all(f"| `{name}` |" in page for name, _ in shown)

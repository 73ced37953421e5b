"""Whoever administers a root or works with DataFrames finds each argument described where help() looks: by the function
itself, or, of a method of Admin, by the class. The client's are held by tests.client.test_package_names."""

import inspect
import re

from pulsar_spark import frames
from pulsar_spark.admin import Admin
from tests.support.judging import failures


def _described():
    for name in frames.__all__:
        function = getattr(frames, name)
        if inspect.isfunction(function):
            yield f"frames.{name}", function, function.__doc__
    for name, method in inspect.getmembers(Admin, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            yield f"Admin.{name}", method, f"{method.__doc__} {Admin.__doc__}"


def test_every_argument_is_described():
    assert failures(_is_described, _described(), lambda described: described[0]) == {}


def _is_described(described: tuple) -> None:
    _, function, text = described
    arguments = [name for name in inspect.signature(function).parameters if name != "self"]
    missing = [name for name in arguments if not re.search(rf"(``|\*){name}\b", text)]
    assert function.__doc__ or function.__name__ == "__init__"
    assert missing == []

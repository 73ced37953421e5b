"""Commands run in this process."""

import os

from typer.testing import CliRunner

from pulsar_spark.cli import app


def say(root: str | os.PathLike, *arguments: str, columns: int | None = None) -> str:
    """What a command prints, on a terminal with so many *columns*; what it raises, an exit of its own too, is
    raised."""
    environment = {} if columns is None else {"COLUMNS": str(columns)}
    done = CliRunner(env=environment).invoke(app, [*arguments, "--root", str(root)])
    if done.exception is not None:
        raise done.exception
    return done.stdout

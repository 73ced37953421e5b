"""``pulsar-spark chunks``: incomplete chunked messages, without Spark or payloads."""

import itertools
from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, Topic, admin, print_json, print_table, shows_work

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(
    topic: Topic,
    root: Root,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Messages to list.")] = 20,
    as_json: Json = False,
):
    """List incomplete chunked messages, their missing chunks, and since when they wait; with --json one line of JSON
    each.
    """
    found = itertools.islice(admin(root).incomplete_chunks(topic), limit)
    if as_json:
        for each in found:
            print_json(each)
        return
    print_table(
        ["topic", "producer", "uuid", "chunks", "missing", "bytes", "since", "why"],
        [
            (
                each["topic"],
                each["producerName"],
                each["uuid"],
                f"{each['chunks']} of {each['numChunksFromMsg']}",
                _ranges(each["missing"]),
                each["totalChunkMsgSize"],
                (each["since"] or "").replace("T", " ").removesuffix("+00:00"),
                each["reason"] if each["isOpen"] else f"{each['reason']}; nothing waits for it",
            )
            for each in found
        ],
        none="no message is incomplete",
    )


def _ranges(missing: list[dict]) -> str:
    """Chunk ids as text.

    >>> _ranges([{"first": 1, "last": 1}, {"first": 4, "last": 9}])
    '1, 4 to 9'
    """
    return ", ".join(
        str(each["first"]) if each["first"] == each["last"] else f"{each['first']} to {each['last']}"
        for each in missing
    )


@app.command()
@shows_work("looking for chunks")
def count(topic: Topic, root: Root, as_json: Json = False):
    """Count incomplete chunked messages, and those of them whose missing chunks may still come."""
    found = admin(root).count_incomplete_chunks(topic)
    if as_json:
        print_json(found)
        return
    typer.echo(
        f"{found['messages']} incomplete, {found['open']} of them open; {found['chunks']} chunks"
        + (f", since {found['since']}" if found["since"] else "")
    )

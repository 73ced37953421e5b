"""``pulsar-spark chunks``: incomplete chunked messages, without Spark or payloads."""

import itertools

import typer

from pulsar_spark.cli.common import Json, Limit, Root, Topic, admin, print_each, print_found, shows_work

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(topic: Topic, root: Root, limit: Limit = 20, as_json: Json = False):
    """List incomplete chunked messages, their missing chunks, and since when they wait; with --json one line of JSON
    each."""
    print_each(
        itertools.islice(admin(root).incomplete_chunks(topic), limit),
        as_json,
        ["topic", "producer", "uuid", "chunks", "missing", "bytes", "since", "why"],
        lambda each: (
            each["topic"],
            each["producerName"],
            each["uuid"],
            f"{each['chunks']} of {each['numChunksFromMsg']}",
            _ranges(each["missing"]),
            each["totalChunkMsgSize"],
            (each["since"] or "").replace("T", " ").removesuffix("+00:00"),
            each["reason"] if each["isOpen"] else f"{each['reason']}; nothing waits for it",
        ),
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
    since = f", since {found['since']}" if found["since"] else ""
    text = f"{found['messages']} incomplete, {found['open']} of them open; {found['chunks']} chunks{since}"
    print_found(found, as_json, text)

"""Entries of subscriptions as SQL over the rows of ``cursor_ledger``: ranges of entries in one state.

A row of kind ``range`` says the state of the entries from ``first`` to ``last``, or of those at ``positions``. A later
row wins; a row of kind ``reset`` ends the rows of its cursor before its round. A row with status acknowledged and a
consumer concerns only what this consumer still had of the delivery of ``delivery_round``."""

from collections.abc import Iterable

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.views.latest import names, of_cursors_there, same

_BLOCK = 4096
_KEY = names(CursorKey._fields)
_STATE = ("status", "consumer_id", "delivery_round", "redelivery_count", "due_time", "ack_set", "batch_size")


def cut_at_positions(facts: str, columns: Iterable[str]) -> str:
    """*columns* of *facts*, rows of ranges, with ``first`` and ``last``: ``positions`` become a row per stretch."""
    firsts = "array(first)", "filter(places, (place, i) -> coalesce(get(places, i - 1) < place - 1, true))"
    lasts = "array(last)", "filter(places, (place, i) -> coalesce(get(places, i + 1) > place + 1, true))"
    return (
        f"SELECT {names(columns)}, stretch.firsts AS first, stretch.lasts AS last FROM (SELECT *, "
        f"IF(positions IS NULL, {firsts[0]}, {firsts[1]}) AS firsts, IF(positions IS NULL, {lasts[0]}, {lasts[1]}) "
        f"AS lasts FROM (SELECT *, array_sort(positions) AS places FROM {facts})"
        ") LATERAL VIEW explode(arrays_zip(firsts, lasts)) AS stretch"
    )


def _changes() -> str:
    """What rows say of existing cursors' entries since the last reset of each; ``done`` is its mark-delete position."""
    resets = f"SELECT {_KEY}, max(round) AS reset_round FROM {{rows}} WHERE kind = 'reset' GROUP BY {_KEY}"
    ranges = (
        f"SELECT range.*, reset_round FROM {{rows}} AS range LEFT JOIN ({resets}) AS reset "
        f"ON {same('range', 'reset', CursorKey._fields)} WHERE range.kind = 'range'"
    )
    rows = of_cursors_there(f"({ranges})", "fact.*, cursor.topic AS topic_name, cursor.mark_delete_position AS done")
    rows += " AND fact.last > cursor.mark_delete_position AND fact.round >= coalesce(fact.reset_round, fact.round)"
    return cut_at_positions(f"({rows})", ("topic_name", *CursorKey._fields, "round", "done", *_STATE))


def entries_in(*statuses: str) -> str:
    """The ranges of existing cursors' entries above mark-delete whose status is one of *statuses*.

    Entries are looked at in blocks. A block that a row covers as a whole is one piece, so a row about very many entries
    costs little."""
    wanted = ", ".join(f"'{status}'" for status in statuses)
    others = (f"IF(is_answered, NULL, state.{name}) AS {name}" for name in _STATE[1:])
    stated = ", ".join([f"IF(is_answered, '{ACKNOWLEDGED}', state.status) AS status", *others])
    return f"""
        WITH pieces AS (
            SELECT topic_name, {_KEY}, round, struct({names(_STATE)}) AS state, block,
                status = '{ACKNOWLEDGED}' AND consumer_id IS NOT NULL AS is_answer,
                greatest(first, block * {_BLOCK}) AS first, least(last, block * {_BLOCK} + {_BLOCK - 1}) AS last
            FROM (SELECT * EXCEPT (first), greatest(first, done + 1) AS first FROM ({_changes()}) WHERE last > done)
            LATERAL VIEW explode(sequence(first DIV {_BLOCK}, last DIV {_BLOCK})) AS block
        ), sized AS (
            SELECT *, last - first = {_BLOCK - 1} AS is_whole, max(IF(last - first = {_BLOCK - 1} AND NOT is_answer,
                round, NULL)) OVER (PARTITION BY {_KEY}, block) AS whole_round
            FROM pieces
        ), latest AS (
            SELECT *, bool_or(NOT is_whole) OVER (PARTITION BY {_KEY}, block) AS is_mixed
            FROM sized WHERE round >= coalesce(whole_round, round)
        ), entries AS (
            SELECT topic_name, {_KEY}, position AS first, position + IF(is_mixed, 0, {_BLOCK - 1}) AS last,
                max_by(state, round) FILTER (WHERE NOT is_answer) AS state,
                max(round) FILTER (WHERE NOT is_answer) AS state_round,
                collect_list(struct(state.consumer_id, state.delivery_round, round)) FILTER (WHERE is_answer) AS answers
            FROM latest LATERAL VIEW explode(IF(is_mixed, sequence(first, last), array(first))) AS position
            GROUP BY topic_name, {_KEY}, is_mixed, position
        ), stated AS (
            SELECT topic_name, {_KEY}, first, last, struct({stated}) AS state FROM (
                SELECT *, exists(answers, answer -> answer.round > state_round AND answer.consumer_id
                    = state.consumer_id AND answer.delivery_round = state.delivery_round) AS is_answered
                FROM entries WHERE state IS NOT NULL)
        ), numbered AS (
            SELECT *, lag(last) OVER of_cursor <=> first - 1 AND lag(state) OVER of_cursor <=> state AS is_continued
            FROM stated WHERE state.status IN ({wanted}) WINDOW of_cursor AS (PARTITION BY {_KEY} ORDER BY first)
        ), ranges AS (
            SELECT *, count_if(NOT is_continued) OVER (PARTITION BY {_KEY} ORDER BY first) AS number FROM numbered
        )
        SELECT topic_name AS topic, {_KEY}, first, last, last - first + 1 AS entries, state.* FROM (
            SELECT topic_name, {_KEY}, min(first) AS first, max(last) AS last, any_value(state) AS state
            FROM ranges GROUP BY topic_name, {_KEY}, number)
    """

"""A cell of the guide's table of features without a test is found here."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "how-to" / "spark-source.md"
FEATURES: dict[str, tuple[str, str, str, str, str]] = {
    "one topic": (
        "batch_read:a_read_has_what_a_reader_has",
        "topic_stream:each_micro_batch_has_what_is_new",
        "stream:a_committed_micro_batch_is_acknowledged",
        "write:what_is_written_is_read",
        "write:each_micro_batch_is_written_once",
    ),
    "one partition by its name": (
        "batch_read:partitions_topics_and_patterns",
        "topic_stream:some_partitions_by_their_names",
        "events:one_partition_by_its_name",
        "write:keys_go_where_the_client_sends_them",
        "write:a_micro_batch_is_written_to_one_partition",
    ),
    "`topics`, `topicsPattern`": (
        "batch_read:partitions_topics_and_patterns",
        "topic_stream:topics_and_partitions_that_are_added_are_read_from_their_first_message",
        "events:a_topic_that_appears_is_read_from_its_first_message",
        "options:each_option_has_its_uses",
        "options:each_option_has_its_uses",
    ),
    "topics and partitions that come later": (
        "",
        "topic_stream:topics_and_partitions_that_are_added_are_read_from_their_first_message",
        "events:partitions_that_are_added_are_read_from_their_first_message",
        "",
        "",
    ),
    "where it starts": (
        "batch_read:places",
        "topic_stream:where_it_starts",
        "events:partitions_that_are_added_are_read_from_their_first_message",
        "",
        "",
    ),
    "where it ends": (
        "batch_read:places",
        "topic_stream:available_now_ends_at_what_was_there",
        "deliveries:limits",
        "",
        "",
    ),
    "trigger `availableNow`": (
        "",
        "topic_stream:available_now_ends_at_what_was_there",
        "deliveries:limits",
        "",
        "on_spark:a_stream_of_a_topic_is_written_to_another_exactly_once",
    ),
    "trigger `once`": ("", "topic_stream:limits", "deliveries:limits", "", ""),
    "trigger `processingTime`, the default": (
        "",
        "operators:a_stream_runs_until_it_is_stopped",
        "operators:a_stream_runs_until_it_is_stopped",
        "",
        "operators:a_stream_runs_until_it_is_stopped",
    ),
    "trigger `continuous`": (
        "",
        "operators:spark_refuses_the_trigger_continuous",
        "operators:spark_refuses_the_trigger_continuous",
        "",
        "operators:spark_refuses_the_trigger_continuous",
    ),
    "messages, bytes of a micro-batch": ("", "topic_stream:limits", "deliveries:limits", "", ""),
    "progress": (
        "",
        "on_spark:a_stream_that_stopped_goes_on_where_it_was",
        "deliveries:progress_says_the_backlog",
        "",
        "",
    ),
    "acknowledges": (
        "batch_read:a_batch_read_of_a_subscription_is_refused",
        "topic_stream:trimmed_messages_are_named",
        "stream:a_committed_micro_batch_is_acknowledged",
        "",
        "",
    ),
    "delayed messages": (
        "events:delayed_messages_come_when_they_are_due",
        "events:delayed_messages_come_when_they_are_due",
        "events:delayed_messages_come_when_they_are_due",
        "write:what_is_written_is_read",
        "write:an_interval_counts_from_now",
    ),
    "dead letter policy": ("", "", "events:what_others_gave_back_too_often_is_dead", "", ""),
    "streams that share the messages": ("", "", "events:on_key_shared_each_key_is_at_one_stream", "", ""),
    "after a crash": (
        "",
        "topic_stream:each_micro_batch_has_what_is_new",
        "kills:a_process_that_is_killed_after_each_step",
        "write:a_transaction_is_written_once",
        "on_spark:a_stream_of_a_topic_is_written_to_another_exactly_once",
    ),
    "chunked messages": (
        "batch_read:chunks_are_joined",
        "topic_stream:a_chunked_message_comes_with_its_last_chunk",
        "deliveries:chunks_batches_and_redeliveries",
        "write:a_wrong_write_is_named_and_publishes_nothing",
        "write:a_wrong_write_is_named_and_publishes_nothing",
    ),
    "batches of a producer": (
        "batch_read:small_slices_have_all_messages_once",
        "topic_stream:a_large_entry_is_one_micro_batch",
        "deliveries:chunks_batches_and_redeliveries",
        "",
        "",
    ),
    "compressed, encrypted payloads": (
        "batch_read:payloads_are_plain",
        "batch_read:payloads_are_plain",
        "batch_read:payloads_are_plain",
        "write:encrypted_payloads_are_read_with_the_private_key",
        "write:compressed_payloads_are_read",
    ),
    "values typed by the topic's schema": (
        "typed_values:values_there_and_back",
        "typed_values:a_stream_writes_and_reads_values",
        "typed_values:few_columns_and_several_topics",
        "typed_values:values_there_and_back",
        "typed_values:a_stream_writes_and_reads_values",
    ),
    "columns of the connector": (
        "batch_read:the_columns_of_the_connector",
        "batch_read:the_columns_of_the_connector",
        "batch_read:the_columns_of_the_connector",
        "",
        "",
    ),
    "fewer columns, by a schema": (
        "batch_read:few_columns_are_chosen_by_a_schema",
        "batch_read:few_columns_are_chosen_by_a_schema",
        "batch_read:few_columns_are_chosen_by_a_schema",
        "",
        "",
    ),
    "watermarks, windows": ("", *["operators:windows_end_with_the_watermark"] * 2, "", ""),
    "`dropDuplicates`": ("", *["operators:duplicates_are_dropped_across_micro_batches"] * 2, "", ""),
    "joins with streams and tables": ("", *["operators:streams_are_joined_with_streams_and_tables"] * 2, "", ""),
    "SQL, `CREATE VIEW ... USING`": ("on_spark:what_is_written_is_read_in_sql", "", "", "", ""),
    "in an object store": (  # but for the third, with --store s3
        "batch_read:a_read_has_what_a_reader_has",
        "topic_stream:each_micro_batch_has_what_is_new",
        "object_store:a_stream_goes_on_after_a_restart",
        "write:what_is_written_is_read",
        "write:each_micro_batch_is_written_once",
    ),
}
"""By row and column, the test of a cell: its file and its function, without ``test_``. All reads share the code that
makes rows of slices, and both writes the code that makes messages of rows."""


def cells(line: str) -> list[str]:
    return [each.strip() for each in line.strip().strip("|").split("|")]


def table_of_the_page() -> dict[str, list[str]]:
    section = PAGE.read_text(encoding="utf-8").partition("## What works where")[2].partition("\n## ")[0]
    rows = [cells(line) for line in section.splitlines() if line.startswith("| ")]
    return {name: row for name, *row in rows if name}


def is_there(test: str) -> bool:
    file, _, function = test.partition(":")
    (path,) = [*HERE.rglob(f"test_{file}.py")]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == f"test_{function}" for node in tree.body)


def test_each_cell_has_a_test():
    shown = table_of_the_page()
    assert [*FEATURES] == [*shown]
    for name, row in FEATURES.items():
        assert [bool(each) for each in row] == [bool(each) for each in shown[name]], name
        assert [each for each in row if each and not is_there(each)] == [], name

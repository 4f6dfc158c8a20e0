"""Every requirement, in its corrected form, is held by a test.

The tables name the tests for channels (1 to 63 in memory, 64 to 105 on disk) and for an agent (106 to 133 and a few
earlier ones). A LogHub producer's requirements, 134 to 160, have one test each. The file is as long as the list.
"""

import itertools
import os
import threading
import time

import pytest

from producer import (
    CloseTimeoutError,
    InvalidArgumentError,
    LogSizeTooLargeError,
    MaxBatchCountExceedError,
    NetworkError,
    Producer,
    ProducerClosedError,
    ProducerConfig,
    RejectedError,
    Result,
    RetryPolicy,
    SendTimeoutError,
)
from producer.model.errors import AttemptError
from producer.pipeline.shutdown import Shutdown
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.support.clocks import JumpingClock
from tests.support.named_tests import missing_tests
from tests.support.pipelines import KEY, config, queued, record, running, settle, threadless
from tests.support.sinks import DeadSink, GatedSink
from tests.support.waiting import PATIENCE, Call, allowed, eventually, passed

LOG = {"a": "b"}
DOWN = NetworkError("RequestError", "refused")


MEMORY = "channels/test_memory.py::"
WAITING = "channels/test_memory_waiting.py::"
THREADS = "channels/test_memory_concurrency.py::"
LIFE = "channels/test_transaction.py::"
MACHINE = "channels/test_memory_machine.py::TestMemoryChannel"

#: The tests that hold each requirement.
CHANNEL_LINES: dict[int, tuple[str, ...]] = {
    1: (THREADS + "test_fifty_sources_and_fifty_sinks",),
    3: (
        "channels/test_spillable.py::test_close_loses_and_logs_the_events_in_memory_and_keeps_the_others",
        MEMORY + "test_a_pickled_channel_is_an_empty_one_of_the_same_configuration",
    ),
    4: (MEMORY + "test_commit_returns_memory_and_nothing_is_ever_synced", LIFE + "test_every_call_in_every_state"),
    5: (LIFE + "test_every_call_in_every_state", LIFE + "test_the_permitted_calls_and_the_table_of_transitions_agree"),
    6: (MEMORY + "test_a_put_is_invisible_until_it_is_committed",),
    7: (MEMORY + "test_the_defaults_fit_a_producers_memory",),  # 100 is known to be too small
    8: (MEMORY + "test_the_defaults_fit_a_producers_memory",),  # likewise
    9: (MEMORY + "test_a_wrong_value_is_refused_with_name_rule_and_value",),
    10: (MEMORY + "test_the_defaults_fit_a_producers_memory",),
    11: (MEMORY + "test_the_defaults_fit_a_producers_memory",),  # Python's heap has no bound to take 80 % of
    12: (MEMORY + "test_bodies_fill_the_byte_capacity_less_the_share_for_headers",),
    13: (MEMORY + "test_bodies_fill_the_byte_capacity_less_the_share_for_headers",),  # bytes, not slots of a hundred
    14: (MEMORY + "test_without_a_byte_capacity_bytes_have_no_limit",),
    15: (MEMORY + "test_an_event_counts_its_headers_and_body_at_least_its_body_plus_the_share",),  # likewise
    16: (MEMORY + "test_a_wrong_value_is_refused_with_name_rule_and_value",),  # an error, not a default
    17: (MEMORY + "test_the_statistics_have_flumes_counters_ages_rates_and_bytes",),
    18: (MACHINE,),  # the balance takes the place of semaphores
    19: (WAITING + "test_a_commit_that_waits_stops_no_taker", WAITING + "test_no_lock_is_held_during_any_wait"),
    20: (
        MEMORY + "test_puts_beyond_the_transactions_capacity_raise_with_advice",
        MEMORY + "test_takes_beyond_the_transactions_capacity_raise_acknowledged_ones_no_longer_count",
    ),
    21: (MEMORY + "test_failed_puts_and_empty_takes_count_as_attempts",),
    22: (MEMORY + "test_puts_beyond_the_transactions_capacity_raise_with_advice",),
    23: (MEMORY + "test_rolled_back_puts_need_no_bytes", MEMORY + "test_a_put_is_invisible_until_it_is_committed"),
    24: (MEMORY + "test_failed_puts_and_empty_takes_count_as_attempts",),
    25: (MEMORY + "test_takes_beyond_the_transactions_capacity_raise_acknowledged_ones_no_longer_count",),
    26: (WAITING + "test_a_take_that_finds_nothing_in_time_returns_nothing",),
    27: (MACHINE,),
    28: (MEMORY + "test_a_committed_event_is_taken_unchanged_with_a_sequence_number", MACHINE),
    29: (MEMORY + "test_a_transaction_may_take_and_put",),
    30: (WAITING + "test_one_wait_is_for_events_and_bytes_together",),
    31: (
        WAITING + "test_a_commit_waits_for_keep_alive_then_raises_and_stays_open",
        MEMORY + "test_rolled_back_puts_need_no_bytes",
    ),
    32: (
        MEMORY + "test_a_failed_commit_can_be_tried_again",
        MEMORY + "test_after_a_failed_commit_a_rollback_forgets_the_puts",
    ),
    33: (
        MEMORY + "test_a_full_channel_refuses_a_commit_whole",
        MEMORY + "test_the_queue_is_in_the_order_of_commits",
    ),
    34: (MEMORY + "test_a_commit_after_acknowledgements_counts_only_the_rest", MACHINE),
    35: (MEMORY + "test_committed_takes_free_their_bytes",),
    36: (WAITING + "test_a_take_waits_until_a_put_is_committed",),
    37: (WAITING + "test_a_commit_waits_until_a_take_is_committed",),
    38: (MEMORY + "test_the_statistics_have_flumes_counters_ages_rates_and_bytes",),
    39: (
        WAITING + "test_one_commit_serves_as_many_takers_as_it_has_events",
        WAITING + "test_a_waiting_take_is_woken_by_a_rollback_or_a_dropped_transaction",
    ),
    40: (MEMORY + "test_only_a_committed_take_frees_capacity",),
    41: (
        MEMORY + "test_rolled_back_puts_are_gone_and_rolled_back_takes_are_back",
        MEMORY + "test_rollbacks_in_any_order_restore_the_first_order",
    ),
    42: (MEMORY + "test_rolled_back_puts_are_gone_and_rolled_back_takes_are_back",),
    43: (MEMORY + "test_open_takes_count_when_a_channel_shrinks",),
    44: (WAITING + "test_a_waiting_take_is_woken_by_a_rollback_or_a_dropped_transaction",),
    45: (
        MEMORY + "test_rollbacks_leak_no_bytes_flume_2812",
        MEMORY + "test_mixed_transactions_leak_no_bytes",
    ),
    46: (LIFE + "test_each_call_of_transaction_makes_a_new_one",),
    47: (
        LIFE + "test_an_exception_in_a_block_rolls_back_and_propagates",
        LIFE + "test_a_failed_commit_at_the_end_of_the_block_rolls_back_and_raises",
    ),
    49: (MEMORY + "test_a_take_waits_only_for_its_first_event",),
    50: (THREADS + "test_resizing_up_and_down_under_load_loses_nothing",),
    51: (MEMORY + "test_resizing_to_the_same_limits_changes_nothing",),
    52: (MEMORY + "test_open_takes_count_when_a_channel_shrinks",),
    53: (
        MEMORY + "test_a_refused_resize_says_why_and_changes_nothing",
        WAITING + "test_a_resize_waits_for_takes_and_commits_wait_behind_it",
        WAITING + "test_a_resize_fails_after_keep_alive",
    ),
    54: (THREADS + "test_resizing_up_and_down_under_load_loses_nothing",),
    55: (WAITING + "test_a_larger_capacity_serves_waiting_commits",),
    57: (MEMORY + "test_a_failed_commit_can_be_tried_again",),
    58: (MEMORY + "test_a_larger_channel_holds_more_and_a_smaller_one_waits_for_takes",),
    61: (
        MEMORY + "test_close_says_once_how_many_events_are_lost",
        MEMORY + "test_a_refused_commit_is_an_error_that_is_counted",
    ),
    62: (MEMORY + "test_rolled_back_puts_are_gone_and_rolled_back_takes_are_back",),
    63: (MEMORY + "test_sequence_numbers_are_unique_and_increase",),
}

FILE = "channels/file/test_channel.py::"
RESTART = "channels/file/recovery/test_restart.py::"
LOG_FILES = "channels/file/log/test_log.py::"
POINTERS = "channels/file/queue/test_event_queue.py::"
CHECKPOINTS = "channels/file/recovery/test_checkpoint.py::"
GROUPS = "channels/file/log/test_group_commit.py::"
CRASHES = "channels/file/test_model.py::test_random_histories_keep_every_promise"

#: The tests that hold each requirement of a file channel.
FILE_LINES: dict[int, tuple[str, ...]] = {
    64: (POINTERS + "test_a_pointer_holds_segment_and_offset", POINTERS + "test_an_event_takes_28_bytes_and_a_little"),
    65: (
        POINTERS + "test_any_history_of_puts_takes_returns_and_removals_agrees_with_a_sorted_list",
    ),  # an array in memory, whole in each checkpoint
    66: (
        POINTERS + "test_a_snapshot_holds_queued_taken_and_returned_events_up_to_a_log_position_and_does_not_change",
        FILE + "test_a_transaction_that_crosses_a_checkpoint_counts_once",  # open puts are in memory alone
    ),
    67: (CHECKPOINTS + "test_its_bytes_are_as_documented",),
    68: ("channels/file/store/test_format.py::test_a_channel_writes_the_bytes_of_the_documented_example",),
    69: (LOG_FILES + "test_a_committed_put_is_puts_and_a_commit_in_one_write",),  # at the commit, not at the put
    70: (
        LOG_FILES + "test_a_committed_take_is_a_take_and_a_commit",
        FILE + "test_open_takes_of_a_killed_process_come_back_in_order",
    ),
    71: (
        GROUPS + "test_commits_that_come_during_a_sync_share_the_next_one",
        GROUPS + "test_a_second_failure_is_an_error_and_nothing_happened",
    ),
    72: (
        FILE + "test_taken_events_keep_their_room_until_the_take_is_committed",
        GROUPS + "test_a_take_whose_commit_failed_can_be_committed_again_or_rolled_back",
    ),
    73: (GROUPS + "test_sequence_numbers_follow_the_order_of_the_log",),
    74: (
        GROUPS + "test_twenty_commits_that_have_written_share_one_sync",
        CRASHES,
        "durable/test_kill.py::test_a_program_prints_a_number_once_its_record_is_stored",
    ),
    75: (FILE + "test_checkpoints_are_written_at_each_interval_with_changes",),
    76: (
        CHECKPOINTS + "test_it_is_written_beside_its_place_synced_renamed_and_the_directory_synced",
        RESTART + "test_a_checkpoint_that_comes_while_one_is_written_waits_for_it",  # it waits, and does not fail
    ),
    77: (FILE + "test_the_example_of_the_sources_leaves_b",),
    78: (RESTART + "test_right_after_opening_there_is_a_checkpoint",),
    80: (
        RESTART + "test_a_damaged_checkpoint_costs_nothing_but_time",
        RESTART + "test_recovery_reads_exactly_the_records_after_the_second_copys_position",
    ),
    81: (CRASHES, GROUPS + "test_after_a_failed_sync_the_commit_still_succeeds_in_a_new_segment"),
    83: (
        LOG_FILES + "test_a_committed_put_is_puts_and_a_commit_in_one_write",
        FILE + "test_commit_returns_the_durability_and_sync_raises_it_to_disk",
    ),
    84: (FILE + "test_a_transaction_either_puts_or_takes",),
    86: (
        GROUPS + "test_a_roll_between_two_commits_syncs_both_segments",
        GROUPS + "test_a_second_failure_is_an_error_and_nothing_happened",
    ),
    87: (FILE + "test_the_example_of_the_sources_leaves_b",),
    88: (CRASHES, RESTART + "test_the_channel_can_be_reopened_again_and_again"),
    89: (RESTART + "test_recovery_reads_exactly_the_records_after_the_second_copys_position",),
    90: ("channels/file/store/test_format.py::test_numbers_continue_after_those_of_earlier_openings",),
    91: (
        CHECKPOINTS + "test_a_checkpoint_is_decoded_as_it_was_encoded_numbers_salts_and_events",
        CHECKPOINTS + "test_the_generation_grows_through_restarts",
    ),
    92: (RESTART + "test_a_checkpoint_that_comes_while_one_is_written_waits_for_it", CRASHES),  # they need not block
    93: (FILE + "test_a_transaction_that_crosses_a_checkpoint_counts_once",),
    94: (FILE + "test_a_transaction_that_crosses_a_checkpoint_counts_once",),
    95: (
        POINTERS + "test_the_columns_are_cut_and_nothing_moves",
        LOG_FILES + "test_a_transaction_never_spans_segments",
    ),
    96: (
        "channels/file/store/test_format.py::test_the_kinds_of_records_have_their_numbers",
        "channels/file/store/test_segment.py::test_a_take_names_the_events_that_it_took",  # by sequence numbers
    ),
    97: (
        LOG_FILES + "test_rollbacks_and_empty_transactions_write_no_record",
        FILE + "test_rolled_back_takes_return_in_order_also_after_a_restart",
    ),
    98: (GROUPS + "test_sequence_numbers_follow_the_order_of_the_log",),
    99: (CHECKPOINTS + "test_its_bytes_are_as_documented",),  # one file
    100: (RESTART + "test_a_damaged_checkpoint_costs_nothing_but_time",),
    101: (RESTART + "test_closing_writes_a_checkpoint_and_the_next_opening_reads_no_records",),
    102: (LOG_FILES + "test_segments_lie_in_the_data_directories_in_turn",),
    104: (
        "channels/test_spillable.py::test_three_events_go_to_memory_the_rest_to_the_overflow_and_all_come_out_in_order",
        "channels/test_spillable.py::test_close_loses_and_logs_the_events_in_memory_and_keeps_the_others",
    ),
    105: (
        "durable/test_close.py::test_after_a_crash_with_records_stored_fed_in_flight_and_delivered_all_arrive_in_order",
        CRASHES,
    ),
}

#: Requirements of the same list that no test can hold, with the reason.
FILE_WORDS = {
    79: "a figure, not a promise: tests/benchmarks/channels.py measures both channels",
    82: "reliability is the disk's: every event is written to one; a copy of it is the business of a RAID or a volume",
}

RELOAD = "agent/run/test_agent_reload.py::"
ROUTING = "agent/flow/test_routing.py::"
EXEC = "agent/sources/test_exec.py::"
SPOOL = "agent/sources/test_spooldir.py::"
TAIL = "agent/sources/test_taildir_rotation.py::"
EXAMPLES = "agent/test_examples.py::"
HOP = "agent/test_kills_files.py::test_a_hop_loses_nothing_when_either_end_is_killed"
GROUP = "agent/sources/test_loghub_group.py::"
PAGES = "agent/monitoring/test_server.py::"

#: The tests that hold each requirement of an agent.
AGENT_LINES: dict[int, tuple[str, ...]] = {
    2: ("agent/config/test_toml_file.py::test_a_file_has_all_that_an_agent_is_made_of",),  # none is on a database
    48: (
        "agent/test_kafka.py::test_topic_partition_offset_time_key_and_headers_become_headers",
    ),  # one look is one batch
    56: (
        RELOAD + "test_only_the_sink_whose_option_changed_is_restarted",
        "cli/test_agent.py::test_a_change_of_the_file_and_sighup_are_taken_up",
    ),
    59: ("agent/flow/test_channel.py::test_a_rolled_back_batch_returns_to_its_place", HOP),
    60: (
        ROUTING + "test_a_full_required_channel_raises_so_that_a_source_can_tell_its_sender",
    ),  # how much it shall hold is its owner's decision
    85: ("agent/flow/test_sink_runner.py::test_delivered_events_leave_the_channel_and_are_counted_as_in_flume",),
    103: (ROUTING + "test_load_balancing_takes_turns",),
    106: (EXAMPLES + "test_two_tiers_deliver_through_the_collector_that_lives",),
    107: (HOP, "agent/test_avro.py::test_a_body_and_its_headers_come_through"),
    108: (EXAMPLES + "test_two_tiers_deliver_through_the_collector_that_lives",),
    109: (ROUTING + "test_interceptors_see_a_batch_once_in_order_although_a_channel_is_retried",),
    110: (ROUTING + "test_every_channel_gets_every_event",),
    111: ("benchmarks/test_arrival.py::test_only_the_spread_of_the_delay_distinguishes_a_steady_run",),
    112: (GROUP + "test_two_members_read_each_log_once",),
    113: (EXEC + "test_each_line_of_a_command_is_an_event",),
    114: (EXEC + "test_a_line_comes_when_it_is_written",),
    115: (EXEC + "test_a_full_channel_holds_the_command_back",),  # it waits, and does not end
    116: (
        EXEC + "test_a_command_is_run_again",
    ),  # stateless: what is in memory is lost, as docs/agent/configure.md says
    117: ("agent/test_kills.py::test_after_kill_9_each_line_is_in_one_batch_of_the_file_channel",),
    118: (EXEC + "test_the_command_dies_with_a_killed_agent",),
    119: (SPOOL + "test_each_line_of_a_file_is_an_event_and_the_file_is_renamed",),
    120: (SPOOL + "test_files_are_consumed_in_order",),
    121: (
        SPOOL + "test_after_a_stop_within_a_file_the_next_start_reads_the_rest",
        "agent/test_kills_files.py::test_each_line_of_a_spool_directory_is_in_a_file",
    ),
    122: ("agent/test_avro.py::test_a_full_channel_is_failed_until_there_is_room",),
    123: (ROUTING + "test_after_a_crash_between_two_commits_the_source_reads_the_batch_again",),
    124: ("agent/sources/test_taildir.py::test_a_full_channel_holds_the_source_up",),
    125: ("agent/flow/test_channel.py::test_capacity_counts_the_events_of_the_batches",),  # a batch is one transaction
    126: (ROUTING + "test_a_header_chooses_the_channels", ROUTING + "test_every_channel_gets_every_event"),
    127: (ROUTING + "test_load_balancing_takes_turns", ROUTING + "test_load_balancing_can_choose_the_emptiest"),
    128: (RELOAD + "test_batches_of_a_channel_that_several_sinks_empty_have_no_name",),
    129: (
        "agent/flow/test_sink_runner.py::test_after_any_exception_of_the_sink_the_events_stay_in_order_and_the_reason_is_logged",
    ),
    130: (
        "agent/sinks/test_file_roll.py::test_files_end_by_time",
        "agent/sinks/test_objects.py::test_flumes_hdfs_sink_is_this_one",
    ),
    131: (
        "agent/run/test_supervisor.py::test_a_component_that_fails_is_run_again_after_a_pause_that_grows",
        "agent/config/test_units.py::test_systemd_takes_its_unit",
    ),
    132: (
        PAGES + "test_prometheus_text_has_the_counters_and_the_lag_in_events_bytes_and_seconds",
        ROUTING + "test_how_long_interceptors_take_is_counted",
    ),
    133: (SPOOL + "test_a_directory_belongs_to_one_source",),
}


def test_1_to_133_each_requirement_of_channels_and_agents_is_held_or_cannot_be_tested() -> None:
    """No requirement is missing or in two tables, and every named test exists."""
    tables = (CHANNEL_LINES, FILE_LINES, AGENT_LINES)
    assert sorted([*(line for table in tables for line in table), *FILE_WORDS]) == list(range(1, 134))
    assert missing_tests([test for table in tables for tests in table.values() for test in tests]) == []


def test_134_all_public_methods_are_thread_safe() -> None:
    """Sixteen threads call every public method at once; every accepted log arrives once, in its sender's order."""
    sink = RecordingSink()
    producer = Producer(sink=sink, config=config(linger_ms=100, io_thread_count=1, batch_count_threshold=50))
    barrier = threading.Barrier(16)

    def work(name: int) -> None:
        barrier.wait()
        stream = producer.stream("p", "l")
        for i in range(50):
            stream.send({"id": f"{name:02}-{i:03}-one"})
            producer.send("p", "l", [{"id": f"{name:02}-{i:03}-two"}])
            stream.send_many([{"id": f"{name:02}-{i:03}-two+"}])
            producer.stats()
            producer.remove_project_config("p")
            if i % 25 == 0:
                producer.flush(PATIENCE)

    for call in [Call(lambda name=name: work(name)) for name in range(16)]:
        call.result()
    producer.close()
    ids = [one[one.rindex(b"id\x12") + 4 :] for one in sink.records()]
    assert len(ids) == len(set(ids)) == 16 * 150
    for name in range(16):
        own = [one for one in ids if one.startswith(b"%02d-" % name)]
        assert own == sorted(own)


def test_135_send_returns_at_once_and_data_is_sent_in_batches() -> None:
    """With a server that hangs, 1000 sends return; each stream's logs are in one batch."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config())
    began = time.monotonic()
    futures = [producer.send("p", "l", LOG) for _ in range(1000)]
    assert time.monotonic() - began < allowed(2)
    assert not any(future.done() for future in futures)
    sink.gate.set()
    producer.close()
    assert [len(sink.decode(delivery.payload)) for delivery in sink.deliveries] == [1000]


def test_136_retriable_errors_are_retried_with_the_configured_number_and_backoff() -> None:
    """By default 10 retries wait from 100 ms up to at most 50 s; the configuration may set other numbers."""
    for options, attempts in (({}, 11), ({"retries": 2}, 3), ({"retries": 0}, 1)):
        clock, at = JumpingClock(), []
        sink = ScriptedSink([lambda _delivery, at=at, clock=clock: at.append(clock.monotonic()) or DOWN] * 20)
        pipeline = threadless(sink, clock, **options)
        future = pipeline.admission.accept(KEY, record(), 1, None)
        pipeline.flush(None)
        assert future.exception(0) is not None
        assert len(at) == attempts
        waits = [after - before for before, after in itertools.pairwise(at)]
        for n, wait in enumerate(waits, start=1):
            assert min(0.1 * 2 ** (n - 1), 25.0) * 0.999 <= wait <= min(0.1 * 2**n, 50.0) * 1.001


def test_137_callback_and_future_report_the_outcome_and_every_attempt() -> None:
    """Callback and future have success, request id, error code, message and time of up to 11 attempts, all counted."""
    clock = JumpingClock()
    refused = RejectedError("ParameterInvalid", "bad topic", http_status=400, request_id="R2")
    for errors in ([DOWN, None], [DOWN, refused], [DOWN] * 40):
        told: list[Result] = []
        sink = ScriptedSink(errors)
        pipeline = threadless(sink, clock, retries=30)
        future = pipeline.admission.accept(KEY, record(), 1, told.append)
        began = clock.time()
        pipeline.flush(None)
        error = future.exception(0)
        assert told == [future.result(0) if error is None else error.result]
        assert told[0].attempt_count == len(sink.attempts)
        assert len(told[0].attempts) == min(11, len(sink.attempts))
        first, last = told[0].attempts[0], told[0].attempts[-1]
        assert last.success == told[0].successful
        assert last.timestamp_ms >= began * 1000 - 1
        if len(sink.attempts) == 2:
            assert (first.error_code, first.error_message) == ("RequestError", "refused")
            expected = ("request-1", 200, "", "") if errors[1] is None else ("R2", 400, "ParameterInvalid", "bad topic")
            assert (last.request_id, last.http_status, last.error_code, last.error_message) == expected


def test_138_logs_of_a_stream_share_a_context_with_increasing_numbers() -> None:
    """The pack id tag has the stream's context and a number that grows by batch; a retry keeps its number."""
    sink = ScriptedSink([None, DOWN, None])
    pipeline = threadless(sink, batch_count_threshold=1)
    for _ in range(3):
        pipeline.admission.accept(KEY, record(), 1, None)
        pipeline.flush(None)
    contexts, numbers = zip(*[(d.pack_id or "").split("-") for d in sink.attempts], strict=True)
    assert len(set(contexts)) == 1
    assert numbers == ("0", "1", "1", "2")
    for delivery in sink.deliveries:
        assert b"__pack_id__" in delivery.payload.body
        assert (delivery.pack_id or "").encode() in delivery.payload.body


def test_after_a_graceful_close_every_record_has_an_outcome_and_its_callback_has_run() -> None:
    """After a graceful close every record has an outcome, and its callback has run."""
    sink, told = ScriptedSink([DOWN, None, RejectedError("C", "x")]), []
    producer = Producer(sink=sink, config=config(batch_count_threshold=7))
    futures = [producer.send("p", "l", LOG, topic=str(i % 5), callback=told.append) for i in range(500)]
    producer.close()
    assert len(told) == 500
    assert all(future.done() for future in futures)


def test_140_memory_is_bounded_and_io_threads_are_configurable() -> None:
    """The defaults are 100 MiB and one IO thread per CPU; used memory never exceeds the bound."""
    assert ProducerConfig().total_size_in_bytes == 104_857_600
    assert ProducerConfig().io_thread_count == max(1, os.cpu_count() or 1)
    pipeline = threadless(total_size_in_bytes=50_000, max_block_ms=0)

    def fill() -> None:
        for i in range(1000):
            pipeline.admission.accept(KEY._replace(topic=str(i % 9)), record("x" * 50), 1, None)
            assert pipeline.budget.used <= 50_000

    with pytest.raises(SendTimeoutError):
        fill()
    producer = Producer(sink=RecordingSink(), config=config(io_thread_count=5, name="five"))
    producer.send("p", "l", LOG)
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("five-io-")]) == 5
    producer.close()


def test_141_without_space_send_blocks_until_freed_or_timed_out() -> None:
    """A positive max_block_ms waits that long, zero fails at once, a negative one waits until a batch completes."""
    assert ProducerConfig().max_block_ms == 60_000
    for max_block_ms in (0, 50):
        pipeline = threadless(total_size_in_bytes=7000, max_block_ms=max_block_ms)
        pipeline.admission.accept(KEY, record("x" * 1500), 1, None)
        with pytest.raises(SendTimeoutError) as caught:
            pipeline.admission.accept(KEY, record("x" * 1500), 1, None)
        assert caught.value.waited == pytest.approx(max_block_ms / 1000)
    sink = GatedSink()
    producer = Producer(sink=sink, config=config(total_size_in_bytes=7000, max_block_ms=-1, linger_ms=100))
    producer.send("p", "l", {"a": "x" * 1500})
    blocked = Call(lambda: producer.send("p", "l", {"a": "x" * 1500}))
    eventually(lambda: producer.stats().waiting_senders == 1)
    assert not blocked.done
    sink.gate.set()
    assert blocked.result().result(PATIENCE).successful
    producer.close()


def test_142_a_batch_belongs_to_one_project_logstore_topic_source_and_shard_hash() -> None:
    """Batches differ if one of the five differs; equal ones share a batch."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config(linger_ms=10**6)) as producer:
        for _ in range(2):
            producer.send("p", "l", LOG)
            producer.send("q", "l", LOG)
            producer.send("p", "m", LOG)
            producer.send("p", "l", LOG, topic="t")
            producer.send("p", "l", LOG, source="s")
            producer.send("p", "l", LOG, shard_hash="h")
    assert len({delivery.key for delivery in sink.deliveries}) == len(sink.deliveries) == 6
    assert {len(sink.decode(delivery.payload)) for delivery in sink.deliveries} == {2}


def test_143_a_batch_without_room_is_sent_first_and_a_full_one_at_once() -> None:
    """At 8 MiB and 40,960 logs a record that does not fit opens a new batch; a full batch is sent at once."""
    assert (ProducerConfig().batch_size_threshold_in_bytes, ProducerConfig().batch_count_threshold) == (524_288, 4096)
    pipeline = threadless(batch_size_threshold_in_bytes=8 * 2**20, batch_count_threshold=40_960)
    pipeline.admission.accept(KEY, b"a" * (5 * 2**20), 1, None)
    pipeline.admission.accept(KEY, b"a" * (5 * 2**20), 1, None)
    assert queued(pipeline.io_pool) == 1
    pipeline.admission.accept(KEY, b"a", 40_959, None)
    assert queued(pipeline.io_pool) == 2
    pipeline.admission.accept(KEY, b"a", 40_000, None)
    assert queued(pipeline.io_pool) == 2
    pipeline.admission.accept(KEY, b"a", 961, None)
    assert queued(pipeline.io_pool) == 3
    defaults = threadless()
    defaults.admission.accept(KEY, b"a" * 524_288, 1, None)
    for _ in range(4096):
        defaults.admission.accept(KEY, b"a", 1, None)
    assert queued(defaults.io_pool) == 2


def test_144_the_io_queue_never_blocks_a_sender() -> None:
    """With all IO threads blocked, hundreds of full batches queue; only the buffer's limit blocks a sender."""
    sink = GatedSink()
    producer = Producer(
        sink=sink,
        config=config(io_thread_count=1, batch_count_threshold=1, total_size_in_bytes=2_000_000, max_block_ms=0),
    )

    def fill() -> None:
        while True:
            producer.send("p", "l", LOG)

    with pytest.raises(SendTimeoutError):
        fill()
    sent = producer.stats().accepted
    assert sent > 300
    assert producer.stats().batches["queued"] >= sent - 1
    sink.gate.set()
    producer.close()
    assert producer.stats().delivered == sent


def test_linger_ms_is_2000_by_default_the_movers_wait_is_the_time_to_the_nearest_expiry() -> None:
    """linger_ms is 2000 by default; the mover's wait is the time to the nearest expiry."""
    assert ProducerConfig().linger_ms == 2000
    clock = ManualClock()
    sink = ScriptedSink([DOWN])
    pipeline = threadless(sink, clock, base_retry_backoff_ms=1000, max_retry_backoff_ms=1000)
    pipeline.admission.accept(KEY, record(), 1, None)
    clock.advance(2.0)
    pipeline.mover.run_once()
    pipeline.io_pool.run_next()
    pipeline.admission.accept(KEY._replace(topic="second"), record(), 1, None)
    clock.advance(0.5)
    assert pipeline.mover.run_once() == pytest.approx(1.5)
    assert queued(pipeline.io_pool) == 0
    clock.advance(0.5)
    assert pipeline.mover.run_once() == pytest.approx(1.0)
    assert queued(pipeline.io_pool) == 1
    clock.advance(1.0)
    pipeline.mover.run_once()
    assert queued(pipeline.io_pool) == 2


def test_146_with_nothing_due_the_mover_sleeps_linger_ms_also_while_the_network_is_down() -> None:
    """Idle, or with retries in the far future, the mover sleeps for linger_ms."""
    for sink in (RecordingSink(), DeadSink()):
        pipeline = threadless(sink, ManualClock(), base_retry_backoff_ms=50_000, linger_ms=700)
        pipeline.admission.accept(KEY, record(), 1, None)
        pipeline.accumulator.seal_open()
        settle(pipeline)
        assert [pipeline.mover.run_once() for _ in range(5)] == [0.7] * 5


def test_147_failures_that_are_permanent_or_retried_enough_or_late_fail_and_nothing_retries_for_ever() -> None:
    """A permanent error has one attempt; exhausted retries and a closed queue fail the batch."""
    pipeline = threadless(ScriptedSink([RejectedError("C", "x")]))
    pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.accumulator.seal_open()
    pipeline.io_pool.run_next()
    assert pipeline.stats().failed == 1

    clock, sink = JumpingClock(), DeadSink()
    crowded = threadless(sink, clock, retries=2, batch_count_threshold=1)
    for i in range(50):
        crowded.admission.accept(KEY._replace(topic=str(i)), record(), 1, lambda _result, _error: None)
    while crowded.accumulator.incomplete():  # no failure handler runs: its queue only grows
        clock.advance(60.0)
        crowded.mover.run_once()
        crowded.io_pool.run_next()
    assert len(sink.attempts) == 50 * 3
    assert crowded.settlement.failure.pending == 50

    closed = threadless(DeadSink())
    closed.admission.accept(KEY, record(), 1, None)
    closed.retry_queue.close()
    closed.accumulator.seal_open()
    closed.io_pool.run_next()
    assert closed.stats().failed == 1


def test_148_a_retry_waits_in_the_queue_and_never_in_the_io_thread() -> None:
    """After a transient failure the batch is in the retry queue, and the IO thread runs another batch."""
    clock = ManualClock()
    pipeline = threadless(ScriptedSink([DOWN]), clock, batch_count_threshold=1)
    first = pipeline.admission.accept(KEY, record(), 1, None)
    second = pipeline.admission.accept(KEY._replace(logstore="other"), record(), 1, None)
    pipeline.io_pool.run_next()
    assert (len(pipeline.retry_queue), clock.monotonic()) == (1, 0.0)
    pipeline.io_pool.run_next()
    assert (first.done(), second.done()) == (False, True)
    assert not pipeline.io_pool.run_next()


def test_149_the_retry_queue_gives_the_earliest_first_and_refuses_after_close() -> None:
    """Retries come out in the order of their times; a batch that fails after close fails permanently."""
    clock = ManualClock()
    waits = iter([3.0, 1.0, 2.0])
    sink = ScriptedSink([DOWN] * 3)
    pipeline = threadless(
        sink, clock, batch_count_threshold=1, retry_policy=RetryPolicy(wait=lambda _state: next(waits))
    )
    for topic in "abc":
        pipeline.admission.accept(KEY._replace(topic=topic), record(), 1, None)
    settle(pipeline)
    clock.advance(5.0)
    settle(pipeline)
    assert [delivery.key.topic for delivery in sink.deliveries] == ["b", "c", "a"]
    pipeline.retry_queue.close()
    assert not pipeline.retry_queue.put(object(), 0.0)  # type: ignore[arg-type]


def test_150_slow_failure_callbacks_do_not_stop_successes() -> None:
    """A hundred successes are reported while the failure handler hangs in a callback."""
    sink, gate, hanging = ScriptedSink([RejectedError("C", "x")]), threading.Event(), threading.Event()
    producer = Producer(sink=sink, config=config(batch_count_threshold=1))
    producer.send("p", "l", LOG, callback=lambda _r: hanging.set() or passed(gate))
    passed(hanging)
    told: list[Result] = []
    for _ in range(100):
        producer.send("p", "l", LOG, callback=told.append)
    eventually(lambda: len(told) == 100)
    gate.set()
    producer.close()


def test_151_a_handler_returns_memory_sets_futures_and_survives_callbacks_that_raise() -> None:
    """The handler sets the future, returns the memory, then calls back; a callback that raises stops no other one."""
    pipeline = threadless()
    seen: list[tuple[bool, int]] = []

    def first(_result: Result) -> None:
        seen.append((futures[0].done(), pipeline.budget.used))
        raise RuntimeError("mine")

    futures = [pipeline.admission.accept(KEY, record(), 1, first)]
    futures.append(
        pipeline.admission.accept(KEY, record(), 1, lambda _r: seen.append((futures[1].done(), pipeline.budget.used)))
    )
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert seen == [(True, 0), (True, 0)]


def test_152_io_threads_never_run_callbacks() -> None:
    """Callbacks and done-callbacks never run on IO threads."""
    sending: set[str] = set()
    telling: set[str] = set()
    sink = ScriptedSink([lambda _delivery: sending.add(threading.current_thread().name)] * 100)  # type: ignore[func-returns-value]
    with Producer(sink=sink, config=config(batch_count_threshold=1)) as producer:
        for _ in range(50):
            future = producer.send("p", "l", LOG, callback=lambda _r: telling.add(threading.current_thread().name))
            future.add_done_callback(lambda _f: telling.add(threading.current_thread().name))
    telling.discard(threading.main_thread().name)  # done-callbacks of completed futures
    assert sending
    assert telling
    assert not sending & telling


def test_153_memory_is_a_semaphore_with_a_timed_acquire_and_the_map_is_concurrent() -> None:
    """Twelve threads over ten streams with little memory deliver all records; all memory returns, none is overdrawn."""
    sink = RecordingSink()
    producer = Producer(sink=sink, config=config(total_size_in_bytes=30_000, linger_ms=100, batch_count_threshold=5))
    most: list[int] = []

    def work() -> None:
        for i in range(60):
            producer.send("p", "l", {"x": "y" * 50}, topic=str(i % 10))
            most.append(producer.stats().memory_used)

    for call in [Call(work) for _ in range(12)]:
        call.result()
    producer.close()
    assert len(sink.records()) == 720
    assert max(most) <= 30_000
    assert producer.stats().memory_used == 0


def test_154_oversized_empty_and_too_many_are_refused_each_with_its_error() -> None:
    """At send, three errors: over 8 MiB or the memory, null or empty, and over 40,960 logs."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        with pytest.raises(LogSizeTooLargeError, match="the limit is 8388608"):
            producer.send("p", "l", {"a": "x" * (8 * 2**20)})
        for arguments in (
            (None, "l", LOG),
            ("", "l", LOG),
            ("p", None, LOG),
            ("p", "", LOG),
            ("p", "l", None),
            ("p", "l", []),
        ):
            with pytest.raises(InvalidArgumentError):
                producer.send(*arguments)  # type: ignore[arg-type]
        with pytest.raises(MaxBatchCountExceedError, match="40961"):
            producer.send("p", "l", [LOG] * 40_961)
        assert producer.stats().accepted == 0
    small = Producer(sink=RecordingSink(), config=config(total_size_in_bytes=1000))
    with pytest.raises(LogSizeTooLargeError, match=r"total_size_in_bytes: .* the limit is 1000 bytes"):
        small.send("p", "l", LOG)
    small.close()


def test_155_close_ends_everything_within_its_timeout_or_raises_at_it() -> None:
    """A close in time ends threads, futures and callbacks; a late one raises; a negative timeout is refused."""
    producer, told = Producer(sink=RecordingSink(), config=config(name="intime")), []
    producer.send("p", "l", LOG, callback=told.append)
    producer.close(PATIENCE)
    assert len(told) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("intime-")]
    sink = GatedSink()
    late = Producer(sink=sink, config=config())
    late.send("p", "l", LOG)
    with pytest.raises(InvalidArgumentError, match="timeout"):
        late.close(-1)
    began = time.monotonic()
    with pytest.raises(CloseTimeoutError):
        late.close(0.05)
    assert time.monotonic() - began < allowed(5)
    sink.gate.set()


def test_156_close_may_be_called_many_times_and_from_many_threads() -> None:
    """A hundred closes from ten threads all return; everything is delivered exactly once."""
    sink = RecordingSink()
    producer = Producer(sink=sink, config=config())
    for _ in range(100):
        producer.send("p", "l", LOG)
    for call in [Call(lambda: [producer.close() for _ in range(10)]) for _ in range(10)]:
        call.result()
    assert len(sink.records()) == 100


@pytest.mark.parametrize("error", [None, RejectedError("C", "x")])
def test_157_close_inside_a_callback_does_not_deadlock(
    error: AttemptError | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A close in a callback does not join its own handler thread, and logs a warning."""
    closed = threading.Event()
    producer = Producer(sink=ScriptedSink([error]), config=config(batch_count_threshold=1))
    producer.send("p", "l", LOG, callback=lambda _r: producer.close() or closed.set())  # type: ignore[func-returns-value]
    passed(closed)
    assert "close was called on this thread" in caplog.text


def test_158_close_follows_the_data_and_gives_waiting_batches_a_last_attempt() -> None:
    """Close sends lingering batches at once and retries waiting ones once more; a further failure is final."""
    clock, told = JumpingClock(), []
    sink = ScriptedSink([DOWN, DOWN, None])
    pipeline = threadless(sink, clock, base_retry_backoff_ms=50_000, linger_ms=10**6)
    pipeline.admission.accept(KEY, record(), 1, told.append)
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert len(pipeline.retry_queue) == 1
    pipeline.admission.accept(KEY._replace(topic="open"), record(), 1, told.append)
    Shutdown(pipeline).close(10.0)
    assert clock.monotonic() == 0.0
    assert sorted(result.successful for result in told) == [False, True]
    assert len(sink.attempts) == 3
    assert sink.closed
    with pytest.raises(ProducerClosedError):
        pipeline.admission.accept(KEY, record(), 1, None)


def test_159_no_loss_at_close() -> None:
    """There are as many callbacks as sends, with a server that works, fails, or is down."""
    for sink in (RecordingSink(), DeadSink(), ScriptedSink([RejectedError("C", "x"), None, DOWN] * 50)):
        told: list[Result] = []
        producer = Producer(sink=sink, config=config(batch_count_threshold=3))
        for i in range(300):
            producer.send("p", "l", LOG, topic=str(i % 7), callback=told.append)
        producer.close()
        assert len(told) == 300
        assert sum(result.successful for result in told) == len(sink.records())


def test_160_a_bad_project_cannot_stop_the_others() -> None:
    """While all attempts of two dead projects hang, a third project's records are delivered promptly."""
    sink = GatedSink(projects={"dead-1", "dead-2"})
    hang = [True]

    def dead(project: str) -> bool:
        return project.startswith("dead")

    write = sink.write

    def attempt(delivery: object) -> object:
        if dead(delivery.key.project):  # type: ignore[attr-defined]
            if not hang[0]:
                raise DOWN
            write(delivery)  # type: ignore[arg-type]
            raise DOWN
        return RecordingSink.write(sink, delivery)  # type: ignore[arg-type]

    sink.write = attempt  # type: ignore[method-assign,assignment]
    hang[0] = False
    producer = Producer(
        sink=sink,
        config=config(io_thread_count=2, batch_count_threshold=1, base_retry_backoff_ms=1, max_retry_backoff_ms=1),
    )
    for project in ("dead-1", "dead-2"):
        producer.send(project, "l", LOG)
    pipeline = producer._pipeline
    assert pipeline is not None
    eventually(lambda: producer.stats().attempts >= 2 and not running(pipeline.io_pool))
    hang[0] = True
    for _ in range(20):
        for project in ("dead-1", "dead-2"):
            producer.send(project, "l", LOG)
    futures = [producer.send("alive", "l", LOG) for _ in range(50)]
    for future in futures:
        assert future.result(PATIENCE).successful
    hang[0] = False
    sink.gate.set()
    producer.close()
    assert producer.stats().memory_used == 0

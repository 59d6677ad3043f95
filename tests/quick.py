"""Which tests are quick: those of one room that need no server, no Java and no Spark, and take under a second.

`make quick` runs them, for every room of the package. The others of those directories are named here one by one; they
run in `make test` with all the rest.
"""

from __future__ import annotations

DIRECTORIES = ("tests/unit/", "tests/contract/")
# Hypothesis' tests that take a few seconds together, so that the laws of merging, folding and reading are in it too.
PROPERTIES = (
    "tests/property/test_arrow_batches.py",
    "tests/property/test_counter_merge.py",
    "tests/property/test_predicate_text.py",
    "tests/property/test_spellings.py",
)
# More than a second of a processor each, measured, or Java.
SLOW = (
    "tests/unit/capture/cassandra/agent/test_column_masks.py::test_every_column_of_every_type_can_be_left_out_and_nothing_else_changes",
    "tests/unit/capture/cassandra/segments/test_keystore.py::test_a_secret_key_is_what_java_says",
    "tests/unit/cli/test_main.py::test_plain_kernels_are_warned_of_with_the_remedy",
    "tests/unit/cli/test_run.py::test_code_in_the_working_directory_does_not_run_in_children",
    "tests/unit/deliver/delta/test_delta_crash.py::test_killed_at_any_call_the_batch_done_again_gives_the_same_tables",
    "tests/unit/deliver/iceberg/test_sink.py::test_another_writers_commit_makes_the_batch_be_done_again",
    "tests/unit/pipeline/test_losses.py::test_lost_answer_of_an_agent_skips_nothing",
    "tests/unit/pipeline/test_losses.py::test_resume_goes_on_exactly_behind_every_position",
    "tests/unit/pipeline/test_troubles.py::test_no_end_of_the_process_loses_or_repeats_anything",
    "tests/unit/serve/test_listener.py::test_clients_that_leave_in_the_middle_leave_nothing_to_the_garbage_collector",
    "tests/unit/serve/test_protocol.py::test_mutated_streams_give_messages_or_corrupt_frame_and_nothing_else",
    "tests/unit/system/test_extras.py::test_whatever_is_imported_is_declared",
    "tests/unit/test_soak_account.py::test_what_was_excused_is_not_kept_and_what_was_not_stays_a_loss",
    "tests/unit/test_tidy.py::test_functions_fit_a_screen",
    "tests/unit/test_tidy.py::test_no_test_is_skipped_or_sleeps",
)


def is_quick(name: str) -> bool:
    """Whether the test with this name is one of them."""
    if name.startswith(PROPERTIES):
        return True
    return name.startswith(DIRECTORIES) and name.split("[", 1)[0] not in SLOW

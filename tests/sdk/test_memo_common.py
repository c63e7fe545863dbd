"""The tests of all dialects' clients and workers, repeated for MemoDB."""

from __future__ import annotations

import pytest

from tests.sdk.test_client import (  # noqa: F401
    test_a_broker_that_answers_no_ping_is_given_up,
    test_a_call_brings_its_answer,
    test_a_cancelled_handle_stops_waiting_and_harms_nobody,
    test_a_handle_waits_later,
    test_a_late_answer_is_not_taken_for_the_next_one,
    test_a_lost_connection_is_made_again_and_the_request_sent_again,
    test_a_quiet_broker_that_answers_pings_is_waited_for,
    test_a_service_nobody_offers_can_be_told_at_once,
    test_a_waiter_may_go_without_the_job,
    test_an_idle_client_finds_a_restarted_broker,
    test_bytes_bring_bytes_unless_a_codec_is_named,
    test_closing_ends_what_is_under_way,
    test_impossible_names_are_refused_before_they_are_sent,
    test_many_calls_at_once_get_their_own_answers,
    test_no_call_outlives_its_time_even_while_connecting,
    test_nobody_there_is_unreachable_after_a_while,
    test_raw_frames_there_and_back,
    test_the_second_endpoint_takes_over,
    test_time_runs_out,
    test_without_retries_a_request_is_never_sent_twice,
)
from tests.sdk.test_failback import (  # noqa: F401
    both,
    second,
    test_a_broker_that_does_not_speak_is_not_back,
    test_a_first_broker_that_is_lost_again_is_no_harm,
    test_a_job_in_hand_is_finished_before_and_during_the_move,
    test_a_worker_may_be_told_to_stay,
    test_a_worker_stays_at_the_second_while_it_is_asked_there,
    test_an_idle_client_goes_back,
    test_calls_under_way_are_answered_where_they_were_asked,
    test_closing_ends_calls_that_are_under_way_there,
)
from tests.sdk.test_nfp import (  # noqa: F401
    test_what_other_dialects_cannot_say_is_told_at_once,
)
from tests.sdk.test_persistence import (  # noqa: F401
    test_a_workers_records,
)
from tests.sdk.test_testing import (  # noqa: F401
    test_join_does_not_wait_for_ever,
    test_join_waits_for_every_job,
)
from tests.sdk.test_worker import (  # noqa: F401
    test_a_context_tells_of_the_job,
    test_a_restarted_broker_finds_its_workers_again,
    test_a_running_worker_takes_no_more_services_and_no_second_run,
    test_a_service_calls_another,
    test_a_stopping_worker_begins_nothing_new,
    test_a_worker_without_a_broker_can_be_stopped,
    test_a_worker_without_services_does_not_run,
    test_answers_reach_nobody_after_the_connection_was_lost,
    test_idle_workers_stay_registered_by_their_heartbeats,
    test_it_says_what_it_offers_and_may_be_sent_to_another_broker,
    test_names_come_from_the_decorator_or_the_function,
    test_so_many_jobs_run_at_once_and_no_more,
    test_stopping_finishes_the_job_in_hand,
    test_stopping_twice_does_not_wait,
    test_threads_run_side_by_side,
    test_workers_follow_to_the_second_endpoint,
)
from tests.sdk.test_worker_log import (  # noqa: F401
    test_a_worker_tells_where_it_offers_and_when_it_does_again,
)


@pytest.fixture
def dialect() -> str:
    return "memo"

"""Which tests are nightly, which take longer than others, and which need no other process.

Paths are relative to `tests`; a test compares every line with the tree.
"""

NIGHTLY_FILES = (
    "adapters/aimock/*",
    "adapters/live/*",
    "adapters/test_sdk_clients.py",
    "browser/adapters/*",
    "conformance/data_analyst/*",
    "conformance/test_behind_node.py",
    "conformance/test_grpc_node.py",
    "conformance/test_http_agent.py",
    "conformance/test_thread_list.py",
    "extensions/analyst/engine/test_postgres.py",
    "extensions/cluster/test_[a-oq-z]*.py",
    "extensions/frameworks/crewai/*",
    "extensions/frameworks/langgraph/*",
    "extensions/knowledge/graph/test_worlds.py",
    "extensions/knowledge/ingestion/test_kill.py",
    "extensions/knowledge/ingestion/test_repetition.py",
    "extensions/knowledge/rdf/test_hostile_pages.py",
    "extensions/knowledge/vectors/test_pgvector.py",
    "extensions/mcp/server/test_mcp_pipes.py",
    "extensions/operations/test_silent_database.py",
    "extensions/planner/test_dbos.py",
    "extensions/planner/test_postgres.py",
    "fuzz/*",
    "site/*",
    "test_simulation.py",
    "test_trip_examples.py",
    "threads/test_kill_v1.py",
    "threads/test_postgres.py",
    "wire/test_nginx.py",
    "wire_agui/test_stalled_memory.py",
)
"""Files that only `make test-all` runs; `make test` does not even import them."""

DAILY_BROWSER = frozenset(
    {
        "test_a_booking_waits_for_approval_and_then_goes_on",
        "test_a_button_of_a_form_reaches_the_agent_once",
        "test_a_hostile_surface_does_no_harm",
        "test_a_login_is_sent_with_every_request_and_outlives_a_reload",
        "test_a_page_of_v1_has_the_plan_and_approves_a_task",
        "test_a_page_with_script_runs_in_a_sandbox",
        "test_a_pdf_and_a_table_are_read_and_cited_and_go_with_their_thread",
        "test_on_a_phone_threads_are_a_drawer_and_the_panel_covers_the_chat",
        "test_a_plan_is_seen_while_it_grows_and_its_questions_are_answered",
        "test_a_reload_in_the_middle_goes_on_with_the_answer_complete_and_once",
        "test_a_reload_in_the_middle_of_an_answer_loses_nothing_and_repeats_nothing",
        "test_a_run_is_a_waterfall_with_what_each_step_was_told",
        "test_a_second_tab_sees_the_running_answer_and_the_ones_after_it",
        "test_actions_of_the_browser_change_the_page_and_are_reported_to_the_model",
        "test_an_action_of_the_server_shows_its_arguments_and_its_result",
        "test_an_answer_grows_on_the_page_while_the_model_is_still_speaking",
        "test_an_answer_has_sources_that_open",
        "test_an_error_in_the_middle_keeps_the_words_before_it",
        "test_an_mcp_app_gets_its_result_and_calls_its_tool",
        "test_text_grows_while_the_model_speaks",
        "test_the_next_question_alone_is_asked_with_the_changes",
        "test_the_page_knowledge_shows_what_there_is_and_what_failed",
        "test_threads_survive_a_restart_of_the_server",
        "test_two_browsers_see_each_others_threads_without_a_reload",
        "test_what_a_model_says_is_never_markup",
        "test_what_models_write_is_shown_as_it_is",
    }
)
"""The tests of `browser` that `make test` runs: one for each page, and what breaks most."""

DAILY_CLI = frozenset(
    {
        "test_a_server_on_loopback_answers_only_for_this_machine",
        "test_a_server_told_to_stop_ends_open_answers_with_a_word",
        "test_one_message_shows_text_actions_and_their_results",
        "test_the_version_is_shown",
    }
)
"""The tests of `cli/test_cli.py` that `make test` runs: each starts a process of two seconds."""

DAILY_MATRIX = frozenset(
    {
        "test_a_new_route_or_transport_is_a_door_without_a_row",
        "test_one_person_is_the_same_by_a_key_by_a_token_and_by_a_proxy",
        "test_whatever_one_tries_by_whichever_route_the_thread_of_the_other_does_not_exist",
    }
)
"""The tests of the matrix of access that do not run all of it."""

DAILY = {
    "browser/*": DAILY_BROWSER,
    "cli/test_cli.py": DAILY_CLI,
    "extensions/access/test_matrix.py": DAILY_MATRIX,
}
"""Files of which `make test` runs only the functions listed."""

NIGHTLY_FIXTURES = frozenset({"cluster", "database"})
"""Tests that need a PostgreSQL are nightly: the same claims are tested with SQLite."""

NIGHTLY_PARAMETERS = frozenset({"postgres", "postgresql", "redis"})
"""The same for tests of several stores, by a part of their parameters' id."""

NIGHTLY_TESTS = {
    "actions/test_execute.py": "test_any_text_as_arguments_gives_a_text",
    "adapters/embeddings/test_local.py": (
        "test_minilm_answers_a_question_after_the_batch_that_goes_on"
    ),
    "adapters/test_bedrock_frames.py": "test_botocore_reads_the_same",
    "adapters/test_demo.py": "test_no_schema_is_too_odd_to_fill",
    "agui/test_messages.py": """
        test_whatever_a_client_sends_is_sent_on_as_it_was
        test_what_we_keep_of_a_conversation_is_the_same_when_it_comes_again
    """,
    "agui/test_patch.py": "test_a_large_state_may_have_copies_of_something_small",
    "base/test_jsontext.py": "test_half_characters_are_replaced_and_nothing_else_is_changed",
    "extensions/access/test_audit.py": "test_several_processes_write_one_chain",
    "extensions/access/test_report.py": """
        test_nobody_chooses_an_address_but_by_a_proxy_that_is_named
        test_urls_begin_as_the_proxy_was_asked
    """,
    "extensions/access/test_usage.py": (
        "test_places_of_a_server_that_was_killed_are_free_when_their_time_is_over"
    ),
    "extensions/analyst/test_charts.py": ("test_an_image_is_a_png_and_an_svg_with_the_title"),
    "extensions/analyst/engine/test_sources.py": """
        test_each_user_saves_so_many_sets_and_replaces_those
        test_the_name_of_a_saved_set_tells_nothing_of_those_of_others
    """,
    "extensions/analyst/test_cli.py": """
        test_an_approved_file_is_saved_here
        test_questions_of_a_file_pass_or_fail_by_their_rows
    """,
    "extensions/analyst/test_example.py": """
        test_copilot_yml_says_which_data_and_questions_are_tested
        test_the_demo_model_draws_a_chart_and_finds_what_is_wrong
    """,
    "extensions/analyst/test_problems.py": (
        "test_a_metric_is_computed_as_it_is_defined_or_not_at_all"
    ),
    "extensions/assistants/test_agent.py": (
        "test_a_template_cannot_take_the_memory_or_the_time_of_a_server"
    ),
    "extensions/frameworks/test_langgraph_inprocess_people.py": (
        "test_a_large_event_of_many_lines_is_read_once"
    ),
    "extensions/generative_ui/test_a2ui_surfaces.py": (
        "test_a_long_list_is_not_sent_again_for_each_item"
    ),
    "extensions/generative_ui/test_mcp_apps_hostile.py": (
        "test_of_very_many_tools_an_agent_gets_as_many_as_models_take"
    ),
    "extensions/grpc/test_codegen.py": (
        "test_a_service_is_found_in_the_folder_where_the_server_starts"
    ),
    "extensions/grpc/test_knowledge.py": (
        "test_calls_that_have_ended_leave_nothing_to_the_collector"
    ),
    "extensions/grpc/test_remote.py": "test_mistakes_are_one_sentence",
    "extensions/guardrails/test_phrases.py": "test_no_text_takes_long_to_be_judged",
    "extensions/knowledge/graph/test_example.py": "test_data_with_a_mistake_do_not_conform",
    "extensions/knowledge/graph/test_ontology.py": (
        "test_four_times_as_much_that_is_invented_takes_hardly_more_than_four_times_as_long"
    ),
    "extensions/knowledge/graph/test_sparql.py": """
        test_a_query_that_runs_long_is_stopped
        test_a_query_that_needs_too_much_memory_is_stopped
        test_those_who_see_the_same_share_a_process
        test_queries_are_answered_side_by_side
    """,
    "extensions/knowledge/graph/test_spellings.py": (
        "test_four_times_as_much_of_any_token_takes_about_four_times_as_long"
    ),
    "extensions/knowledge/ingestion/test_documents.py": """
        test_what_takes_all_memory_ends_alone
        test_a_document_in_the_sandbox_is_the_same
    """,
    "extensions/knowledge/memory/test_index.py": (
        "test_processes_that_append_at_the_same_time_lose_nothing"
    ),
    "extensions/knowledge/policies/test_cedar.py": "test_an_answer_is_asked_for_once",
    "extensions/knowledge/policies/test_document.py": """
        test_both_ways_to_judge_say_the_same
        test_a_rule_of_which_is_said_that_it_never_matters_does_not
    """,
    "extensions/knowledge/rdf/test_canonical.py": (
        "test_a_circle_that_would_take_minutes_is_refused"
    ),
    "extensions/knowledge/test_agents.py": """
        test_an_agent_recalls_what_was_said_in_the_thread_of_its_user
        test_an_agent_finds_what_its_user_may_read
    """,
    "extensions/knowledge/test_example.py": """
        test_the_server_of_the_example_answers_with_a_source_that_opens
        test_the_ontology_accepts_the_data
        test_the_ontology_is_valid_shacl
        test_each_is_answered_with_a_source_that_opens
    """,
    "extensions/knowledge/test_kill.py": "test_the_next_update_completes_what_a_kill_cut_off",
    "extensions/knowledge/test_resources.py": "test_a_writer_may_be_killed_at_any_moment",
    "extensions/knowledge/uploads/test_chat_files.py": """
        test_a_name_is_one_line_without_tricks
        test_of_thousands_of_files_as_many_are_taken_in_as_a_thread_may_have
    """,
    "extensions/knowledge/uploads/test_threads_gone.py": """
        test_a_file_that_is_deleted_while_it_waits_leaves_the_queue
        test_the_next_file_is_that_of_another_and_of_ones_own_the_smallest
    """,
    "extensions/knowledge/uploads/test_uploads.py": """
        test_a_killed_server_completes_or_forgets_with_its_next_start
        test_of_what_is_too_long_the_beginning_is_taken_in
        test_files_that_wait_are_not_in_memory_and_too_many_are_refused
        test_what_is_added_meanwhile_is_not_taken_for_gone
        test_a_file_costs_the_same_in_a_large_knowledge_base
        test_a_file_that_two_processes_read_is_one
        test_limits_of_an_owner_hold_for_files_that_come_at_once
    """,
    "extensions/mcp/client/test_sessions.py": """
        test_a_process_gets_no_variables_but_its_own
        test_a_stdio_server_is_started_and_stops_cancelled_calls
    """,
    "extensions/operations/test_deploy.py": "test_compose_fits_its_schema",
    "extensions/operations/test_health.py": """
        test_a_server_that_is_to_stop_says_so_before_it_takes_no_more
        test_a_server_whose_database_hangs_says_soon_that_it_is_not_ready
    """,
    "extensions/planner/test_cli.py": """
        test_a_plan_is_found_by_the_beginning_of_its_id
        test_a_plan_is_stopped_and_done_again
        test_a_plan_that_takes_longer_than_a_run_may_is_watched_to_its_end
        test_a_question_of_an_assistant_is_answered_later
        test_a_request_may_be_piped_and_needs_no_plan
        test_a_server_that_goes_away_leaves_the_command_that_watches_the_plan_again
        test_what_cannot_be_done_with_a_plan_is_said
        test_what_cannot_be_planned_is_said
        test_who_leaves_a_watch_leaves_the_plan_as_it_is
        test_who_does_not_answer_leaves_the_plan_waiting
    """,
    "extensions/planner/test_takeover.py": (
        "test_a_task_that_another_server_took_over_has_its_effect_once"
    ),
    "extensions/planner/test_retention.py": (
        "test_more_plans_than_are_deleted_at_once_are_stopped_and_deleted"
    ),
    "extensions/scenarios/test_agents.py": (
        "test_the_scenarios_of_the_assistants_pass_and_report_the_same_twice"
    ),
    "extensions/scenarios/test_runs.py": """
        test_a_bar_is_drawn_on_a_terminal
        test_ctrl_c_writes_the_report_and_ends_with_130
    """,
    "storage/test_alike.py": "test_a_bucket_does_what_memory_does",
    "storage/test_s3.py": """
        test_ten_writers_lose_nothing_while_it_is_merged
        test_a_reader_that_is_always_overtaken_gives_up
        test_processes_lose_nothing_of_each_other
    """,
    "extensions/tools/catalog/grpc/test_mistakes.py": "test_fifty_megabytes_are_refused",
    "extensions/tools/catalog/grpc/test_reflection.py": (
        "test_a_description_is_read_again_later_and_the_last_one_counts"
    ),
    "extensions/tools/catalog/test_hostile.py": "test_tools_of_all_kinds_harm_only_their_own_calls",
    "extensions/tools/catalog/test_mcp.py": "test_a_server_may_be_a_command",
    "extensions/tracing/store/test_query.py": (
        "test_what_grows_without_end_is_refused_before_it_does"
    ),
    "extensions/tracing/test_cli.py": "test_a_server_is_asked_by_its_url",
    "extensions/tracing/test_receive_logs.py": (
        "test_garbage_is_rejected_or_read_and_never_an_exception"
    ),
    "http/test_http_connection.py": "test_connections_of_an_event_loop_that_was_closed_are_let_go",
    "plugin/test_rerun.py": """
        test_a_run_is_red_if_more_than_three_are_unstable
        test_a_run_is_red_if_a_test_fails_alone
        test_nothing_runs_again_if_more_than_twenty_fail
        test_nothing_runs_again_with_maxfail
        test_a_run_is_red_if_a_file_cannot_be_imported
    """,
    "plugin/test_selection.py": """
        test_a_seed_repeats_the_order_of_files_and_functions
        test_workers_collect_in_the_same_order
    """,
    "runtime/test_runtime.py": (
        "test_a_run_that_ended_lets_go_of_its_request_though_nobody_stops_it"
    ),
    "telemetry/test_logs.py": """
        test_a_line_of_json_is_one_object
        test_a_log_that_the_application_configures_is_the_only_one
        test_debug_lines_of_a_namespace_are_written_where_nobody_configures_a_log
    """,
    "test_locks.py": "test_the_lock_of_what_serves_is_enough_to_serve",
    "test_public_names.py": "test_a_public_name_can_be_imported_alone",
    "testing/test_client.py": "test_the_fixtures_open_clients_and_close_them",
    "threads/test_alike.py": "test_a_file_and_a_memory_never_differ",
    "threads/test_compact.py": """
        test_a_live_run_goes_on_after_a_replay_of_its_beginning
        test_a_replay_shows_what_the_live_run_showed
        test_any_log_becomes_one_in_order
        test_a_short_log_becomes_no_shorter
        test_what_has_no_parts_stays_as_it_is_and_where_it_is
    """,
    "threads/test_export.py": """
        test_an_export_by_command_is_imported_by_command
        test_a_file_with_a_wrong_line_changes_nothing
        test_a_dash_is_the_standard_output_and_input
        test_a_file_that_cannot_be_opened_is_said
        test_an_import_that_breaks_off_says_how_far_it_came
        test_days_without_a_date_are_refused
        test_threads_are_listed_with_nothing_a_terminal_would_obey
        test_a_terminal_gets_a_table_of_threads
        test_the_latest_threads_are_listed_and_that_there_are_older_ones
        test_a_list_of_the_latest_threads_does_not_read_all_of_them
        test_old_threads_expire_by_command
        test_a_dry_run_names_what_would_expire_and_deletes_nothing
        test_a_place_without_threads_is_said
    """,
    "threads/test_run_log.py": "test_states_with_little_changed_count_by_what_changed",
}
"""Single functions, separated by blanks, that cost more than about a second of CPU each."""

NIGHTLY_CASES = (
    "wire_agui/test_stalled.py::test_the_connection_of_a_stalled_client_*HttpToolsProtocol-under_middleware-connect[]]",
    "wire_agui/test_stalled.py::test_the_connection_of_a_stalled_client_*H11Protocol*",
    "plugin/test_rerun.py::test_a_run_is_green_*[[]xdist[]]",
    "extensions/access/test_matrix.py::test_whatever_one_tries_*[[]api_keys-*",
    "extensions/access/test_matrix.py::test_whatever_one_tries_*[[]jwt-two tenants[]]",
    "extensions/access/test_matrix.py::test_whatever_one_tries_*[[]proxy-*",
    "extensions/access/test_matrix.py::test_whatever_one_tries_*[[]service_tokens-*",
    "extensions/knowledge/graph/test_sparql.py::*[[]*disk*[]]",
    "extensions/knowledge/test_access.py::test_no_route_*[[]cedar*",
    "extensions/knowledge/test_access.py::test_no_route_*[[]rego*",
)
"""Patterns of node ids for single cases of functions with parameters."""

PROCESSES = (
    "browser/*",
    "cli/test_cli.py",
    "conformance/test_*.py",
    "extensions/knowledge/test_kill.py",
    "extensions/knowledge/vectors/test_kill.py",
    "extensions/operations/test_backup.py",
    "extensions/operations/test_health.py",
    "extensions/planner/test_takeover.py",
    "threads/test_export.py",
    "threads/test_kill.py",
)
"""Files that drive a browser, npm, or a server in a process of its own, but are not nightly."""

EXTENSIVE = (
    "extensions/*",
    "site/*",
    "fuzz/*",
    "conformance/*",
    "wire_agui/*",
    "adapters/contract/*",
)
"""What `make test-quick` leaves out besides: it tests the core alone."""

SLOW_LIMIT = 300
"""Seconds that a test of `SLOW` may take; all others have the limit of `pyproject.toml`."""

SLOW = (
    *NIGHTLY_FILES,
    *PROCESSES,
    "actions/test_execute.py",
    "agui/test_event_decoder.py",
    "agui/test_messages.py",
    "agui/test_patch.py",
    "base/test_jsontext.py",
    "extensions/a2a/client/test_a2a_surfaces.py",
    "extensions/access/test_audit.py",
    "extensions/access/test_audit_dead_runs.py",
    "extensions/access/test_matrix.py",
    "extensions/analyst/engine/test_sources.py",
    "extensions/analyst/sql/test_repair.py",
    "extensions/analyst/test_agent.py",
    "extensions/analyst/test_cli.py",
    "extensions/analyst/test_example.py",
    "extensions/analyst/test_loops.py",
    "extensions/analyst/test_problems.py",
    "extensions/analyst/test_tracing.py",
    "extensions/analyst/test_upkeep.py",
    "extensions/analyst/tools/test_tools.py",
    "extensions/assistants/test_agent.py",
    "extensions/cluster/test_peers.py",
    "extensions/events/test_log.py",
    "extensions/frameworks/test_langgraph_inprocess_people.py",
    "extensions/frameworks/test_pydantic_ai.py",
    "extensions/generative_ui/test_a2ui_surfaces.py",
    "extensions/generative_ui/test_mcp_apps.py",
    "extensions/generative_ui/test_mcp_apps_hostile.py",
    "extensions/generative_ui/test_open_generative_ui.py",
    "extensions/knowledge/graph/test_example.py",
    "extensions/knowledge/graph/test_ontology.py",
    "extensions/knowledge/graph/test_sparql.py",
    "extensions/knowledge/graph/test_spellings.py",
    "extensions/knowledge/ingestion/test_documents.py",
    "extensions/knowledge/ingestion/test_ingestion.py",
    "extensions/knowledge/memory/test_index.py",
    "extensions/knowledge/memory/test_memories.py",
    "extensions/knowledge/policies/test_cedar.py",
    "extensions/knowledge/policies/test_rules.py",
    "extensions/knowledge/rdf/test_canonical.py",
    "extensions/knowledge/test_access.py",
    "extensions/knowledge/test_agents.py",
    "extensions/knowledge/test_commands.py",
    "extensions/knowledge/test_example.py",
    "extensions/knowledge/test_resources.py",
    "extensions/knowledge/uploads/test_uploads.py",
    "extensions/operations/test_backup_commands.py",
    "extensions/operations/test_deploy.py",
    "extensions/operations/test_migrate.py",
    "extensions/planner/test_retention.py",
    "storage/test_alike.py",
    "extensions/tools/catalog/grpc/test_mistakes.py",
    "extensions/tools/catalog/grpc/test_reflection.py",
    "extensions/tools/catalog/test_hostile.py",
    "extensions/tools/catalog/test_mcp.py",
    "extensions/tracing/store/test_machine.py",
    "http/test_sse.py",
    "threads/test_compact.py",
    "threads/test_run_log.py",
)
"""Files with tests that took more than eight seconds on a busy machine, or that may."""

SHARED_SERVERS = ("extensions/frameworks/langgraph", "storage")
"""Folders whose files share a server that takes seconds to start: one worker runs all of them."""

LONG_FILES = (*NIGHTLY_FILES, *PROCESSES, "threads/*")
"""Files that take longest: they start first, so that no worker waits for them at the end."""

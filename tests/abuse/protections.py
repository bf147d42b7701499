"""`python -m tests.abuse.protections`: removes each protection from a copy of Kron; the test of its line must fail.

The table of these rows is in `docs/explanation/threat-model.md`.
"""
# ruff: noqa: E501 - the words of the source stand as they are there

import sys

from tools.planted import ROOT, Planted, page_table, parsed, try_each, write_table

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
SERVICE, AUTH, LAUNCHERS = "fronts/service", "fronts/service/auth", "launchers"
# A protection is removed as a fault is put in; `name` says what is promised with it.
Protection = Planted


def _abuse(name: str) -> str:
    return f"tests/service/test_abuse.py::test_a_hostile_request_costs_no_more_processor_time_than_its_budget[{name}]"


def _loop(name: str) -> str:
    return f"tests/service/test_loop.py::test_no_request_keeps_the_event_loop[{name}]"


PROTECTIONS = (
    # --- starting is isolated from answering ---
    Protection(
        "the worker has a process of its own",
        f"{SERVICE}/serve.py",
        "if store_kind_of(settings.store_url) == MEMORY_KIND:",
        "if True:",
        "tests/service/test_worker_process.py::test_starts_go_out_while_the_api_is_frozen",
    ),
    Protection(
        "idle connections make room for new ones",
        f"{AUTH}/tls.py",
        "if len(self.connections) > self.max_open and self.idle:",
        "if False:",
        "tests/service/test_fairness.py::test_a_thousand_idle_connections_stop_neither_starts_nor_answers",
    ),
    Protection(
        "an answer has a budget of processor time",
        "app/budget.py",
        "return processor_time() >= self._ends_at",
        "return False",
        "tests/service/test_abuse.py::test_a_list_of_costly_schedules_is_refused_or_shortened_within_its_budget",
    ),
    Protection(
        "a preview uses its budget",
        f"{SERVICE}/client.py",
        "now=self._registrar.now(), count=count, budget=CpuBudget())",
        "now=self._registrar.now(), count=count, budget=_NO_BUDGET)",
        "tests/service/auth/test_limits.py::test_a_preview_ends_when_its_processor_time_is_spent",
        (("class BackfillRange(", "_NO_BUDGET = CpuBudget(1e9)\n\n\nclass BackfillRange("),),
    ),
    Protection(
        "a list of schedules has a budget",
        "app/query.py",
        "for job in budget.each(jobs)",
        "for job in jobs",
        "tests/service/test_abuse.py::test_a_list_of_costly_schedules_is_refused_or_shortened_within_its_budget",
    ),
    Protection(
        "the plan of an edit has a budget",
        f"{SERVICE}/web/edit.py",
        "start, end, check=budget.check)",
        "start, end)",
        "tests/service/test_abuse.py::test_a_hostile_request_costs_no_more_processor_time_than_its_budget[the plan of an edit]",
    ),
    Protection(
        "a page of an export has a budget",
        f"{SERVICE}/definitions.py",
        "            if budget.is_spent:\n                break\n        return shown",
        "        return shown",
        "tests/service/auth/test_limits.py::test_a_page_of_an_export_ends_when_its_processor_time_is_spent",
    ),
    # --- no request keeps the event loop of the API ---
    Protection(
        "threads that compute answers give way quickly",
        f"{SERVICE}/serve.py",
        "yield_quickly()",
        "pass",
        "tests/service/test_compute_pool.py::test_a_service_lets_threads_that_compute_give_way_quickly",
    ),
    Protection(
        "the values of a body are limited",
        f"{SERVICE}/json_text.py",
        "if count > most:",
        "if False:",
        _loop("a body of many lists"),
    ),
    Protection(
        "a request that defines nothing has a small body",
        f"{SERVICE}/api/middleware.py",
        "return self._max_body if need is not None and need.large else min(self._max_body, SMALL_BODY)",
        "return self._max_body",
        _loop("a body of a megabyte for a small request"),
    ),
    Protection(
        "fields beyond those of any request are not described",
        f"{SERVICE}/api/models.py",
        "if isinstance(value, dict) and len(value) > MAX_FIELDS:",
        "if False:",
        _loop("a request of many fields"),
    ),
    Protection(
        "versions of workflows are compared beside the event loop",
        f"{SERVICE}/registrar.py",
        "await compute(check_deployed, deployment, known, self.rules)",
        "check_deployed(deployment, known, self.rules)",
        _loop("the same workflow in another order"),
    ),
    Protection(
        "the next start is searched beside the event loop",
        f"{SERVICE}/registrar.py",
        "following = (work() if is_plain else await self.compute_pool.run_always(work)).nominal_time",
        "following = work().nominal_time",
        _loop("the dry run of an upsert"),
    ),
    Protection(
        "a large form is decoded beside the event loop",
        f"{SERVICE}/web/render.py",
        "return await pool.run_always(_fields_of, form)",
        "return _fields_of(form)",
        _loop("a form of many escapes"),
    ),
    Protection(
        "bulk lines let other requests have their turn",
        f"{SERVICE}/bulk.py",
        "await asyncio.sleep(0)",
        "pass",
        _loop("bulk lines of unknown zones"),
    ),
    Protection(
        "the next starts of a deployment have a budget",
        f"{SERVICE}/registrar.py",
        "                if budget.is_spent:\n                    break\n            return times",
        "            return times",
        _abuse("100 triggers that find no time"),
    ),
    # --- attacks that were reproduced ---
    Protection(
        "no route parses a cookie",
        f"{AUTH}/middleware.py",
        'scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]',
        "pass",
        _abuse("a cookie of backslashes"),
    ),
    Protection(
        "a slow head is given up",
        f"{AUTH}/tls.py",
        "self._timer = self.loop.call_later(self.timeout_s, self._disconnect)",
        "self._timer = self.loop.call_later(3600, self._disconnect)",
        "tests/service/auth/test_hostile.py::test_a_head_that_comes_drop_by_drop_is_given_up",
    ),
    Protection(
        "a dripping body is given up",
        f"{SERVICE}/api/middleware.py",
        "if not is_whole and waited_s > allowed_s:",
        "if False:",
        "tests/service/auth/test_hostile.py::test_a_body_that_comes_drop_by_drop_is_given_up",
    ),
    Protection(
        "a client that leaves early writes no line of the log",
        f"{SERVICE}/app.py",
        "    (ClientDisconnect, problem.of_disconnect),\n",
        "",
        "tests/service/auth/test_hostile.py::test_a_client_that_leaves_or_sends_garbage_writes_no_line_of_the_log",
    ),
    Protection(
        "bytes that are no request write no line of the log",
        f"{SERVICE}/http_server.py",
        'log_level="error",',
        "",
        "tests/service/auth/test_hostile.py::test_a_client_that_leaves_or_sends_garbage_writes_no_line_of_the_log",
    ),
    Protection(
        "large bodies of one user wait for each other",
        f"{AUTH}/turns.py",
        "if self._counts[caller] >= AT_ONCE + MAX_WAITING:",
        "if False:",
        "tests/service/auth/test_hostile.py::test_large_bodies_of_one_caller_wait_for_each_other_and_for_nobody_else",
    ),
    Protection(
        "answers of one user that need much memory wait for each other",
        f"{AUTH}/middleware.py",
        "await (self._in_turn if need.heavy else self._answered)(caller, scope, receive, send)",
        "await self._answered(caller, scope, receive, send)",
        "tests/service/auth/test_hostile.py::test_heavy_answers_of_one_caller_wait_for_each_other_and_for_nobody_else",
    ),
    Protection(
        "responses that are not read are given up",
        f"{AUTH}/tls.py",
        "self._write_timer = self.loop.call_later(self.timeout_s, self.transport.abort)",
        "pass",
        "tests/service/auth/test_hostile.py::test_a_client_that_does_not_read_its_responses_is_disconnected",
    ),
    Protection(
        "answers that a caller has not read are bounded in bytes",
        f"{AUTH}/middleware.py",
        "is_refused = is_safe and not self._unread.has_room(caller, announced)",
        "is_refused = False",
        "tests/service/test_abuse.py::test_outputs_that_are_not_read_do_not_fill_the_memory",
    ),
    Protection(
        "a long answer is written as it is read",
        f"{AUTH}/tls.py",
        "await chosen(scope, receive, _in_pieces(send))",
        "await chosen(scope, receive, send)",
        "tests/service/test_abuse.py::test_outputs_that_are_not_read_do_not_fill_the_memory",
    ),
    Protection(
        "a body in tiny parts is refused",
        f"{AUTH}/tls.py",
        "if self._parts > FREE_PARTS and self._bytes < MIN_PART * self._parts:",
        "if False:",
        "tests/service/auth/test_hostile.py::test_a_body_in_tiny_parts_is_refused",
    ),
    Protection(
        "a body whose end is ambiguous is refused",
        f"{AUTH}/tls.py",
        'if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):',
        "if False:",
        "tests/service/auth/test_hostile.py::test_a_body_whose_end_another_server_may_see_differently_is_refused",
    ),
    Protection(
        "headers are bounded by their sum",
        f"{SERVICE}/api/middleware.py",
        'if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD:',
        "if False:",
        "tests/service/auth/test_hostile.py::test_headers_are_bounded_by_the_sum_of_all",
    ),
    Protection(
        "errors of bulk lines hold no values; a batch has a budget and a size",
        f"{SERVICE}/bulk.py",
        "self._errors.append((number, _without_values(spec)))",
        "self._errors.append((number, spec))",
        "tests/service/test_abuse.py::test_bulk_lines_of_nested_lists_do_not_fill_the_memory",
        (
            ("return bool(self._errors) and self._budget.is_spent", "return False"),
            (" or self._bytes >= BATCH_BYTES", ""),
        ),
    ),
    Protection(
        "invalid lines are described within a budget",
        f"{SERVICE}/bulk.py",
        "return bool(self._errors) and self._budget.is_spent",
        "return False",
        _abuse("20,000 lines of unknown zones"),
    ),
    Protection(
        "unknown fields are named up to a limit",
        "core/fields.py",
        "for name in unknown[:MAX_UNKNOWN]:",
        "for name in unknown:",
        _abuse("45,000 unknown fields"),
    ),
    Protection(
        "names are looked up in the turns of their users",
        "launchers/http/client.py",
        "_turns_of(loop).start(partial(_look_up, host, lookup), Share(tenant))",
        "loop.create_task(_look_up(host, lookup))",
        "tests/launchers/http/test_client.py::test_hosts_that_are_not_found_take_few_lookups_of_their_tenant_and_none_of_others",
    ),
    Protection(
        "a search of an output has a budget",
        "fronts/service/web/output.py",
        "if number % PER_CHECK == 0 and budget.is_spent:",
        "if False:",
        "tests/service/web/test_output.py::test_a_search_of_a_large_output_says_how_much_was_searched",
    ),
    Protection(
        "notices of one owner are read in parts",
        "app/notify/sender.py",
        "limit=MAX_GROUP, of_owner=MAX_READ)",
        "limit=MAX_GROUP)",
        "tests/app/test_notify.py::test_a_flood_of_one_owner_is_read_in_parts",
    ),
    Protection(
        "users who share a channel have messages of their own",
        f"{SERVICE}/settings.py",
        "are_apart=self.has_users,",
        "are_apart=False,",
        "tests/service/test_hostile_notices.py::test_hostile_tenants_who_share_a_channel_delay_no_notification_of_another",
    ),
    Protection(
        "owners of one target take turns in the outbox",
        "stores/sql/sqlite/statements.sql",
        "ORDER BY batch IS NULL, turn, number) AS place",
        "ORDER BY number) AS place",
        "tests/app/test_notify.py::test_a_flood_to_a_target_hides_no_notice_of_another_owner",
    ),
    Protection(
        "a target that hangs takes few messages at once",
        "app/notify/sender.py",
        "if has_turn and targets[target] < MAX_OF_TARGET:",
        "if has_turn:",
        "tests/app/test_notify.py::test_owners_who_share_a_target_that_hangs_send_a_few_messages_to_it_at_once",
    ),
    Protection(
        "notices of one owner that wait are bounded",
        "app/notify/sender.py",
        "if any(count >= MAX_READ for count in counts.values()):",
        "if False:",
        "tests/service/test_hostile_notices.py::test_notifications_of_one_owner_that_nobody_takes_are_given_up",
    ),
    Protection(
        "a document is checked without writing the path of each value",
        "core/fields.py",
        "left += (((place, number), each) for number, each in enumerate(value))",
        'left += (((None, f"{place}{number}"), each) for number, each in enumerate(value))',
        "tests/service/test_hostile_memory.py::test_a_long_name_around_many_values_is_not_written_for_each_of_them",
    ),
    Protection(
        "earlier definitions that have periods left are bounded",
        "core/plan/registration.py",
        'if len(record.past or "") > MAX_PAST:',
        "if False:",
        "tests/service/test_fairness.py::test_edits_of_a_paused_schedule_delay_no_start_of_another_tenant",
    ),
    Protection(
        "few definitions are kept compiled and written",
        "core/plan/compiled.py",
        "MAX_WRITTEN, MAX_OPTIONS, MAX_ENTRIES = 4_096, 512, 20",
        "MAX_WRITTEN, MAX_OPTIONS, MAX_ENTRIES = 100_000, 100_000, 200",
        "tests/service/test_hostile_memory.py::test_small_definitions_that_differ_do_not_stay_in_memory[199]",
    ),
    Protection(
        "caches of long texts are bounded by their length",
        "core/plan/compiled.py",
        "if self._held > self._most:",
        "if False:",
        "tests/core/plan/test_compiled.py::test_long_texts_together_have_a_bounded_length",
    ),
    Protection(
        "long settings of requests are kept by their length",
        f"{LAUNCHERS}/http/launcher.py",
        "@cached_by_length(MAX_TEMPLATES, _length_of)",
        "@cached_by_length(MAX_TEMPLATES, lambda _: 0)",
        "tests/launchers/http/test_client.py::test_templates_of_long_settings_are_kept_by_their_length",
    ),
    Protection(
        "long settings of programs are kept by their length",
        f"{LAUNCHERS}/process/kind.py",
        "cached_by_length(MAX_CACHED, length_of)",
        "cached_by_length(MAX_CACHED, lambda _: 0)",
        "tests/launchers/process/test_kind.py::test_long_settings_that_were_checked_are_kept_by_their_length",
    ),
    Protection(
        "large definitions are not kept written",
        "core/plan/compiled.py",
        "return _text_of.__wrapped__(when, how, job.distribution)",
        "pass",
        "tests/service/test_hostile_memory.py::test_definitions_that_differ_do_not_stay_in_memory",
        (
            (
                "options = _options_of if constraints.entries + len(salt) <= MAX_SHARED else _options_of.__wrapped__",
                "options = _options_of",
            ),
        ),
    ),
    Protection(
        "informational responses of executors end",
        "launchers/http/response.py",
        "if self._heads + size > MAX_HEAD:",
        "if size > MAX_HEAD:",
        "tests/service/test_hostile_executors.py::test_informational_responses_without_an_end_are_given_up",
    ),
    Protection(
        "a head of an executor is searched once",
        "launchers/http/response.py",
        "end = _HEAD_END.search(self._buffer, max(0, self._searched - 3))",
        "end = _HEAD_END.search(self._buffer)",
        "tests/launchers/http/test_response.py::test_a_line_that_comes_byte_by_byte_is_searched_once",
    ),
    Protection(
        "responses of executors in tiny chunks are refused",
        "launchers/http/response.py",
        "if self._chunks > FREE_CHUNKS and self._chunked < MIN_CHUNK * self._chunks:",
        "if False:",
        "tests/launchers/http/test_response.py::test_what_is_no_answer_is_refused",
    ),
    Protection(
        "a range has at most a hundred years",
        "app/backfill.py",
        "if wanted.end - wanted.start > MAX_RANGE_S:",
        "if False:",
        "tests/app/test_backfill.py::test_a_range_of_more_than_a_hundred_years_is_refused_before_it_is_searched",
    ),
    Protection(
        "a sign-in form has at most 16 KiB",
        f"{SERVICE}/api/middleware.py",
        "return min(self._max_body, MAX_SIGN_IN)",
        "return 8 * self._max_body",
        _abuse("a form of a megabyte"),
    ),
    Protection(
        "a duration has at most 200 characters",
        "core/time/duration.py",
        "if len(value) <= MAX_LENGTH else None",
        "if True else None",
        "tests/core/time/test_duration.py::test_a_text_longer_than_any_duration_is_not_even_read",
    ),
    Protection(
        "a time zone has at most 100 characters",
        "core/time/zone.py",
        "if len(key) > MAX_KEY or key in HOST_KEYS",
        "if key in HOST_KEYS",
        _abuse("a time zone of a megabyte"),
    ),
    Protection(
        "references to secrets are read in linear time",
        "launchers/secret.py",
        r"([^{}\s]{1,200})",
        r"([^}\s]+)",
        _abuse("references that do not end"),
    ),
    Protection(
        "errors quote a part of the request",
        f"{SERVICE}/api/problem.py",
        "shown = text if len(text) <= most else",
        "shown = text if True else",
        "tests/service/auth/test_hostile.py::test_an_error_quotes_no_more_than_a_part_of_the_request",
    ),
    # --- tenants share fairly ---
    Protection(
        "requests to executors are limited per user",
        "launchers/delivery.py",
        "per_tenant=max_requests,",
        "per_tenant=9_999,",
        "tests/service/test_fairness.py::test_an_executor_that_never_answers_takes_nothing_from_other_tenants",
    ),
    Protection(
        "every user has reserved requests",
        "launchers/fair_queue.py",
        "if self._is_full and count >= self._reserved:",
        "if self._is_full:",
        "tests/launchers/test_fair_queue.py::test_a_tenant_has_its_reserved_slots_when_others_hold_all",
    ),
    Protection(
        "processes are limited per user",
        "launchers/process/launcher.py",
        "            per_tenant=most,",
        "            per_tenant=9_999,",
        "tests/service/test_fairness.py::test_processes_that_never_end_take_nothing_from_other_tenants",
    ),
    Protection(
        "open runs are limited per user",
        "runtime/turns.py",
        "return state._replace(room=room)",
        "return state",
        "tests/service/test_fairness.py::test_runs_that_never_end_leave_room_for_other_tenants",
    ),
    Protection(
        "periods that wait for their times are open runs",
        "runtime/turns.py",
        "return bool(state.runs) or _periods_of(state, now) > 1",
        "return bool(state.runs)",
        "tests/runtime/test_turns.py::test_periods_that_wait_for_their_times_are_open_runs[before]",
    ),
    Protection(
        "a batch reads a bounded number of open runs",
        "runtime/turns.py",
        "if runs > MAX_READ_RUNS:",
        "if False:",
        "tests/runtime/test_turns.py::test_a_batch_reads_fewer_jobs_where_each_has_many_open_runs",
    ),
    Protection(
        "the jitter of a schedule that runs often is bounded",
        f"{SERVICE}/schedule_spec.py",
        "if job.policy.jitter_ms > max(longest, LOOKAHEAD_MS):",
        "if False:",
        "tests/service/test_limits.py::test_the_jitter_of_a_schedule_that_runs_often_is_bounded",
    ),
    Protection(
        "tasks of Celery are published in threads per user",
        f"{LAUNCHERS}/celery/launcher.py",
        "most=TOTAL_FACTOR * MAX_THREADS,\n            per_tenant=MAX_THREADS,",
        "most=MAX_THREADS,\n            per_tenant=0,",
        "tests/service/test_fairness.py::test_a_queue_of_the_broker_that_hangs_takes_nothing_from_other_tenants",
    ),
    Protection(
        "a result that cannot be read concerns its own task",
        f"{LAUNCHERS}/celery/publish.py",
        "except DECODING_ERRORS as cause:",
        "except ZeroDivisionError as cause:",
        "tests/launchers/celery/test_awaiting.py::test_a_result_that_cannot_be_read_ends_its_own_run_and_no_other",
    ),
    Protection(
        "a take-over does not wait for a namespace",
        f"{LAUNCHERS}/kubernetes/launcher.py",
        "            if self._by_namespace:\n                self._adopt_later",
        "            if False:\n                self._adopt_later",
        "tests/service/test_kubernetes.py::test_a_take_over_does_not_wait_for_a_namespace_that_hangs",
    ),
    Protection(
        "a user has half of the slots of a DAG worker",
        "app/dag/worker.py",
        "most_of_user=max(1, slots // 2) if free > 0 else 1,",
        "most_of_user=None,",
        "tests/app/dag/test_worker.py::test_tasks_that_never_end_leave_slots_to_other_users",
    ),
    Protection(
        "versions of workflows are limited per user",
        f"{AUTH}/tenancy.py",
        "if await self.count_versions(workflow_prefix(owner), most=most) >= most:",
        "if False:",
        "tests/service/test_workflow_quota.py::test_a_user_has_a_quota_of_workflow_versions",
    ),
    Protection(
        "open runs of DAGs are limited per user",
        "app/dag/orchestrator.py",
        "if count >= most and",
        "if False and",
        "tests/service/test_dag_limits.py::test_a_catch_up_ends_where_the_open_runs_of_a_user_do",
    ),
    Protection(
        "the page of a large DAG reads few of its runs",
        f"{SERVICE}/web/dags.py",
        "columns = max(1, min(COLUMNS, MAX_CELLS // len(definition.tasks)))",
        "columns = COLUMNS",
        "tests/service/test_dag_limits.py::test_the_page_of_a_large_dag_reads_few_of_its_runs",
    ),
    Protection(
        "outputs of many tasks are read by their ends",
        "stores/dag.py",
        "tail = PART_OUTPUT if task_id is None else WHOLE_OUTPUT",
        "tail = 1 << 30",
        "tests/app/dag/test_store_contract.py::test_attempts_are_read_with_the_ends_of_their_outputs",
    ),
    Protection(
        "large DAGs leave the writer of SQLite to starts",
        "stores/sqlite/file.py",
        "if took > LONG_S:",
        "if False:",
        "tests/stores/test_sqlite_file.py::test_after_long_work_a_connection_rests_for_as_long",
    ),
    Protection(
        "outputs are displaced where the most are",
        "app/output.py",
        "of_tenants.setdefault(_tag_in(path), [])",
        'of_tenants.setdefault("", [])',
        "tests/app/test_output.py::test_a_tenant_displaces_its_own_outputs_and_not_those_of_others",
    ),
    Protection(
        "requests at once do not exceed a quota together",
        f"{AUTH}/tenancy.py",
        "await stack.enter_async_context(self._turns.setdefault(owner, asyncio.Lock()))",
        "pass",
        "tests/service/auth/test_limits.py::test_requests_at_once_do_not_exceed_a_quota_together",
    ),
    Protection(
        "a user has a quota of requested runs",
        f"{AUTH}/tenancy.py",
        "if count + added[owner] > self.max_open:",
        "if False:",
        "tests/service/auth/test_limits.py::test_a_backfill_counts_against_the_quota_of_open_runs",
    ),
    # --- an open service is not open to the web ---
    Protection(
        "without authentication only loopback",
        f"{SERVICE}/serve.py",
        "if settings.insecure or requires_authentication(settings) or is_loopback(settings.host):",
        "if True:",
        "tests/service/test_worker.py::test_an_address_others_can_reach_is_refused_unless_told_otherwise",
    ),
    Protection(
        "only hosts that are served are answered",
        f"{AUTH}/middleware.py",
        'self._check_host(_header_of(scope, b"host") or "")',
        "pass",
        "tests/service/auth/test_sites.py::test_a_name_that_was_rebound_to_this_address_reads_and_writes_nothing",
    ),
    Protection(
        "a host is a name or an address, and a port",
        f"{AUTH}/middleware.py",
        'return "" if match is None else match[1] or match[2]',
        'return authority.lower().removeprefix("[").partition("]")[0].partition(":")[0]',
        "tests/service/auth/test_sites.py::test_a_name_that_was_rebound_to_this_address_reads_and_writes_nothing",
    ),
    Protection(
        "pages of extensions write nothing",
        f"{AUTH}/middleware.py",
        "if port is None or origin.lower()",
        'port = port or ""\n    if False and origin.lower()',
        "tests/service/auth/test_sites.py::test_a_page_of_another_site_can_write_nothing",
    ),
    Protection(
        "pages of other sites write nothing",
        f"{AUTH}/middleware.py",
        'if self._is_open and scope["method"] not in SAFE_METHODS and is_cross_site(scope):',
        "if False:",
        "tests/service/auth/test_sites.py::test_a_page_of_another_site_can_write_nothing",
    ),
    Protection(
        "a body has the media type of its route",
        f"{AUTH}/middleware.py",
        "        check_media_type(scope, need)\n        return caller",
        "        return caller",
        "tests/service/auth/test_sites.py::test_no_program_starts_from_a_body_that_a_page_can_send_unasked",
    ),
    Protection(
        "signing in checks the origin",
        f"{SERVICE}/web/login.py",
        "        # Else another site could sign a user in as another one, or out.\n        if is_cross_site(request.scope):",
        "        if False:",
        "tests/service/auth/test_sign_in.py::test_no_other_site_can_sign_a_user_in_or_out",
    ),
    # --- programs ---
    Protection(
        "programs are resolved before their folder",
        f"{LAUNCHERS}/process/spec.py",
        "return replace(settings, command=config.get(ProcessOptions).resolved(settings.command))",
        "return settings",
        "tests/service/auth/test_programs.py::test_the_folder_of_a_schedule_does_not_decide_which_program_runs",
    ),
    Protection(
        "allowed commands are absolute",
        f"{LAUNCHERS}/process/spec.py",
        'if not text.startswith("/"):',
        "if False:",
        "tests/service/auth/test_programs.py::test_an_allowed_command_must_be_an_absolute_path",
    ),
    Protection(
        "schedules set only listed variables",
        f"{LAUNCHERS}/process/spec.py",
        "elif not name.startswith(FREE_PREFIX) and name not in options.allowed_variables:",
        "elif False:",
        "tests/service/auth/test_programs.py::test_schedules_set_only_the_variables_that_the_operator_lists",
    ),
    Protection(
        "variables that decide which code runs cannot be listed",
        f"{LAUNCHERS}/process/spec.py",
        "if is_unsafe(name) or name.startswith(RESERVED_PREFIX):",
        "if False:",
        "tests/service/auth/test_programs.py::test_no_operator_can_allow_a_variable_that_decides_which_code_runs",
    ),
    Protection(
        "the service's environment is not inherited",
        f"{LAUNCHERS}/process/spec.py",
        "return names is None or is_usual or variable in names",
        "return True",
        "tests/service/auth/test_programs.py::test_the_environment_of_the_service_does_not_reach_processes",
    ),
    Protection(
        "installed launchers need a permission",
        f"{LAUNCHERS}/plugin.py",
        "if allowed is None or self.kind in allowed",
        "if True",
        "tests/service/auth/test_programs.py::test_an_installed_launcher_needs_the_permission_of_the_operator",
    ),
    # --- what shows of others ---
    Protection(
        "another's busy schedule answers as an unknown one",
        f"{AUTH}/tenancy.py",
        "        if identities is not None:\n            # Without the open runs",
        "        if False:\n            # Without the open runs",
        "tests/service/auth/test_disclosure.py::test_a_busy_schedule_of_another_tenant_costs_what_an_unknown_one_does",
    ),
    Protection(
        "a schedule of another is not read",
        "stores/statement.py",
        'listed = sql["list_jobs"] if wanted.names is None else sql.get(by_name, sql["list_jobs"])',
        'listed = sql["list_jobs"]',
        "tests/stores/test_sqlite.py::test_a_job_is_found_by_its_name_and_not_read_for_another_user",
    ),
    Protection(
        "audit cursors count one's own entries",
        f"{SERVICE}/client.py",
        "return AuditCursor(at, earlier + sum(record.at == at for record in records))",
        "return AuditCursor(at, earlier)",
        "tests/service/auth/test_disclosure.py::test_a_bulk_request_is_listed_page_by_page_though_all_its_entries_have_one_instant",
    ),
    Protection(
        "a cursor of brackets is a bad request",
        f"{SERVICE}/url.py",
        "except (ValueError, RecursionError) as cause:\n        raise invalid_cursor(cursor) from cause",
        "except ValueError as cause:\n        raise invalid_cursor(cursor) from cause",
        "tests/service/auth/test_disclosure.py::test_a_cursor_that_is_none_is_a_bad_request",
    ),
    Protection(
        "no log line has control characters",
        "telemetry/log_format.py",
        "return one_line(super().formatMessage(record))",
        "return super().formatMessage(record)",
        "tests/service/auth/test_disclosure.py::test_no_name_steers_a_terminal_or_forges_a_line_of_the_log",
    ),
    Protection(
        "special-purpose addresses are refused",
        f"{LAUNCHERS}/http/egress.py",
        "return address.is_global and not is_special",
        "return address.is_global",
        "tests/service/auth/test_disclosure.py::test_a_schedule_cannot_send_to_a_special_purpose_address",
    ),
    Protection(
        "no answer is cached or sniffed",
        f"{SERVICE}/api/middleware.py",
        'message["headers"] = [*message["headers"], *missing]',
        "pass",
        "tests/service/auth/test_disclosure.py::test_every_answer_forbids_caching_and_sniffing",
    ),
    Protection(
        "user names beyond ASCII deploy workflows",
        f"{AUTH}/principal.py",
        'else f"_{ord(character):x}_"',
        "else character",
        "tests/service/auth/test_disclosure.py::test_users_of_any_name_deploy_workflows",
    ),
    Protection(
        "starts are signed with a key per user",
        f"{LAUNCHERS}/http/launcher.py",
        "key = signing_key_of(self._secret, settings.user_id)",
        "key = self._secret",
        "tests/service/auth/test_disclosure.py::test_the_start_of_one_tenant_does_not_look_like_that_of_another",
    ),
    Protection(
        "notifications to a schedule's own URL are signed with the key of its user",
        "app/notify/sender.py",
        "user_id = None if target in self.options.channels else await self._user_of(message)",
        "user_id = None",
        "tests/service/test_notify.py::test_a_message_to_a_url_of_a_schedule_is_signed_with_the_key_of_its_user",
    ),
    Protection(
        "tasks of DAGs are signed with the key of their owner",
        "app/dag/worker.py",
        '{**spec.launcher, "user_id": claim.run.user_id}',
        "{**spec.launcher}",
        "tests/service/test_secrets.py::test_a_task_is_signed_with_the_key_of_its_owner",
    ),
    Protection(
        "errors do not quote the secrets of mistyped fields",
        "core/fields.py",
        "None if self._hides_unknown else self.values[name]",
        "self.values[name]",
        "tests/service/test_canaries.py::test_no_secret_comes_back_from_anywhere",
    ),
    # --- operators ---
    Protection(
        "settings that weaken something say so",
        f"{SERVICE}/serve.py",
        '        _log.warning("%s", sentence)',
        "        pass",
        "tests/service/auth/test_operator.py::test_a_service_and_a_worker_say_at_their_start_what_weakens_them",
    ),
    Protection(
        "secrets are encrypted in the store",
        f"{LAUNCHERS}/secret.py",
        "        if self._first is None or not secret:\n            return launcher_text_of(settings)",
        "        if True:\n            return launcher_text_of(settings)",
        "tests/service/test_secrets.py::test_secrets_are_encrypted_in_the_store_and_arrive_at_the_executor",
    ),
    Protection(
        "every key of the list decrypts",
        f"{LAUNCHERS}/secret.py",
        "self._ciphers = {cipher.name: cipher for cipher in ciphers}",
        "self._ciphers = {cipher.name: cipher for cipher in ciphers[:1]}",
        "tests/service/test_secrets.py::test_keys_are_rotated_with_a_list_and_a_command",
    ),
    Protection(
        "secrets of a schedule are bound to it",
        f"{LAUNCHERS}/secret.py",
        "_aes(self.encryption).encrypt(nonce, text, job)",
        '_aes(self.encryption).encrypt(nonce, text, b"")',
        "tests/service/test_secrets.py::test_a_secret_that_was_moved_to_another_schedule_is_refused",
        (("sealed[NONCE_BYTES:], job)", 'sealed[NONCE_BYTES:], b"")'),),
    ),
    Protection(
        "tasks of DAGs are checked when they are deployed",
        f"{SERVICE}/workflow_deployment.py",
        "problems += task_problems(text, owner, partial(_task_faults, rules))",
        "problems += []",
        "tests/service/test_dag.py::test_a_task_that_the_operator_does_not_allow_is_refused_when_it_is_deployed[command]",
    ),
    Protection(
        "secrets of tasks are encrypted in the store",
        f"{SERVICE}/workflow_deployment.py",
        "text = sealed_dag(workflow_id, text, rules.vault)",
        "pass",
        "tests/service/test_secrets.py::test_secrets_of_tasks_are_encrypted_and_never_shown_again",
    ),
    Protection(
        "secrets of tasks are not shown",
        f"{SERVICE}/api/workflows.py",
        "shown_dag(record.dag) if runs_dags else record.document()",
        "record.document()",
        "tests/service/test_secrets.py::test_without_a_key_secrets_of_tasks_are_still_not_shown",
    ),
)


def table() -> str:
    """Return the rows as the page has them."""
    return page_table(PROTECTIONS, "protection")


def main() -> int:
    """Remove each protection in turn; exit with 1 if a test passes without one."""
    given = parsed(__doc__, "python -m tests.abuse.protections")
    if given.page:
        write_table(PAGE, "protections", table())
        return 0
    rows = [row for row in PROTECTIONS if given.only in row.name]
    return try_each(rows, said="tests fail without their protection")


if __name__ == "__main__":
    sys.exit(main())

"""`make planted`: puts each of these faults into a copy of Kron; the test of its line must fail.

They are faults that no test noticed when somebody put them in, and one or more for each demand that was doubted.
Their table is in `docs/explanation/mutation.md`.
"""
# ruff: noqa: E501 - the words of the source stand as they are there

import sys

from tools.planted import ROOT, Planted, page_table, parsed, try_each, write_table

PAGE = ROOT / "docs" / "explanation" / "mutation.md"
SERVICE, EMBED, PLAN = "fronts/service", "fronts/embed", "core/plan"
RECORDS = "tests/embed/test_records.py"
HISTORY = "tests/service/test_history.py"

FAULTS = (
    # --- faults that no test noticed ---
    Planted(
        "a worker does not hand the settings' limits to its engine",
        "app/worker.py",
        "engine.limits = self.options.limits._replace(tick_ms=self.options.tick_ms)",
        "engine.limits = DEFAULT_LIMITS._replace(tick_ms=self.options.tick_ms)",
        "tests/app/test_worker.py::test_a_period_is_missed_only_if_the_take_over_is_later_than_the_lookahead_of_the_settings",
    ),
    Planted(
        "a backfill repeats periods that run",
        "app/backfill.py",
        "if statuses & ACTIVE or RunStatus.SUCCESS in statuses:",
        "if RunStatus.SUCCESS in statuses:",
        f"{HISTORY}::test_a_backfill_does_not_repeat_periods_that_run_or_wait",
    ),
    Planted(
        "the preview of a schedule ignores its window and its jitter",
        f"{SERVICE}/documents.py",
        "instant_text(start.fire_time) for start in",
        "instant_text(1000 * start.nominal_time) for start in",
        f"{HISTORY}::test_a_schedules_preview_shows_the_instants_at_which_it_then_starts",
    ),
    Planted(
        "periods dropped together are shown on two pages",
        "app/query.py",
        "if (start is None or dropped.last < start.nominal_time)\n            and",
        "if",
        f"{HISTORY}::test_periods_dropped_together_are_shown_on_exactly_one_page",
    ),
    Planted(
        "a backfill covers one period more than its bound",
        "app/backfill.py",
        "wanted.end), MAX_PERIODS, None)",
        "wanted.end), MAX_PERIODS + 1, None)",
        f"{HISTORY}::test_a_backfill_covers_as_many_periods_as_its_bound_and_not_one_more",
    ),
    Planted(
        "the log of starts forgets after 30 seconds",
        f"{SERVICE}/run_launcher.py",
        "KEEP_MS = 30 * 86_400_000",
        "KEEP_MS = 30 * 1_000",
        "tests/service/test_run_launcher.py::test_a_key_starts_once_even_if_it_comes_again_weeks_later",
    ),
    Planted(
        "PostgreSQL grants expired leases before the margin has passed",
        "stores/sql/postgres/statements.sql",
        "WHERE namespace = %(namespace)s AND (owner IS NULL OR expires_at + %(margin)s <= %(now)s)\n    ORDER BY shard",
        "WHERE namespace = %(namespace)s AND (owner IS NULL OR expires_at <= %(now)s)\n    ORDER BY shard",
        "tests/stores/test_postgres.py::test_a_worker_that_waits_for_shards_takes_none_before_the_margin_has_passed",
    ),
    Planted(
        "new tasks are committed apart from overrides",
        f"{EMBED}/task_list.py",
        "            return Write(\n                result=Reconciled(now, stored, resolution),\n                created=resolution.created,",
        "            await store.put(namespace, created=resolution.created, changed=[], now=now)\n"
        "            return Write(\n                result=Reconciled(now, stored, resolution),\n                created=[],",
        f"{RECORDS}::test_new_overridden_and_removed_tasks_are_one_transaction",
    ),
    Planted(
        "the time of a failure is not kept",
        f"{PLAN}/plan.py",
        "_replace(failures=failures, last_failure_at=run.ended_at)",
        "_replace(failures=failures)",
        f"{RECORDS}::test_the_stored_times_are_those_of_the_start_the_success_and_the_failure",
    ),
    Planted(
        "an override of the expression forgets the last success",
        "core/task/reconcile.py",
        "        definition=definition,\n        epoch=record.epoch + 1,",
        "        definition=definition,\n        last_success_at=None,\n        epoch=record.epoch + 1,",
        f"{RECORDS}::test_all_times_are_kept_through_a_crash_and_an_override",
    ),
    Planted(
        "the last success has the time of its start",
        f"{PLAN}/fast_path.py",
        "after[FAILURES], after[LAST_SUCCESS_AT] = 0, report.at",
        "after[FAILURES], after[LAST_SUCCESS_AT] = 0, run.started_at",
        f"{RECORDS}::test_the_stored_times_are_those_of_the_start_the_success_and_the_failure",
    ),
    Planted(
        "the last success of a retry has the time of its start",
        f"{PLAN}/plan.py",
        "_replace(failures=0, last_success_at=run.ended_at)",
        "_replace(failures=0, last_success_at=run.started_at)",
        f"{RECORDS}::test_the_stored_times_are_those_of_the_start_the_success_and_the_failure",
    ),
    Planted(
        "a retry delay of more than a day is refused",
        f"{EMBED}/registration.py",
        "    if delay >= MAX_DELAY:",
        "    if delay > timedelta(days=1):",
        f"{RECORDS}::test_a_retry_comes_exactly_after_its_delay_however_long",
    ),
    Planted(
        "an orphan that starts again is reported as a retry",
        "core/task/task.py",
        "event = TaskEvent.RETRY_STARTED if run.reason is Reason.RETRY else",
        "event = TaskEvent.RETRY_STARTED if run.reason in (Reason.RETRY, Reason.RESTARTED) else",
        f"{RECORDS}::test_an_orphan_that_starts_again_is_no_retry",
    ),
    Planted(
        "a start is called late four minutes too late",
        f"{EMBED}/task_status.py",
        "        if late_ms > LOOKAHEAD_MS:",
        "        if late_ms > 5 * LOOKAHEAD_MS:",
        f"{RECORDS}::test_a_start_is_late_from_a_minute_after_it_was_due",
    ),
    Planted(
        "`stop()` leaves the store open",
        f"{EMBED}/assembly.py",
        "await asyncio.wait_for(self._state.close(), self.store_timeout_s if is_timed else None)",
        "pass",
        f"{RECORDS}::test_after_a_stop_no_task_thread_or_file_is_left",
    ),
    Planted(
        "every list is refused",
        f"{EMBED}/registration.py",
        "if not isinstance(registrations, list | tuple):",
        "if True:",
        "tests/simulator/test_simulator.py::test_every_story_is_lawful[0]",
    ),
    Planted(
        "every `initialize` raises",
        f"{EMBED}/scheduler.py",
        "            since = await self._reconciler.start(",
        "            raise ValueError\n            since = await self._reconciler.start(",
        "tests/simulator/test_simulator.py::test_every_story_is_lawful[0]",
    ),
    # --- suspend belongs to the definition, a pause to a person ---
    Planted(
        "a changed `suspend` is ignored",
        f"{PLAN}/registration.py",
        "    if job.policy.suspend == bool(record.suspended):\n",
        "    if True:\n",
        "tests/embed/test_runner.py::test_a_changed_suspend_counts_after_a_restart_and_an_edit_lifts_it",
    ),
    Planted(
        "an upsert does not lift `suspend`",
        f"{PLAN}/registration.py",
        "    if job.policy.suspend == bool(record.suspended):\n",
        "    if record.suspended or not job.policy.suspend:\n",
        "tests/service/test_registrar.py::test_an_upsert_that_no_longer_suspends_a_schedule_lets_it_run",
    ),
    Planted(
        "a job that is created suspended is paused",
        f"{PLAN}/registration.py",
        "suspended=int(job.policy.suspend),\n        paused=int(paused),",
        "suspended=int(job.policy.suspend),\n        paused=int(paused or job.policy.suspend),",
        "tests/embed/test_runner.py::test_a_job_added_suspended_runs_once_its_definition_no_longer_suspends_it",
    ),
    Planted(
        "a resume lifts what the definition suspends",
        f"{PLAN}/pause.py",
        "resumed = record._replace(paused=0,",
        "resumed = record._replace(suspended=0, paused=0,",
        f"tests/{PLAN}/test_pause.py::test_a_resume_does_not_lift_what_the_definition_suspends",
    ),
    Planted(
        "lifting `suspend` resumes what a person paused",
        f"{PLAN}/pause.py",
        "changed = record._replace(suspended=int(suspended))",
        "changed = record._replace(suspended=int(suspended), paused=0, paused_because=None)",
        f"tests/{PLAN}/test_pause.py::test_an_edit_does_not_resume_what_a_person_paused",
    ),
    # --- catch-up ---
    Planted(
        "every wake has a tick of catch-up of its own",
        "runtime/engine.py",
        "pace=self._pacer.pace,",
        "pace=Pacer(self.limits).pace,",
        "tests/service/test_limits.py::test_a_tick_starts_no_more_missed_periods_than_the_limit",
    ),
    Planted(
        "every job has a tick of catch-up of its own",
        f"{PLAN}/plan.py",
        "pace = pace.after(now, starts=change.caught_up, waits=change.waiting)",
        "pass",
        f"tests/{PLAN}/test_pace.py::test_the_bound_is_over_all_jobs_and_none_is_left_behind",
    ),
    Planted(
        "a normal start waits for catch-up",
        f"{PLAN}/step.py",
        "return self.pace.has_room(self.now) or not self._is_catch_up(run)",
        "return self.pace.has_room(self.now)",
        f"tests/{PLAN}/test_pace.py::test_a_period_that_is_simply_due_starts_at_once_while_others_wait",
    ),
    Planted(
        "what waits for a later tick starts out of order",
        f"{PLAN}/overlap.py",
        "sorted(pending, key=lambda run: (run.fire_time, run.nominal_time)):",
        "sorted(pending, key=lambda run: (-run.fire_time, run.nominal_time)):",
        f"tests/{PLAN}/test_pace.py::test_a_tick_starts_at_most_its_number_of_missed_periods_and_the_rest_wait_in_order",
    ),
    Planted(
        "what a crash left of catch-up starts at once",
        f"{PLAN}/step.py",
        "return run.reason in CATCH_UP or (",
        "return (run.reason in CATCH_UP and key_of(run.identity, run.nominal_time) not in self._read) or (",
        f"tests/{PLAN}/test_pace.py::test_the_line_continues_after_a_crash_without_a_storm",
    ),
    Planted(
        "of several periods due at once one starts at a target that does not report",
        f"{PLAN}/overlap.py",
        "active |= step.start(run) and step.traits.reports",
        "active |= step.start(run)",
        f"tests/{PLAN}/test_pace.py::test_all_periods_due_at_once_start_at_a_target_that_does_not_report",
    ),
    Planted(
        "`replace` says of runs of a target that does not report that they are replaced",
        f"{PLAN}/overlap.py",
        "case Overlap.REPLACE if step.traits.reports:",
        "case Overlap.REPLACE:",
        f"tests/{PLAN}/test_pace.py::test_all_periods_due_at_once_start_at_a_target_that_does_not_report",
    ),
    # --- data as stored ---
    Planted(
        "versions beyond the integers of a database are accepted",
        "core/value_types.py",
        "MAX_VERSION = 2**31 - 1",
        "MAX_VERSION = 2**53",
        "tests/service/test_inputs.py::test_a_wrong_value_is_refused_by_the_name_of_its_field",
    ),
    Planted(
        "texts with a NUL character are accepted",
        "core/fields.py",
        '    if "\\0" in text:\n        return "must not contain a NUL character"\n',
        "",
        "tests/service/test_inputs.py::test_a_wrong_value_is_refused_by_the_name_of_its_field",
    ),
    Planted(
        "lone surrogates are accepted",
        "core/fields.py",
        '        return "must be valid Unicode"\n',
        "        return None\n",
        "tests/service/test_inputs.py::test_a_wrong_value_is_refused_by_the_name_of_its_field",
    ),
    Planted(
        "an empty workflow or user is accepted",
        "core/fields.py",
        '    if not text.strip():\n        raise invalid_value(value, "must not be empty")\n    if not LINE_BREAKS',
        "    if not LINE_BREAKS",
        "tests/service/test_registrar.py::test_what_is_wrong_is_refused_with_its_path_and_nothing_is_stored",
    ),
    Planted(
        "a request's key may have two rows in SQLite",
        "stores/sql/sqlite/0001_engine.sql",
        "CREATE UNIQUE INDEX runs_asked",
        "CREATE INDEX runs_asked",
        "tests/stores/test_stored_data.py::test_a_database_refuses_a_second_row_of_a_run",
    ),
    Planted(
        "a run may refer to no schedule in PostgreSQL",
        "stores/sql/postgres/0005_data.sql",
        "ALTER TABLE schedule_runs ADD CONSTRAINT schedule_runs_schedule\n    FOREIGN KEY (namespace, schedule_id) REFERENCES schedules DEFERRABLE INITIALLY DEFERRED;",
        "",
        "tests/stores/test_stored_data.py::test_a_database_refuses_a_run_of_no_schedule_and_a_schedule_that_runs_refer_to",
    ),
    Planted(
        "a run may refer to no schedule in SQLite",
        "stores/sqlite/file.py",
        'connection.execute("PRAGMA foreign_keys = ON")',
        "pass",
        "tests/stores/test_stored_data.py::test_a_database_refuses_a_run_of_no_schedule_and_a_schedule_that_runs_refer_to",
    ),
    Planted(
        "a view shows milliseconds instead of a timestamp",
        "stores/sql/sqlite/0005_data.sql",
        "    run_id,\n    strftime('%Y-%m-%dT%H:%M:%fZ', began_at / 1000.0, 'unixepoch') AS started_at",
        "    run_id,\n    began_at AS started_at",
        "tests/stores/test_stored_data.py::test_the_views_show_every_timestamp_as_rfc_3339_in_utc",
    ),
    # --- the API ---
    Planted(
        "a constant bounds the jitter, not the configured lookahead",
        f"{SERVICE}/schedule_spec.py",
        "if job.policy.jitter_ms > rules.lookahead_ms:",
        "if job.policy.jitter_ms > LOOKAHEAD_MS:",
        "tests/service/test_limits.py::test_the_configured_lookahead_bounds_the_jitter",
    ),
    Planted(
        "metrics have no names without `_total`",
        "telemetry/metrics.py",
        '    yield UnknownMetricFamily(name, f"{means} The same as {name}_total.", value=count)\n',
        "",
        "tests/telemetry/test_operation.py::test_a_real_scrape_has_every_metric_and_label_that_the_alert_rules_name",
    ),
    Planted(
        "drift is measured from the jittered time",
        "telemetry/counters.py",
        "self.drift.add(abs(at - 1000 * run.nominal_time) / 1000, times)",
        "self.drift.add(abs(at - run.fire_time) / 1000, times)",
        "tests/telemetry/test_metrics.py::test_every_counter_equals_what_the_records_say",
    ),
    Planted(
        "run now waits for a resume",
        f"{PLAN}/plan.py",
        "            start_manual(step)\n",
        "            pass\n",
        "tests/service/test_runs.py::test_a_stopped_schedule_runs_manual_runs_at_once_and_backfills_when_it_is_resumed",
    ),
    Planted(
        "run now does not say that the schedule is paused",
        f"{SERVICE}/runs.py",
        'note = f"the schedule is {words}; a manual run still starts" if words else None',
        "note = None",
        "tests/service/test_runs.py::test_a_stopped_schedule_runs_manual_runs_at_once_and_backfills_when_it_is_resumed",
    ),
    Planted(
        "a backfill of a paused schedule does not say that it waits",
        "app/catalog.py",
        "BackfillResult(added, len(done), undecided, past.job.is_stopped)",
        "BackfillResult(added, len(done), undecided, False)",
        "tests/service/test_runs.py::test_a_stopped_schedule_runs_manual_runs_at_once_and_backfills_when_it_is_resumed",
    ),
    Planted(
        "a repeated backfill does not say how many were requested already",
        "app/catalog.py",
        "BackfillResult(added, len(done), undecided, past.job.is_stopped)",
        "BackfillResult(added, 0, undecided, past.job.is_stopped)",
        "tests/service/test_runs.py::test_a_backfill_of_all_periods_says_how_many_were_requested_before",
    ),
    Planted(
        "`/preview` notes clock changes from now on, whatever `start_at` is",
        f"{SERVICE}/client.py",
        "first = max(now // 1000 + 1, policy.start_at or 0)",
        "first = now // 1000 + 1",
        "tests/service/test_http.py::test_a_preview_lists_the_clock_changes_of_a_year_that_affect_the_schedule",
    ),
    Planted(
        "a redirect is sent again",
        "launchers/http/launcher.py",
        "retry = status in RETRIED or not 300 <= status < 500",
        "retry = status in RETRIED or not 400 <= status < 500",
        "tests/launchers/http/test_launcher.py::test_a_redirect_is_neither_followed_nor_sent_again",
    ),
    # --- the embedded scheduler, by the letter ---
    Planted(
        "a blank name is refused",
        f"{EMBED}/registration.py",
        'return text_fault(name) if name else "must not be empty"',
        'return text_fault(name) if name.strip() else "must not be empty"',
        f"{RECORDS}::test_every_text_that_is_not_empty_is_a_name",
    ),
    Planted(
        "a delay of more than a hundred years is refused",
        f"{EMBED}/registration.py",
        "MAX_DELAY = timedelta(days=timedelta.max.days)",
        "MAX_DELAY = timedelta(days=36_525)",
        f"{RECORDS}::test_a_delay_that_ends_after_the_calendar_waits_for_the_next_period",
    ),
    Planted(
        "an unexpected error is kept as a text",
        "core/task/errors.py",
        "operation=operation, cause=cause\n        )",
        "operation=operation, cause=str(cause)\n        )",
        "tests/embed/test_scheduler.py::test_an_unexpected_error_is_wrapped_and_kept",
    ),
    Planted(
        "every initialization makes another identifier",
        f"{EMBED}/assembly.py",
        "self.identifier = self.identifier or uuid4().hex",
        "self.identifier = uuid4().hex",
        "tests/embed/test_stop.py::test_an_orphan_was_started_under_another_identifier",
    ),
    Planted(
        "the lease has another owner than the identifier",
        f"{EMBED}/assembly.py",
        "options=WorkerOptions(owner=self.identifier, limits=self._limits),",
        "options=WorkerOptions(limits=self._limits),",
        "tests/embed/test_stop.py::test_an_orphan_was_started_under_another_identifier",
    ),
    Planted(
        "a callback that waits for `stop()` through a task waits for ever",
        f"{EMBED}/scheduler.py",
        "        while launcher.call_here() is not None and not closing.done():",
        "        while False:",
        "tests/embed/test_stop.py::test_a_callback_cannot_wait_for_stop_through_a_task_either",
    ),
    Planted(
        "`stop()` waits for a store that is gone",
        f"{EMBED}/assembly.py",
        "await asyncio.wait([stopping], timeout=self.store_timeout_s)",
        "await asyncio.wait([stopping])",
        "tests/embed/test_stop.py::test_stop_returns_when_the_store_is_gone",
    ),
    # --- take-over and fencing ---
    Planted(
        "a start found lost at a take-over is sent all the same",
        f"{PLAN}/step.py",
        "change.starts = [run for run in change.starts if self._is_current(run)]",
        "pass",
        f"tests/{PLAN}/test_run_timeout.py::test_a_start_found_lost_at_a_take_over_is_not_sent_again",
    ),
    Planted(
        "a start is sent again after its run timeout",
        "runtime/dispatcher.py",
        "if overdue_at is not None and (self.clock.now() - EPOCH) // MILLISECOND >= overdue_at:",
        "if False:",
        "tests/runtime/test_dispatcher.py::test_a_start_that_is_overdue_is_not_sent_again",
    ),
    Planted(
        "resending after a kept connection broke does not ask the lease again",
        "launchers/http/client.py",
        "\n        return connection, await _checked(connection, check).request(data, max_body=max_body)",
        "\n        return connection, await connection.request(data, max_body=max_body)",
        "tests/launchers/http/test_client.py::test_a_request_over_a_connection_that_has_ended_is_not_sent_again_when_its_lease_is_lost",
    ),
    Planted(
        "a thawed worker sends over a new connection what another took over",
        "launchers/http/client.py",
        "\n        return connection, await _checked(connection, check).request(data, max_body=max_body)",
        "\n        return connection, await connection.request(data, max_body=max_body)",
        "tests/service/test_frozen.py::test_a_worker_that_froze_between_request_and_answer_does_not_send_again_what_another_took_over",
    ),
    Planted(
        "the token of a start is the newest over all shards",
        f"{PLAN}/step.py",
        "return snapshot.token if state.token is None else state.token",
        "return snapshot.token",
        "tests/faults/test_lease.py::test_a_wake_during_which_shards_are_lost_starts_under_the_token_of_the_jobs_shard",
    ),
    Planted(
        "a start that is sent again keeps the token of its record",
        f"{PLAN}/plan.py",
        "again = run._replace(token=step.token)",
        "again = run",
        f"tests/{PLAN}/test_plan.py::test_a_start_nobody_acknowledged_is_launched_again_under_the_same_key_and_attempt",
    ),
    Planted(
        "a draining worker keeps every shard until its last run has ended",
        "runtime/engine.py",
        "leaving_since=self._drained_at if self._balance else None,",
        "leaving_since=None,",
        "tests/faults/test_lease.py::test_a_worker_that_stops_hands_over_each_shard_when_nothing_of_it_runs_here",
    ),
    Planted(
        "a run starts before the end of the run it waited for",
        f"{PLAN}/step.py",
        "        if self.policy.overlap is Overlap.ALLOW:\n            return self.now\n",
        "        if True:\n            return self.now\n",
        f"tests/{PLAN}/test_overlap.py::test_a_run_starts_no_earlier_than_the_one_before_it_ended",
    ),
)


def table() -> str:
    """Return the rows as the page has them."""
    return page_table(FAULTS, "fault")


def main() -> int:
    """Put in each fault in turn; exit with 1 if its test passes all the same."""
    given = parsed(__doc__, "make planted")
    if given.page:
        write_table(PAGE, "planted", table())
        return 0
    return try_each([row for row in FAULTS if given.only in row.name], said="faults are noticed")


if __name__ == "__main__":
    sys.exit(main())

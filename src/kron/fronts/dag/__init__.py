"""DAG triggering: scheduled, batch and catch-up runs over a run orchestrator (spec 5)."""

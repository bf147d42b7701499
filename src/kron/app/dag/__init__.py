"""The runtime of DAGs: the orchestrator starts and changes runs, workers execute their tasks."""

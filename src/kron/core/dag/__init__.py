"""DAG runs: slots and errors, definitions, records and their states, and every decision about a run."""

"""Job definitions: their fields, policies, windows, seeds, decisions and verdicts."""

"""The guard of the service: who calls, what they may do, and whose schedules they see."""

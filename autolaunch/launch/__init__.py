"""From a decision to the running server: supervision, attempt record, exec, and the wait for health."""

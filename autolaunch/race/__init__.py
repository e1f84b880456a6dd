"""Candidates in real engines: started in isolation, gated, timed, ended."""

"""Heads that predict several tokens (MTP, NEXTN): whether this start can use them, and with which flags."""

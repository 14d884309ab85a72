"""Decisions. Pure: standard library and numpy only; no clock, no randomness, no input or output."""

"""Observers: the trace, the sanitizer, recorders and statistics. They see every step and change nothing."""

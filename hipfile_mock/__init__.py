"""Test doubles over the model of `hipfile_sim`: drop-in packages, faults, recorder, pytest plugin."""

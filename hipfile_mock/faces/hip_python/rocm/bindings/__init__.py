"""Double of ``rocm.bindings``: `hip`, `hipfile` and `util`."""

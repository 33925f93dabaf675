"""Double of ``rocm.bindings.util``."""

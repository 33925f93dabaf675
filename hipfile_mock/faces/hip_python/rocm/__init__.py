"""Double of the package ``rocm``."""

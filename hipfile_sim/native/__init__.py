"""The C ABI: ``libamdhip64.so`` and ``libhipfile.so`` over the model, for clients that are not written for it.

``table_hip.py`` and ``table_hipfile.py`` list the symbols, ``shims.py`` writes their C, ``build.py`` compiles it with
what is in ``src/``, ``bridge.py`` is what C calls, ``prefix.py`` makes a folder that looks like ROCm, and
``activation.py`` loads the libraries into this process.
"""

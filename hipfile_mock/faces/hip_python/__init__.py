"""Double of HIP-Python 10.0.0.0.1.2: the packages ``rocm`` and ``hip`` below this folder.

It has the calls that the model has, with the shapes of results that the release has, and its known defects. It is put
in place only where AMD's own wheels are not installed; see `hipfile_mock.faces.packages`.
"""

"""A software model of AMD hipFile and of the HIP runtime beneath it."""

from hipfile_sim._version import __version__ as __version__

"""The tests, one module an area; see :mod:`hipfile_conformance.suite.registry`."""

from hipfile_conformance.suite.registry import Test, all_tests, conformance, find, tests_of_clause

__all__ = ["Test", "all_tests", "conformance", "find", "tests_of_clause"]

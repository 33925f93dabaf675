"""JUnit, for the test views of CI systems."""

from __future__ import annotations

from xml.etree import ElementTree

from hipfile_conformance.results import State
from hipfile_conformance.table import Table

__all__ = ["render_junit"]


def render_junit(table: Table) -> str:
    """One suite a column that ran now, one case a test and schedule; the rerun line stands in each failure."""
    root = ElementTree.Element("testsuites", name="hipfile-conformance")
    for column in (column for column in table.columns if not column.committed):
        bad = sum(result.state is State.FAIL for result in column.tests)
        skipped = sum(result.state in (State.UNSUPPORTED, State.NOT_RUN) for result in column.tests)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=column.name,
            tests=str(len(column.tests)),
            failures=str(bad),
            skipped=str(skipped),
            time=f"{sum(result.seconds for result in column.tests):.3f}",
        )
        for result in column.tests:
            area, _, name = result.test.partition(".")
            name += f"[{result.variant}]" if result.variant else ""
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{column.name}.{area}", name=name, time=f"{result.seconds:.4f}"
            )
            if result.state is State.FAIL:
                failure = ElementTree.SubElement(case, "failure", message=_clean(result.message))
                failure.text = _clean(f"{result.message}\nrun it again: {result.rerun}")
            elif result.state in (State.UNSUPPORTED, State.NOT_RUN, State.DEVIATION):
                ElementTree.SubElement(case, "skipped", message=_clean(f"{result.state.value}: {result.message}"))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    return "".join(c if c in "\t\n" or c >= " " else "?" for c in text)

"""Codes, names and texts. [error.values] [error.base] [error.macro] [error.string.*] [batch.enums] [param.enums]"""

from __future__ import annotations

import pytest

from hipfile_sim.driver import codes
from hipfile_sim.driver.codes import (
    OpError,
    error_name,
    error_string,
    hip_status,
    is_hipfile_err,
    status,
)
from hipfile_sim.hip.codes import HipError

FACTS = {
    0: "Success",
    5001: "DriverNotInitialized",
    5006: "DriverClosing",
    5008: "IONotSupported",
    5011: "HipDriverError",
    5013: "HipMemoryTypeInvalid",
    5014: "HipPointerRangeError",
    5016: "InvalidMappingSize",
    5022: "InvalidValue",
    5023: "MemoryAlreadyRegistered",
    5024: "MemoryNotRegistered",
    5027: "HandleNotRegistered",
    5028: "HandleAlreadyRegistered",
    5030: "InternalError",
    5031: "GetNewFDFailed",
    5037: "BatchFull",
    5038: "AsyncNotSupported",
    5039: "IOMaxError",
}


def test_the_values_are_those_of_the_header():
    assert {code.value for code in OpError} == {0, *range(5001, 5040)} - {5021, 5032}
    assert len(OpError) == 38


@pytest.mark.parametrize(("value", "name"), FACTS.items())
def test_known_names(value: int, name: str):
    assert OpError(value).name == error_name(value) == f"hipFile{name}"


def test_every_code_has_its_own_text():
    texts = [error_string(code) for code in OpError]
    assert len(set(texts)) == 38
    assert codes.UNKNOWN_ERROR not in texts
    assert all(texts)


@pytest.mark.parametrize("code", [5021, 5032, 5040, 5000, 1, -1, -5022, 2**31, -(2**63), 2**70])
def test_unknown_code(code: int):
    assert error_string(code) == "Unknown hipFile error"
    assert error_name(code) == f"unknown({code})"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, False), (5000, False), (-5000, False), (5001, True), (-5001, True), (-1, False), (999999, True)],
)
def test_the_macro_looks_at_the_magnitude(value: int, expected: bool):
    assert is_hipfile_err(value) is expected


def test_status_pairs():
    assert status(OpError.hipFileInvalidValue) == (5022, 0)
    assert status(OpError.hipFileInvalidValue) is status(OpError.hipFileInvalidValue)
    assert hip_status(HipError.hipErrorOutOfMemory) == (5011, 2)
    assert status(OpError.hipFileSuccess).ok
    assert not hip_status(HipError.hipErrorOutOfMemory).ok


def test_enumerators():
    assert [t.value for t in codes.HandleType] == [1, 2, 3]
    assert [s.value for s in codes.BatchStatus] == [1, 2, 4, 8, 16, 32, 64]
    assert [o.value for o in codes.BatchOpcode] == [0, 1]
    assert codes.BatchMode.hipFileBatch == 1
    assert [p.value for p in codes.SizeTParameter] == list(range(12))
    assert [p.value for p in codes.BoolParameter] == list(range(12))
    assert [p.value for p in codes.StringParameter] == list(range(3))
    assert sum(codes.StreamFlag) == codes.STREAM_FLAGS_MASK == 0xF
    assert [flag.value for flag in codes.StreamFlag] == [
        codes.FIXED_BUF_OFFSET,
        codes.FIXED_FILE_OFFSET,
        codes.FIXED_FILE_SIZE,
        codes.PAGE_ALIGNED_INPUTS,
    ]
    assert 10 not in list(codes.DriverStatusFlag)


def test_the_largest_count_is_int_max_down_to_a_page():
    assert codes.MAX_RW_COUNT == (2**31 - 1) & ~4095

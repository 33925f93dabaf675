"""The double answers as torch does on a real GPU (``real.json`` says which, and with what)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REAL = json.loads((HERE / "real.json").read_text())

# Wording of the platform; and a message of torch that prints the numbers of devices as control characters.
WORDING = (("CUDA error:", "HIP error:"),)
NOT_THE_SAME = {"record elsewhere": "torch prints the device numbers as characters, not as digits"}


@pytest.fixture(scope="module")
def probes():
    spec = importlib.util.spec_from_file_location("probes", HERE / "probes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_here(answer):
    text = json.dumps(answer)
    for there, here in WORDING:
        text = text.replace(there, here)
    return json.loads(text)


def test_every_answer_of_the_real_gpu_is_asked_for(probes):
    assert {probe.__name__ for probe in probes.PROBES + probes.TWO_DEVICES} == set(REAL["answers"])
    assert "error" not in REAL["answers"]


@pytest.mark.parametrize("name", sorted(REAL["answers"]))
def test_answers(rig, probes, name):
    found = probes.ask(getattr(probes, name))
    expected = as_here(REAL["answers"][name])
    for key in NOT_THE_SAME.keys() & (set(expected) if isinstance(expected, dict) else set()):
        assert found.pop(key)[0] == expected.pop(key)[0]
    assert found == expected

"""Tokens that no run made: each is refused as damaged, none is a crash or fills the memory."""

from __future__ import annotations

import base64
import random
import zlib

import pytest

from hipfile_sim import Machine
from hipfile_sim.engine.token import ChoiceLog, decode


def _token(data: bytes) -> str:
    return "hs1-" + base64.urlsafe_b64encode(zlib.compress(data, 9)).decode().rstrip("=")


@pytest.mark.parametrize(("choice", "options"), [(2, 2), (5, 2), (0, 0), (2**70, 2)])
def test_impossible_choices(choice: int, options: int) -> None:
    log = ChoiceLog()
    log.add(0, 2)
    log.add(choice, options)
    with pytest.raises(ValueError, match=f"choice 1 takes option {choice} of {options}"):
        Machine(schedule=log.token())


def test_bomb() -> None:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(16 << 20)) for _ in range(17)) + packer.flush()
    with pytest.raises(ValueError, match="longer than"):
        decode("hs1-" + base64.urlsafe_b64encode(packed).decode())


def test_any_text() -> None:
    """Truncated, mutated and random tokens: a ValueError that says so, or a token with possible choices."""
    rng = random.Random(3)
    log = ChoiceLog()
    for _ in range(50):
        log.add(rng.randrange(3), 3)
    whole = log.token()
    texts = [whole[:cut] for cut in range(4, len(whole))]
    for _ in range(300):
        at = rng.randrange(4, len(whole))
        texts.append(whole[:at] + rng.choice("AZaz09-_=+/ \n€") + whole[at + 1 :])
        texts.append(_token(rng.randbytes(rng.randrange(40))))
    for text in texts:
        try:
            _, pairs = decode(text)
        except ValueError:
            continue
        assert all(0 <= choice < options for choice, options in pairs)

"""`fake` around generators of every kind, and with values that make no sense."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hipfile_mock import current, fake


def test_exception_reaches_an_async_generator_inside_its_fake() -> None:
    """An async fixture's clean-up runs while the doubles are still in place, whatever ended the test."""
    seen: list[tuple[str, int]] = []

    @contextlib.asynccontextmanager
    @fake()
    async def connector() -> AsyncIterator[int]:
        try:
            yield current.depth()
        except ValueError:
            seen.append(("caught", current.depth()))
            raise
        finally:
            seen.append(("cleaned up", current.depth()))

    async def main() -> None:
        async with connector() as depth:
            seen.append(("body", depth))
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        asyncio.run(main())
    assert seen == [("body", 1), ("caught", 1), ("cleaned up", 1)]
    assert current.depth() == 0


@pytest.mark.parametrize("end", ["aclose", "exhaust", "swallow"])
def test_async_generator_is_driven_as_without_the_fake(end: str) -> None:
    async def plain() -> AsyncIterator[Any]:
        try:
            got = yield "first"
            yield got
        except KeyError:
            yield "swallowed"
        finally:
            log.append(("over", current.depth() > 0))

    async def drive(generator: Any) -> list[Any]:
        out = [await generator.asend(None), await generator.asend(5)]
        if end == "swallow":
            out.append(await generator.athrow(KeyError("x")))
        if end == "aclose":
            await generator.aclose()
        else:
            out += [item async for item in generator]
        return out

    log: list[tuple[str, bool]] = []
    expected = asyncio.run(drive(plain()))
    assert asyncio.run(drive(fake()(plain)())) == expected
    assert log == [("over", False), ("over", True)]
    assert current.depth() == 0


def test_exception_reaches_a_generator_inside_its_fake() -> None:
    seen = []

    @contextlib.contextmanager
    @fake()
    def connector() -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(current.depth())

    with pytest.raises(ValueError, match=r"^$"), connector():
        raise ValueError
    assert seen == [1]


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"schedule": 5}, "schedule must be a name"),
        ({"schedule": "eager:5"}, "takes no argument"),
        ({"schedule": "hs1-" + "A" * 100_000}, "damaged token"),
        ({"env": 5}, "env=5"),
        ({"settings": {"poison": None}}, "settings="),
        ({"strict": 5}, "strict=5"),
        ({"faults": [5]}, "no method attach"),
        ({"observers": [5]}, "no method attached"),
        ({"observers": 5}, "give a list"),
        ({"faces": "hipfile"}, r"faces=\['hipfile'\]"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_values_are_named(keywords: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says) as caught, fake(**keywords):
        pytest.fail("accepted")
    assert len(str(caught.value)) < 400
    assert current.depth() == 0

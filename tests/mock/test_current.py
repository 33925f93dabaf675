"""The stack of current machines: order, threads, and what it says when it is used wrongly."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hipfile_mock import current


class FakeMachine:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


@pytest.fixture(autouse=True)
def empty() -> None:
    assert current.depth() == 0


def test_nothing_is_current_at_first() -> None:
    assert current.peek() is None
    with pytest.raises(current.NoMachineError, match=r"hipFileRead was called, but no emulated machine.*fake\(\)"):
        current.get("hipFileRead")


def test_last_pushed_is_current() -> None:
    a, b = FakeMachine("a"), FakeMachine("b")
    current.push(a)
    current.push(b)
    assert current.get() is b
    current.pop(b)
    assert current.get() is a
    current.pop(a)
    assert current.depth() == 0


def test_every_thread_sees_the_same_machine() -> None:
    machine = FakeMachine("a")
    current.push(machine)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda _: current.get(), range(4))) == [machine] * 4
    finally:
        current.pop(machine)


def test_another_thread_may_not_push_over_it() -> None:
    machine = FakeMachine("outer")
    current.push(machine)
    errors: list[Exception] = []

    def work() -> None:
        try:
            current.push(FakeMachine("inner"))
        except current.CurrentMachineError as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="worker-7")
    thread.start()
    thread.join()
    current.pop(machine)
    assert len(errors) == 1
    assert "worker-7" in str(errors[0])
    assert "outer" in str(errors[0])


def test_an_empty_stack_is_open_to_any_thread() -> None:
    def work() -> int:
        machine = FakeMachine("a")
        current.push(machine)
        seen = current.depth()
        current.pop(machine)
        return seen

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == 1


def test_out_of_turn_is_an_error_that_leaves_nothing_behind() -> None:
    a, b = FakeMachine("a"), FakeMachine("b")
    current.push(a)
    current.push(b)
    with pytest.raises(current.CurrentMachineError, match="a was popped while b"):
        current.pop(a)
    assert current.get() is b
    current.pop(b)


def test_twice_is_an_error() -> None:
    a = FakeMachine("a")
    current.push(a)
    with pytest.raises(current.CurrentMachineError, match="already"):
        current.push(a)
    current.pop(a)
    with pytest.raises(current.CurrentMachineError, match="not on the stack"):
        current.pop(a)


def test_reference_tells_machines_apart_and_keeps_none_alive() -> None:
    a, b = FakeMachine("a"), FakeMachine("b")
    assert current.reference() is None
    assert not current.refers(None)
    current.push(a)
    of_a = current.reference()
    assert of_a is not None
    assert current.refers(of_a)
    current.push(b)
    assert not current.refers(of_a)
    current.pop(b)
    current.pop(a)
    assert not current.refers(of_a)
    del a
    assert of_a() is None
    assert not current.refers(of_a), "a reference to a machine that is gone is not a reference to no machine"

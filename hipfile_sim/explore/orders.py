"""How many orders a program has, counted without running them."""

from __future__ import annotations

from collections.abc import Sequence

from hipfile_sim.explore.trace import Transition

LIMIT = 200_000
"""Positions of all processes together, of those that an order can come by, beyond which counting is given up."""


def count_orders(transitions: Sequence[Transition]) -> int | None:
    """The number of ways to interleave the transitions of a run, keeping only what must be kept.

    That is: each process's own order, and what enables what (a submit before its command, a record before its wait, a
    command before the host that waited for it). It speaks of the program as it ran once; a program that does different
    things in different orders has other numbers.

    Returns
    -------
    int or None
        None when there are too many positions to count.
    """
    processes = sorted({transition.process for transition in transitions})
    column = {process: index for index, process in enumerate(processes)}
    place: dict[int, int] = {}  # id of a transition to its position in its chain, from 1
    chains: list[list[tuple[int, ...]]] = [[] for _ in processes]
    pending: list[list[int]] = [[0] * len(processes) for _ in processes]
    for transition in transitions:
        mine = column[transition.process]
        _raise(pending[mine], transition.enabling, column, place)
        if not transition.wake:  # the host goes on at once: what woke it is what the next step needs
            chains[mine].append(tuple(pending[mine]))
            pending[mine] = [0] * len(processes)
        _raise(pending[mine], transition.woken, column, place)
        place[id(transition)] = len(chains[mine])
    positions = 0
    ways = {(0,) * len(processes): 1}
    for _ in range(sum(map(len, chains))):
        following: dict[tuple[int, ...], int] = {}
        for position, count in ways.items():
            for index, chain in enumerate(chains):
                at = position[index]
                if at < len(chain) and all(have >= need for have, need in zip(position, chain[at], strict=True)):
                    moved = (*position[:index], at + 1, *position[index + 1 :])
                    following[moved] = following.get(moved, 0) + count
        ways = following
        positions += len(ways)
        if positions > LIMIT:
            return None
    return sum(ways.values())


def _raise(needs: list[int], enabling: Sequence[Transition], column: dict[int, int], place: dict[int, int]) -> None:
    for transition in enabling:
        at = column[transition.process]
        needs[at] = max(needs[at], place[id(transition)])

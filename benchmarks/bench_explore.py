"""How fast the explorer goes through the orders of a program."""

from __future__ import annotations

from typing import Any

from harness import Figure, benchmark

from hipfile_sim import explore


def eight_commands(machine: Any) -> tuple[int, ...]:
    """Two producers, a consumer behind both by events, and a download that waits for neither: 8 commands."""
    hip = machine.hip
    _, device = hip.hipMalloc(64)
    _, pinned = hip.hipHostMalloc(64)
    one, two, three = (hip.hipStreamCreateWithFlags(1)[1] for _ in range(3))
    events = [hip.hipEventCreate()[1] for _ in range(2)]
    for number, stream in enumerate((one, two)):
        hip.hipMemsetAsync(device, number + 1, 32, stream)
        hip.hipEventRecord(events[number], stream)
        hip.hipStreamWaitEvent(three, events[number])
    hip.hipMemsetAsync(device + 32, 3, 32, three)
    hip.hipMemcpyAsync(pinned, device, 64, 2, one)
    hip.hipDeviceSynchronize()
    view = machine.memory.view(pinned, 64)
    return view[0], view[32]


def _rate(quick: bool, **options: Any) -> Figure:
    schedules = 1_000 if quick else 4_000
    explore(eight_commands, schedules=20, keep_going=True, explain=False, devices=1, **options)
    done = cut = 0
    seconds = 0.0
    while done < schedules:
        found = explore(
            eight_commands, schedules=schedules - done, keep_going=True, explain=False, devices=1, **options
        )
        done, cut, seconds = done + found.runs, cut + found.cut, seconds + found.seconds
    return Figure(done / seconds * 60, "/min", {"outcomes": len(found.outcomes), "cut": cut, "covered": found.coverage})


@benchmark("explore-8-commands", (">=", 2_000.0))
def explore_reduced(quick: bool) -> Figure:
    """Schedules a minute of the 8-command example, every order that matters."""
    return _rate(quick)


@benchmark("explore-8-random", (">=", 2_000.0))
def explore_random(quick: bool) -> Figure:
    """Schedules a minute of the same, drawn at random."""
    return _rate(quick, strategy="random")


@benchmark("explore-8-sanitized", (">=", 2_000.0))
def explore_sanitized(quick: bool) -> Figure:
    """Schedules a minute of the same with the sanitizer on."""
    return _rate(quick, sanitize="race.*=off")

"""The file that an exploration can be continued from, in this process or another."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipfile_sim.explore.result import Exploration
    from hipfile_sim.explore.strategies.base import Strategy

VERSION = 3


def save(path: Path, plan: Strategy, result: Exploration) -> None:
    """Write the state of the search. The old file stays whole until the new one is.

    Outcomes are written as their `repr`; one that is no literal comes back as that text.
    """
    state = {
        "version": VERSION,
        "strategy": plan.name,
        "runs": result.runs,
        "cut": result.cut,
        "seconds": result.seconds,
        "outcomes": [[repr(outcome), count] for outcome, count in result.outcomes.items()],
        "failures": [failure.token for failure in result.failures],
        "state": plan.save(),
    }
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(state))
    temporary.replace(path)


def load(path: Path, plan: Strategy, result: Exploration) -> list[str]:
    """Put `plan` and `result` where `save` left them.

    Returns
    -------
    list of str
        Tokens of the failures that were known.

    Raises
    ------
    ValueError
        The file is damaged, or of another strategy or shard.
    """
    try:
        state = json.loads(path.read_text())
        if state["version"] != VERSION:
            raise ValueError(f"its version is {state['version']}, this release reads {VERSION}")
        if state["strategy"] != plan.name:
            raise ValueError(f"it was written by the strategy {state['strategy']!r}, this is {plan.name!r}")
        plan.load(state["state"])
        result.runs, result.cut = int(state["runs"]), int(state["cut"])
        result.seconds = float(state["seconds"])
        for text, count in state["outcomes"]:
            result.outcomes[_value(text)] += count
        return [str(token) for token in state["failures"]]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = f"{type(error).__name__} {error}" if isinstance(error, (KeyError, TypeError)) else str(error)
        raise ValueError(f"cannot resume from {path}: {reason}; remove the file to start again") from error


def _value(text: str) -> object:
    try:
        value = ast.literal_eval(text)
        hash(value)
    except (ValueError, SyntaxError, TypeError):
        return text
    return value

"""The pytest plugin: ``hipfile_fake`` and friends, a marker, options, and a section on failure that reruns the failure.

Nothing but pytest and the standard library is imported until a test asks for a fixture, so that a suite that does not
use the plugin pays nothing for having it.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hipfile_mock.fake import Session
    from hipfile_mock.stub import Stub
    from hipfile_sim.engine.clock import VirtualClock
    from hipfile_sim.native.activation import Activated

MARKER = "hipfile"
TRACE_MODES = ("off", "on-failure", "always")
_OPTIONS = ("profile", "schedule", "seed", "replay", "trace", "trace_dir", "schedules", "strategy", "watchdog")
_EXPLORER = ("schedules", "strategy", "bound", "seed", "seconds", "twice", "sanitize", "shard", "host", "complete")
"""Keywords of the marker that are for the explorer."""
_session_key = pytest.StashKey[Any]()
_text_key = pytest.StashKey[str]()
_error_key = pytest.StashKey[BaseException]()
_explored_key = pytest.StashKey[bool]()
_EACH = "hipfile_every_worker_runs_every_test"


# -- options -----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hipfile", "hipfile-mock: tests of GPU file I/O without a GPU")
    group.addoption("--hipfile-profile", metavar="RELEASE", help="release of hipFile that is modelled, such as 0.5")
    group.addoption(
        "--hipfile-schedule",
        metavar="NAME",
        help="who moves when: parallel (default), lazy, eager, roundrobin, seeded:N, or a token",
    )
    group.addoption("--hipfile-seed", type=int, metavar="N", help="short for --hipfile-schedule=seeded:N")
    group.addoption(
        "--hipfile-replay", metavar="TOKEN", help="the schedule of a failed run, over everything that a test says"
    )
    group.addoption(
        "--hipfile-trace", choices=TRACE_MODES, help="write a Chrome trace of each test; default: on-failure with a dir"
    )
    group.addoption("--hipfile-trace-dir", metavar="DIR", help="where traces go (default: .hipfile-traces)")
    group.addoption(
        "--hipfile-schedules",
        type=int,
        metavar="N",
        help="run each test that uses hipfile_fake under up to N schedules",
    )
    group.addoption(
        "--hipfile-strategy", metavar="NAME", help="how those are chosen: dpor (default), bounded, pct, random"
    )
    group.addoption(
        "--hipfile-watchdog",
        metavar="SECONDS",
        help="real seconds without progress before a test fails with a deadlock (default: 5)",
    )
    parser.addini("hipfile_profile", "default of --hipfile-profile")
    parser.addini("hipfile_schedule", "default of --hipfile-schedule")
    parser.addini("hipfile_trace", "default of --hipfile-trace")
    parser.addini("hipfile_trace_dir", "default of --hipfile-trace-dir")
    parser.addini("hipfile_schedules", "default of --hipfile-schedules")
    parser.addini("hipfile_strategy", "default of --hipfile-strategy")
    parser.addini("hipfile_watchdog", "default of --hipfile-watchdog")


def _option(config: pytest.Config, name: str) -> Any:
    value = config.getoption(f"hipfile_{name}", default=None)
    if value is None and name not in ("seed", "replay"):
        value = config.getini(f"hipfile_{name}") or None
    return value


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**keywords): run the test in hipfile_mock.fake(**keywords); also schedules=N and strategy=NAME",
    )
    if all(_option(config, name) is None for name in _OPTIONS):
        return
    _check_options(config)


def _check_options(config: pytest.Config) -> None:
    """Say what is wrong with an option before any test runs."""
    chosen = [name for name in ("schedule", "seed", "replay") if config.getoption(f"hipfile_{name}") is not None]
    if len(chosen) > 1:
        names = " and ".join(f"--hipfile-{name}" for name in chosen)
        raise pytest.UsageError(f"{names} each say what the schedule is; give one of them")
    _checked(config, "trace", _check_trace_mode)
    _checked(config, "schedules", _check_count)
    _checked(config, "watchdog", _check_seconds)
    for name in ("schedule", "replay"):
        _checked(config, name, _check_schedule)
    _checked(config, "profile", _check_profile)
    _checked(config, "strategy", _check_strategy)


def _checked(config: pytest.Config, name: str, check: Callable[[Any], object]) -> None:
    """Say which option or ini value is wrong, what it is, and what would be right."""
    value = _option(config, name)
    if value is None:
        return
    try:
        check(value)
    except (ValueError, LookupError) as error:
        given = config.getoption(f"hipfile_{name}", default=None) is not None
        ini = f"hipfile_{name} = {value} in {config.inipath or 'the configuration of pytest'}"
        where = f"--hipfile-{name.replace('_', '-')}={value}" if given else ini
        raise pytest.UsageError(f"{where}: {error.args[0] if error.args else error}") from None


def _check_trace_mode(value: str) -> None:
    if value not in TRACE_MODES:
        raise ValueError(f"choose one of {', '.join(TRACE_MODES)}")


def _check_count(value: Any) -> None:
    if not str(value).strip().isdecimal() or int(value) < 1:
        raise ValueError("a number of schedules, at least 1")


def _check_seconds(value: Any) -> None:
    try:
        enough = float(value) > 0
    except ValueError:
        enough = False
    if not enough:
        raise ValueError("a number of seconds above 0")


def _check_schedule(value: str) -> None:
    from hipfile_sim.engine.schedules import parse_schedule

    parse_schedule(value)


def _check_profile(value: str) -> None:
    from hipfile_sim.driver.profiles import get_profile

    get_profile(value)


def _check_strategy(value: str) -> None:
    from hipfile_sim.explore import make_strategy

    make_strategy(value)


def _schedule(config: pytest.Config) -> str | None:
    replay: str | None = config.getoption("hipfile_replay")
    seed: int | None = config.getoption("hipfile_seed")
    if replay is not None:
        return replay
    if seed is not None:
        return f"seeded:{seed}"
    schedule: str | None = _option(config, "schedule")
    return schedule


def pytest_report_header(config: pytest.Config) -> str | None:
    said = [f"{name} {value}" for name in _OPTIONS if (value := _option(config, name)) is not None]
    return f"hipfile: {', '.join(said)}" if said else None


# -- from a test to its keywords ---------------------------------------------------------------------------------------


def _keywords(request_or_item: Any) -> dict[str, Any]:
    """Keywords of `fake` for a test: the options, over them the markers, outermost first, and a replay above all."""
    node = getattr(request_or_item, "node", request_or_item)
    config = node.config
    found: dict[str, Any] = {}
    watchdog = _option(config, "watchdog")
    for name, value in (
        ("profile", _option(config, "profile")),
        ("schedule", _schedule(config)),
        ("watchdog_s", None if watchdog is None else float(watchdog)),
    ):
        if value is not None:
            found[name] = value
    for marker in reversed(list(node.iter_markers(MARKER))):
        if len(marker.args) > 1:
            raise pytest.UsageError(
                f"{node.nodeid}: the marker {MARKER} takes keywords, and at most the profile without one"
            )
        if marker.args:
            found["profile"] = marker.args[0]
        found.update(marker.kwargs)
    _check_keywords(node, found)
    if config.getoption("hipfile_replay") is not None:
        found["schedule"] = config.getoption("hipfile_replay")
        found["schedules"] = None
    return found


def _check_keywords(node: pytest.Item, found: dict[str, Any]) -> None:
    from hipfile_mock.fake import KEYWORDS
    from hipfile_mock.near import near

    known = {*KEYWORDS, *_EXPLORER}
    for name in found:
        if name not in known:
            raise pytest.UsageError(
                f"{node.nodeid}: the marker {MARKER} has no keyword {name!r}{near(name, known) or '.'} It has those of "
                f"hipfile_mock.fake ({', '.join(sorted(KEYWORDS))}), and for exploring {', '.join(_EXPLORER)}"
            )


def _split(keywords: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords for `fake`, and those for the explorer."""
    return (
        {name: value for name, value in keywords.items() if name not in _EXPLORER},
        {name: value for name, value in keywords.items() if name in _EXPLORER and value is not None},
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test with the marker runs in a fake, whether or not it names the fixture."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker(MARKER) is None:
        return
    if "hipfile_fake" not in item.fixturenames:
        item.fixturenames.insert(0, "hipfile_fake")


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hipfile_fake(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A fresh emulated machine with the doubles in place, strict: a `hipfile_mock.Session`.

    Keywords come from ``@pytest.mark.hipfile(...)`` and from the options.
    """
    from hipfile_mock.fake import fake

    options, _ = _split(_keywords(request))
    item = request.node
    entered = fake(**options)
    session = entered.__enter__()
    item.stash[_session_key] = session
    try:
        yield session
    finally:
        error = item.stash.get(_error_key, None)
        item.stash[_text_key] = _describe(item, session)
        _properties(item, session)
        _write_trace(item, session, failed=error is not None)
        del item.stash[_session_key]
        entered.__exit__(type(error) if error is not None else None, error, None)


@pytest.fixture
def hipfile_clock(hipfile_fake: Session) -> VirtualClock:
    """The virtual clock of ``hipfile_fake``: ``now`` in ns, ``advance(ns)``."""
    clock: VirtualClock = hipfile_fake.machine.clock
    return clock


@pytest.fixture
def hipfile_stub() -> Iterator[Stub]:
    """A programmable double without an engine: `hipfile_mock.stub`."""
    from hipfile_mock.stub import stub

    with stub() as double:
        yield double


@pytest.fixture
def hipfile_native(request: pytest.FixtureRequest) -> Iterator[Activated]:
    """The emulated C libraries in this process; they work on the machine of ``hipfile_fake`` where a test has both."""
    from hipfile_mock.native import native

    if "hipfile_fake" in request.fixturenames:
        with native(request.getfixturevalue("hipfile_fake").machine) as activated:
            yield activated
        return
    with native(profile=_option(request.config, "profile") or "newest") as activated:
        yield activated


# -- running and reporting ---------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Races and misuse fail the test itself; what is left over can only be known once its fixtures are gone."""
    outcome = yield
    session = item.stash.get(_session_key, None)
    if session is None:
        return
    if outcome.excinfo is not None:
        item.stash[_error_key] = outcome.excinfo[1]
        return
    if session.sanitizer is not None and session.options.get("strict") and session.sanitizer.errors:
        from hipfile_sim.observe.sanitizer import SanitizerError

        error = SanitizerError(session.sanitizer.errors, session.report())
        item.stash[_error_key] = error
        outcome.force_exception(error)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist: with ``--dist each`` every worker runs every test, so each explores its share of the orders."""
    node.workerinput[_EACH] = node.config.getoption("dist") == "each"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Under ``--hipfile-schedules`` or ``schedules=`` the test runs once for each schedule, in a fake of its own."""
    if "hipfile_fake" not in pyfuncitem.fixturenames:
        return None
    options, explorer = _split(_keywords(pyfuncitem))
    config = pyfuncitem.config
    asked = _option(config, "schedules")
    if "schedules" not in explorer and asked is not None and config.getoption("hipfile_replay") is None:
        explorer["schedules"] = int(asked)
    if not explorer.get("schedules"):
        return None
    explorer.setdefault("strategy", _option(config, "strategy") or "dpor")
    if getattr(config, "workerinput", {}).get(_EACH):
        from hipfile_sim.explore import shard_from_xdist

        explorer.setdefault("shard", shard_from_xdist())
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    _explore(pyfuncitem, arguments, options, explorer)
    return True


def _explore(
    item: pytest.Function, arguments: dict[str, Any], options: dict[str, Any], explorer: dict[str, Any]
) -> None:
    from hipfile_mock.fake import fake
    from hipfile_sim.explore.testing import explore_test

    runs = itertools.count(1)
    ours = {"hipfile_fake", "hipfile_clock"} & arguments.keys()

    def fresh() -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if name not in ours}
        if "tmp_path" in given:  # what one run leaves there is not for the next
            given["tmp_path"] = given["tmp_path"] / f"run-{next(runs)}"
            given["tmp_path"].mkdir()
        return given

    def once(hipfile_fake: Session, **given: Any) -> Any:
        made = {"hipfile_fake": hipfile_fake, "hipfile_clock": hipfile_fake.machine.clock}
        return item.obj(**given, **{name: made[name] for name in ours})

    item.stash[_explored_key] = True
    complete = explorer.pop("complete", False)
    found = explore_test(once, fresh, fake=lambda schedule: fake(**{**options, "schedule": schedule}), **explorer)
    item.user_properties.append(("hipfile_schedules", found.coverage))
    if found.failures:
        failure = found.failures[0]
        error = failure.error
        error.add_note(
            f"{failure.timeline}\n{failure.report}\n{found.summary()}\n{_rerun(item, options, failure.token)}"
        )
        raise error
    if complete and not found.complete:
        pytest.fail(f"not every order was covered: {found.summary()}; raise schedules=", pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    from hipfile_mock.pytest_report import Said, findings, found_by_us

    error = call.excinfo.value if call.excinfo is not None else None  # none: a strict xfail that passed
    if call.excinfo is not None and found_by_us(item, call.excinfo):
        report.longrepr = Said(call.excinfo.value)
    if item.stash.get(_explored_key, False):  # what failed ran on a machine of its own, and its notes say how
        return
    session = item.stash.get(_session_key, None)
    text = _describe(item, session) if session is not None else item.stash.get(_text_key, None)
    if text is not None:
        report.sections.append(("hipfile", text))
    found = "" if session is None or hasattr(error, "findings") else findings(session)
    if found:
        report.sections.append(("hipfile sanitizer", found))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How much of what can happen was tried: a test that passed may not have covered it."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.stats.get(name, ())]
    if not any(name == "hipfile_schedules" for report in reports for name, _ in report.user_properties):
        return
    from hipfile_mock.pytest_report import coverage

    lines = coverage(reports, every=terminalreporter.verbosity > 0)
    if lines:
        terminalreporter.section("hipfile schedules")
    for line in lines:
        terminalreporter.line(line)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    """A test module that imports ``hipfile`` at its top is read before any fixture is there."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        from hipfile_mock.pytest_report import AT_THE_TOP, MISSING

        if MISSING.search(str(report.longrepr)):
            report.sections.append(("hipfile", AT_THE_TOP))


def _describe(item: pytest.Item, session: Session) -> str:
    """Profile, schedule, the line that reruns this, and the last steps."""
    from hipfile_mock.pytest_report import left_out
    from hipfile_sim.observe.timeline import steps

    engine: Any = session.machine.engine
    lines = [f"profile {session.machine.profile.name}"]
    if engine.threaded:
        lines[0] += ", threaded engine (no token: runs differ; use engine='steps' to repeat one)"
    else:
        token = session.token()
        lines[0] += f", schedule {engine.schedule}, token {token}"
        lines.append(f"rerun exactly this: {_rerun(item, session.options, token)}")
    if left_out():
        lines.append(left_out())
    trace = _trace_path(item)
    if trace is not None:
        lines.append(f"trace: {trace} (open it in ui.perfetto.dev)")
    if session.recorder is not None:
        lines += ["", steps(session.recorder)]
    return "\n".join(lines)


def _rerun(item: pytest.Item, options: dict[str, Any], token: str) -> str:
    parts = ["pytest", item.nodeid]
    profile = options.get("profile")
    if isinstance(profile, str):
        parts += ["--hipfile-profile", profile]
    if (watchdog := _option(item.config, "watchdog")) is not None:
        parts += ["--hipfile-watchdog", watchdog]
    return shlex.join([*parts, "--hipfile-replay", token])


def _properties(item: pytest.Item, session: Session) -> None:
    """For JUnit: what ran under which schedule."""
    item.user_properties.append(("hipfile_profile", session.machine.profile.name))
    engine: Any = session.machine.engine
    item.user_properties.append(("hipfile_schedule", "threads" if engine.threaded else str(engine.schedule)))
    if not engine.threaded and not item.stash.get(_explored_key, False):
        item.user_properties.append(("hipfile_token", session.token()))


def _trace_path(item: pytest.Item) -> Path | None:
    """Where the trace of this test goes, or None when none is wanted."""
    mode = _option(item.config, "trace")
    folder = _option(item.config, "trace_dir")
    if mode is None:
        mode = "on-failure" if folder else "off"
    if mode == "off":
        return None
    name = re.sub(r"[^\w.-]+", "_", item.nodeid).strip("_")[-150:]
    return item.config.rootpath / (folder or ".hipfile-traces") / f"{name}.json"


def _write_trace(item: pytest.Item, session: Session, *, failed: bool) -> None:
    path = _trace_path(item)
    if path is None or session.recorder is None:
        return
    if failed or _option(item.config, "trace") == "always":
        from hipfile_sim.observe.chrome import write_chrome

        path.parent.mkdir(parents=True, exist_ok=True)
        write_chrome(session.recorder, str(path))


__all__ = ["hipfile_clock", "hipfile_fake", "hipfile_stub"]

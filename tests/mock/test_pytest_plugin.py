"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

pytest_plugins = ["pytester"]

RACE = """
    import ctypes

    def two_sets(machine):
        hip = machine.hip
        _, pointer = hip.hipMalloc(64)
        _, one = hip.hipStreamCreateWithFlags(1)
        _, two = hip.hipStreamCreateWithFlags(1)
        hip.hipMemsetAsync(pointer, 1, 64, one)
        hip.hipMemsetAsync(pointer, 2, 64, two)
        hip.hipDeviceSynchronize()
        value = machine.memory.view(pointer, 1)[0]
        for stream in (one, two):
            hip.hipStreamDestroy(stream)
        hip.hipFree(pointer)
        return value
"""


def test_the_fixture_gives_a_session_and_hipfile(run):
    result = run(
        """
        def test_it(hipfile_fake, hipfile_clock):
            import hipfile
            with hipfile.Driver() as driver:
                assert driver.use_count() == 1
            before = hipfile_clock.now
            assert hipfile_clock.advance(5) == before + 5

        def test_fresh(hipfile_fake):
            import hipfile
            assert hipfile.Driver.use_count() == 0
        """
    )
    result.assert_outcomes(passed=2)


def test_the_marker_needs_no_fixture_and_takes_the_keywords_of_fake(run):
    result = run(
        """
        import pytest, hipfile_mock

        pytestmark = pytest.mark.hipfile(devices=3, schedule="lazy")

        @pytest.mark.hipfile("0.3", schedule="eager")
        def test_closest_wins():
            machine = hipfile_mock.session().machine
            assert machine.profile.name == "0.3"
            assert str(machine.engine.schedule) == "eager"
            assert machine.hip.device_count == 3

        def test_module(hipfile_fake):
            assert str(hipfile_fake.engine.schedule) == "lazy"
        """
    )
    result.assert_outcomes(passed=2)


def test_nothing_is_left_after_a_test(run):
    result = run(
        """
        import sys, pytest

        @pytest.mark.hipfile
        def test_in():
            import hipfile

        def test_out():
            assert "hipfile" not in sys.modules
            with pytest.raises(ImportError):
                import hipfile
        """
    )
    result.assert_outcomes(passed=2)


def test_options_are_defaults_and_are_named_in_the_header(run):
    result = run(
        """
        def test_it(hipfile_fake):
            assert hipfile_fake.profile.name == "0.2"
            assert str(hipfile_fake.engine.schedule) == "seeded:9"
        """,
        "--hipfile-profile=0.2",
        "--hipfile-seed=9",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["hipfile: profile 0.2, seed 9"])


def test_ini(pytester, run):
    pytester.makeini("[pytest]\nhipfile_profile = 0.4\nhipfile_schedule = lazy\n")
    result = run(
        """
        def test_it(hipfile_fake):
            assert hipfile_fake.profile.name == "0.4"
            assert str(hipfile_fake.engine.schedule) == "lazy"
        """
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hipfile-profile=9.9"], "9.9"),
        (["--hipfile-schedule=sometimes"], "unknown schedule 'sometimes'"),
        (["--hipfile-replay=hs1-zzz"], "damaged token"),
        (["--hipfile-seed=1", "--hipfile-schedule=lazy"], "each say what the schedule is"),
        (["--hipfile-schedules=0"], "at least 1"),
        (["--hipfile-strategy=luck"], "unknown strategy 'luck'"),
    ],
)
def test_wrong_options_are_refused_before_any_test(run, options, message):
    result = run("def test_it(): pass", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_a_failure_says_how_to_rerun_it_and_the_line_works(pytester, run):
    source = (
        RACE
        + """
    import pytest

    @pytest.mark.hipfile(strict=False)
    def test_race(hipfile_fake):
        assert two_sets(hipfile_fake.machine) == 2
"""
    )
    failing = None
    for seed in range(20):
        result = run(source, f"--hipfile-seed={seed}")
        if result.ret == 1:
            failing = result
            break
    assert failing is not None
    text = failing.stdout.str()
    assert "profile 0.5, schedule seeded:" in text
    assert "set 64 B" in text  # the timeline
    (line,) = re.findall(r"rerun exactly this: pytest (\S+) --hipfile-replay (\S+)", text)
    again = pytester.runpytest_subprocess(line[0], "--hipfile-replay", line[1])
    again.assert_outcomes(failed=1)
    assert line[1] in again.stdout.str()


def test_a_race_fails_the_test_itself_in_strict_mode(run):
    result = run(
        RACE
        + """
    def test_race(hipfile_fake):
        two_sets(hipfile_fake.machine)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*race.write-write*", "FAILED * - error*"])
    result.stdout.no_fnmatch_line("*get_result*")


EARLY = """
        import os

        def test_early(hipfile_fake, tmp_path):
            import hipfile
            name = str(tmp_path / "f")
            (tmp_path / "f").write_bytes(b"x" * 4096)
            pointer, stream = hipfile_fake.hip.hipMalloc(4096)[1], hipfile_fake.hip.hipStreamCreate()[1]
            with hipfile.Buffer(pointer, 4096, 0) as buffer, hipfile.FileHandle(name, os.O_RDONLY) as file:
                io = file.read_async(buffer, 4096, 0, 0, stream)
                read = io.bytes_done
                %s
                hipfile_fake.hip.hipStreamSynchronize(stream)
"""


def test_what_fails_by_itself_is_shown_with_what_the_sanitizer_knows(run):
    result = run(EARLY % "assert read == 4096", "--hipfile-schedule=lazy")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 0 == 4096", "*hipfile sanitizer*", "error result.early-read: *"])


def test_an_error_of_the_sanitizer_is_shown_without_the_way_to_it(run):
    result = run(EARLY % "assert read >= 0")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   error result.early-read: *", "FAILED *::test_early*"])
    assert "hipfile_mock/" not in result.stdout.str()


def test_a_build_of_torch_that_is_left_alone_is_named(run):
    result = run(
        """
        import sys, types

        def test_it(hipfile_fake, monkeypatch):
            version = types.SimpleNamespace(cuda="12.9", hip=None)
            monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(version=version))
            assert False, "no NVIDIA driver"
        """
    )
    result.stdout.fnmatch_lines(["torch is a build with CUDA and left alone: *"])


@pytest.mark.torch
def test_the_double_of_torch_is_not_taken_for_a_build_that_is_left_alone(pytester):
    pytester.makeconftest("import hipfile_mock\nhipfile_mock.install()")
    pytester.makepyfile(
        """
        import torch

        def test_it(hipfile_fake):
            assert torch.zeros(3, device="cuda").sum().item() == 1
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["profile *"])
    result.stdout.no_fnmatch_line("*left alone*")


@pytest.mark.parametrize("line", ["import hipfile", "from hip import hip"])
def test_a_module_that_imports_the_doubles_at_its_top_is_told_what_to_do(pytester, line):
    pytester.makepyfile(f"{line}\ndef test_it(hipfile_fake): pass")
    options = ("-p", "no:cacheprovider")
    result = pytester.runpytest_subprocess(*options)
    if result.ret == pytest.ExitCode.OK:
        pytest.skip(f"{line!r}: the real package is installed")
    result.stdout.fnmatch_lines(["*hipfile_mock.install()"])
    pytester.makeconftest("import hipfile_mock\nhipfile_mock.install()")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_what_is_left_over_is_an_error_of_the_teardown(run, tmp_path):
    result = run(
        """
        import os

        def test_leak(hipfile_fake, tmp_path):
            import hipfile
            (tmp_path / "f").write_bytes(b"x" * 4096)
            file = hipfile.FileHandle(str(tmp_path / "f"), os.O_RDONLY)
            file.open()
            hipfile_fake.kept = file
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*leak.handle*"])


def test_a_fault_that_never_fired_is_an_error(run):
    result = run(
        """
        import errno, pytest
        from hipfile_mock import faults

        @pytest.mark.hipfile(faults=[faults.on("pwrite").errno(errno.ENOSPC)])
        def test_it():
            pass
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["E   *errno ENOSPC on pwrite* never fired"])
    result.stdout.no_fnmatch_line("*contextlib*")


def test_exploring_finds_the_schedule_that_breaks_a_test(pytester, run):
    source = (
        RACE
        + """
    import pytest

    @pytest.mark.hipfile(strict=False)
    def test_race(hipfile_fake):
        assert two_sets(hipfile_fake.machine) == 2
"""
    )
    result = run(source, "--hipfile-schedules=50")
    result.assert_outcomes(failed=1)
    (line,) = set(re.findall(r"pytest (\S+) --hipfile-replay (\S+)", result.stdout.str()))
    result.stdout.fnmatch_lines(["*hipfile schedules*", "*::test_race: *"])
    pytester.runpytest_subprocess(line[0], "--hipfile-replay", line[1]).assert_outcomes(failed=1)


def test_xdist_spreads_an_exploration_when_every_worker_runs_every_test(run):
    pytest.importorskip("xdist")
    source = (
        RACE
        + """
    import pytest

    @pytest.mark.hipfile(strict=False, schedules=200, twice=True)
    def test_either(hipfile_fake):
        assert two_sets(hipfile_fake.machine) in (1, 2)
"""
    )
    spread = run(source, "-n2", "--dist", "each", "-v")
    spread.assert_outcomes(passed=2)
    for shard in ("0/2", "1/2"):
        assert f"shard {shard} of all" in spread.stdout.str()
    assert "shard" not in run(source, "-n2", "-v").stdout.str()


def test_a_proof_that_was_not_finished_fails_when_it_was_asked_for(run):
    result = run(
        RACE
        + """
    import pytest

    @pytest.mark.hipfile(strict=False, schedules=1, complete=True)
    def test_one(hipfile_fake):
        assert two_sets(hipfile_fake.machine) in (1, 2)

    @pytest.mark.hipfile(strict=False, schedules=100, complete=True)
    def test_all(hipfile_fake):
        assert two_sets(hipfile_fake.machine) in (1, 2)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*not every order was covered*"])


def test_exploring_passes_what_is_right_and_says_what_was_covered(run, tmp_path):
    xml = tmp_path / "junit.xml"
    result = run(
        RACE
        + """
    import pytest

    @pytest.mark.hipfile(strict=False, schedules=100)
    def test_either(hipfile_fake):
        assert two_sets(hipfile_fake.machine) in (1, 2)
""",
        f"--junitxml={xml}",
    )
    result.assert_outcomes(passed=1)
    properties = {p.get("name"): p.get("value") for p in ElementTree.parse(xml).iter("property")}
    assert re.match(r"all [\d,]+ orders, \d+ after reduction", properties["hipfile_schedules"])
    assert "hipfile_token" not in properties  # of a machine on which nothing ran
    result.stdout.fnmatch_lines(["*::test_either: all * orders, * after reduction"])


def test_traces(pytester, run):
    source = """
        def test_good(hipfile_fake):
            hipfile_fake.hip.hipDeviceSynchronize()

        def test_bad(hipfile_fake):
            hipfile_fake.hip.hipDeviceSynchronize()
            assert 0
    """
    run(source, "--hipfile-trace=on-failure").assert_outcomes(passed=1, failed=1)
    (trace,) = (pytester.path / ".hipfile-traces").iterdir()
    assert "test_bad" in trace.name
    assert json.loads(trace.read_text())["traceEvents"]
    run(source, "--hipfile-trace=always", "--hipfile-trace-dir=here")
    assert len(list((pytester.path / "here").iterdir())) == 2


def test_junit_properties(run, tmp_path):
    xml = tmp_path / "junit.xml"
    run("def test_it(hipfile_fake): pass", f"--junitxml={xml}")
    properties = {p.get("name"): p.get("value") for p in ElementTree.parse(xml).iter("property")}
    assert properties["hipfile_profile"] == "0.5"
    assert properties["hipfile_schedule"] == "parallel"
    assert properties["hipfile_token"].startswith("hs1-")


def test_the_stub(run):
    result = run(
        """
        def test_it(hipfile_stub):
            import hipfile
            hipfile_stub.use_count.returns(7)
            assert hipfile.Driver.use_count() == 7
        """
    )
    assert result.ret in (0, 1)
    result.assert_outcomes(passed=1)


def test_under_xdist(run):
    pytest.importorskip("xdist")
    result = run(
        """
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(hipfile_fake, n):
            assert n != 2
        """,
        "-n2",
        "--hipfile-seed=1",
    )
    result.assert_outcomes(passed=3, failed=1)
    assert result.stdout.str().count("hipfile: ") == 1


def test_a_suite_that_does_not_use_it_imports_nothing(run, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = run(
        """
        import sys

        def test_it():
            assert "hipfile_mock.pytest_plugin" in sys.modules
            assert not {"numpy", "torch", "hipfile_sim", "pyfakefs", "hypothesis", "ctypes"} & set(sys.modules)
        """,
        "-p",
        "hipfile_mock.pytest_plugin",
    )
    result.assert_outcomes(passed=1)


def test_collection_of_an_empty_suite_costs_little(tmp_path):
    """40,000 function calls are some 10 ms, pytest itself makes ten times as many; benchmarks/ has the time."""
    (tmp_path / "test_empty.py").write_text("")
    program = (
        "import cProfile, sys, pytest\n"
        "with cProfile.Profile() as profile: pytest.main(sys.argv[1:])\n"
        "print(sum(entry.callcount for entry in profile.getstats()))"
    )

    def calls(*options):
        command = [sys.executable, "-c", program, "--collect-only", "-q", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return int(done.stdout.split()[-1])

    assert 0 < calls() - calls("-p", "no:hipfile") < 40_000

"""Mistakes in faults, keywords, markers and options: messages name what was written, where, and what would be right."""

from __future__ import annotations

import pytest

import hipfile_mock
from hipfile_mock import fake, faults

pytest_plugins = ["pytester"]

FAULTS = [
    (lambda: faults.on("pwrite", nht=3), TypeError, r"on\('pwrite', nht=…\): .*did you mean nth\? It has nth, times"),
    (lambda: faults.on("pwrit"), ValueError, r"unknown operation; did you mean pwrite"),
    (lambda: faults.on(3), TypeError, r"on\(3\): the name of an operation"),
    (lambda: faults.on("hipMaloc"), ValueError, r"no call of HIP .*did you mean hipMalloc"),
    (lambda: faults.on("hipFileReadAsnyc"), ValueError, r"did you mean hipFileReadAsync"),
    (lambda: faults.on("hipXyz*"), ValueError, r"'hipXyz\*'.* no call"),
    (lambda: faults.on("pwrite", nth="3"), TypeError, r"nth='3' of a fault on 'pwrite': a number, from 1"),
    (lambda: faults.on("pwrite", nth=True), TypeError, r"nth=True"),
    (lambda: faults.on("pwrite", nth=0), ValueError, r"nth=0: matches are counted from 1"),
    (lambda: faults.on("pwrite", within=5), TypeError, r"within=5 .*first byte, one past the last"),
    (lambda: faults.on("pwrite", within=(1, 2, 3)), ValueError, r"within=\(1, 2, 3\)"),
    (lambda: faults.on("pwrite", path=3), TypeError, r"path=3 .*a glob"),
    (lambda: faults.on("pwrite", when=3), TypeError, r"when=3 .*a function that gets a Candidate"),
    (lambda: faults.on("pwrite", stream="s"), TypeError, r"stream='s' .*handle of a stream"),
    (lambda: faults.on("pwrite", probability="x"), TypeError, r"probability='x' .*above 0, at most 1"),
    (lambda: faults.on("pwrite").errno("ENOSPCE"), ValueError, r"errno 'ENOSPCE': .*did you mean ENOSPC"),
    (lambda: faults.on("pwrite").error(5), TypeError, r"'pwrite', which has errno, eintr, partial, short, returns"),
    (lambda: faults.on("hipMalloc").eror(2), AttributeError, r"on\('hipMalloc'\).eror: .*did you mean error"),
    (lambda: faults.on("hipMalloc").error(5022), ValueError, r"error\(5022\) on 'hipMalloc': .*hipError_t"),
    (lambda: faults.on("pread").short("x"), TypeError, r"\('x'\): bytes, not below 0"),
    (lambda: faults.on("command").delay("x"), TypeError, r"delay\('x'\): ns of virtual time"),
    (lambda: faults.on("read").result("x"), TypeError, r"result\('x'\): a byte count, or a negative code"),
    (lambda: faults.disk("1G"), TypeError, r"disk\('1G'\): bytes"),
    (lambda: faults.device_memory(-1), ValueError, r"device_memory\(-1\): bytes"),
    (lambda: faults.pinned_memory(1.5), TypeError, r"pinned_memory\(1.5\): bytes"),
    (lambda: faults.queue_limit(0), ValueError, r"queue_limit\(0\): operations outstanding, at least 1"),
    (lambda: faults.queue_limit(2, value=3), ValueError, r"value=3\): a failure is negative"),
    (lambda: faults.size_limit(-1), ValueError, r"size_limit\(-1\): bytes"),
    (lambda: faults.stall("x"), TypeError, r"'x' is no stream: give a handle"),
    (lambda: hipfile_mock.stub().raed, AttributeError, r"no 'raed'; did you mean read"),
    (lambda: hipfile_mock.stub().read.fails("x"), ValueError, r"hipFileRead.fails\('x', 0\): the numbers of errors"),
]


@pytest.mark.parametrize(("wrong", "kind", "message"), FAULTS, ids=[row[2] for row in FAULTS])
def test_faults_and_stubs(wrong, kind, message):
    with pytest.raises(kind, match=message):
        wrong()


def test_half_a_rule_says_so():
    assert "needs an action: errno, eintr" in repr(faults.on("pwrite"))
    with pytest.raises(TypeError, match=r"half a fault: on.'pwrite'. needs an action"):
        fake(faults=[faults.on("pwrite")]).__enter__()


def test_globs_and_numbers_that_are_right():
    assert str(faults.on("hipFile*Async").error(5022))
    assert str(faults.on("hip*Malloc").error(2))
    assert faults.on("pread", within=[0, 10]).short(5).within == [0, 10]


KEYWORDS = [
    ({"schedul": "lazy"}, TypeError, "no keyword 'schedul'; did you mean schedule"),
    ({"schedule": "lazzy"}, ValueError, "'lazzy'.*lazy"),
    ({"profile": "0.9"}, ValueError, "'0.9'.*0.5"),
    ({"devices": "2"}, ValueError, "devices is '2'"),
    ({"env": {"A": 1}}, TypeError, "env: A is 1; variables are text, so write '1'"),
    ({"faults": [3]}, TypeError, "faults has 3.*rules of hipfile_mock.faults"),
    ({"filesystem": "tmps"}, ValueError, "'tmps'.*tmpfs"),
    ({"trace": "no/such/folder/t.json"}, FileNotFoundError, "trace='no/such/folder/t.json': there is no folder"),
    ({"engine": "thread"}, ValueError, "'thread'.*'threads'"),
    ({"faces": ["torhc"]}, hipfile_mock.FaceUnavailable, r"'torhc'; did you mean torch\?"),
    ({"costs": 3}, TypeError, "costs=3: give a CostModel"),
]


@pytest.mark.parametrize(("keywords", "kind", "message"), KEYWORDS, ids=[row[2] for row in KEYWORDS])
def test_keywords_of_fake(keywords, kind, message):
    with pytest.raises(kind, match=message), fake(**keywords):
        pass


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hipfile_profile = 9.9", "hipfile_profile = 9.9 in *tox.ini: no profile '9.9'; known*"),
        ("hipfile_schedule = lazzy", "hipfile_schedule = lazzy in *tox.ini: unknown schedule 'lazzy'*"),
        ("hipfile_schedules = many", "hipfile_schedules = many in *tox.ini: a number of schedules, at least 1"),
        ("hipfile_strategy = luck", "hipfile_strategy = luck in *tox.ini: unknown strategy 'luck'*"),
        ("hipfile_trace = sometimes", "hipfile_trace = sometimes in *tox.ini: choose one of off, on-failure, always"),
        ("hipfile_watchdog = soon", "hipfile_watchdog = soon in *tox.ini: a number of seconds above 0"),
    ],
)
def test_ini_values(pytester, run, line, message):
    pytester.makeini(f"[pytest]\n{line}\n")
    result = run("def test_it(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}"])


def test_options_name_themselves(run):
    result = run("def test_it(): pass", "--hipfile-watchdog=0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--hipfile-watchdog=0: a number of seconds above 0"])


def test_a_wrong_keyword_of_the_marker(run):
    result = run(
        """
        import pytest

        @pytest.mark.hipfile(schedul="lazy")
        def test_fake(): pass

        @pytest.mark.hipfile(schedules=3, stategy="pct")
        def test_explorer(): pass
        """
    )
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "*::test_fake: the marker hipfile has no keyword 'schedul'; did you mean schedule*",
            "*::test_explorer: the marker hipfile has no keyword 'stategy'; did you mean strategy*",
        ]
    )


def test_the_watchdog_of_option_ini_and_marker(pytester, run):
    pytester.makeini("[pytest]\nhipfile_watchdog = 70\n")
    source = """
        import pytest

        def test_option(hipfile_fake):
            assert hipfile_fake.engine.watchdog_s == {option}

        @pytest.mark.hipfile(watchdog_s=9)
        def test_marker(hipfile_fake):
            assert hipfile_fake.engine.watchdog_s == 9

        def test_fails(hipfile_fake):
            assert False
        """
    result = run(source.format(option=70))
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["hipfile: watchdog 70", "rerun exactly this: *--hipfile-watchdog 70 --hipfile-replay*"]
    )
    run(source.format(option=80), "--hipfile-watchdog=80").assert_outcomes(passed=2, failed=1)

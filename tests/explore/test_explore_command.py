"""``hipfile-sim explore`` and ``replay``, as a user calls them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap

import pytest

RACE = """
    import sys
    import helper
    from hip import hip

    def call(result):
        error, *values = result
        assert int(error) == 0, error
        return values[0] if values else None

    print("arguments", sys.argv[1:], "loaded", helper.loaded)
    memory = call(hip.hipMalloc(8))
    streams = [call(hip.hipStreamCreateWithFlags(1)) for _ in range(2)]
    for value, stream in enumerate(streams, 1):
        call(hip.hipMemsetAsync(memory, value, 8, stream))
    call(hip.hipDeviceSynchronize())
    back = bytearray(8)
    call(hip.hipMemcpy(back, memory, 8, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    sys.exit(back[0] != 2 and CODE)
"""
HELPER = """
    loaded = 0
    loaded += 1
"""


@pytest.fixture
def folder(tmp_path):
    def write(name, text, **values):
        text = textwrap.dedent(text)
        for key, value in values.items():
            text = text.replace(key, value)
        (tmp_path / name).write_text(text)

    write("helper.py", HELPER)
    write("race.py", RACE, CODE="'the first stream was last'")
    write("code.py", RACE, CODE="7")
    write("calm.py", RACE, CODE="0")
    return tmp_path


def run(folder, *args, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "hipfile_sim.cli", *map(str, args)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_failing_schedule_is_printed_and_can_be_repeated_by_the_line_below_it(folder):
    found = run(folder, "explore", "race.py", "--its", "own", code=1)
    assert "SystemExit: the first stream was last" in found.stdout
    assert "1 choice away from a run in which nothing moves before it must:" in found.stdout
    assert re.search(r"^ +us +host +0:stream 1 +0:stream 2", found.stdout, re.M)
    assert "race.write-write" in found.stdout
    assert "arguments ['--its', 'own'] loaded 1" in found.stdout
    assert "hipfile-sim: " in found.stderr
    assert "1 failure" in found.stderr
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("  hipfile-sim replay ")]
    again = run(folder, *shlex.split(line)[1:], code=1)
    assert "the first stream was last" in again.stderr
    assert again.stdout == "arguments ['--its', 'own'] loaded 1\n"


def test_codes_are_failures_and_replay_gives_them_back(folder):
    found = run(folder, "explore", "--strategy", "random", "code.py", code=1)
    token = re.search(r"hs1-[\w-]+", found.stdout)[0]
    assert run(folder, "replay", token, "code.py", code=7).stdout


def test_a_calm_program_is_covered(folder):
    found = run(folder, "explore", "calm.py")
    assert re.search(r"hipfile-sim: all [\d,]+ orders, 2 after reduction; no failure", found.stderr)
    assert found.stdout == ""


def test_programs_that_print_what_depends_on_order(folder):
    (folder / "prints.py").write_text((folder / "calm.py").read_text() + "\nprint(back)\n".replace("\n", "\n", 1))
    text = (folder / "prints.py").read_text().replace("sys.exit(back[0] != 2 and 0)", "")
    (folder / "prints.py").write_text(text)
    assert "printed 2 different texts" in run(folder, "explore", "prints.py").stderr


def test_the_sanitizer_can_decide(folder):
    found = run(folder, "explore", "--sanitize", "calm.py", code=1)
    assert "SanitizerError" in found.stdout
    assert "--sanitize" in found.stdout
    token = re.search(r"hs1-[\w-]+", found.stdout)[0]
    assert "race.write-write" in run(folder, "replay", "--sanitize", token, "calm.py", code=1).stderr


def test_state_of_a_run_does_not_reach_the_next(folder):
    (folder / "state.py").write_text(
        textwrap.dedent(
            """
            import atexit, os, sys
            import helper
            from hip import hip

            assert helper.loaded == 1 and "MARK" not in os.environ and os.environ["SET"] == "yes"
            helper.loaded = 2
            os.environ["MARK"] = "1"
            os.chdir("/")
            sys.path.append("/nowhere")
            atexit.register(lambda: print("the end", sys.argv))
            streams = [hip.hipStreamCreateWithFlags(1)[1] for _ in range(2)]
            memory = hip.hipMalloc(8)[1]
            for stream in streams:
                hip.hipMemsetAsync(memory, 1, 8, stream)
            """
        )
    )
    found = run(folder, "explore", "--env", "SET=yes", "--strategy", "all", "--schedules", "20", "state.py")
    assert "no failure" in found.stderr
    token = re.search(r"hs1-[\w-]+", run(folder, "explore", "race.py", code=1).stdout)[0]
    assert "stopped fitting" in run(folder, "replay", "--env", "SET=yes", token, "state.py", code=4).stderr


def test_a_token_that_does_not_fit_says_where(folder):
    token = re.search(r"hs1-[\w-]+", run(folder, "explore", "race.py", code=1).stdout)[0]
    (folder / "other.py").write_text(
        textwrap.dedent(
            """
            from hip import hip
            streams = [hip.hipStreamCreateWithFlags(1)[1] for _ in range(3)]
            memory = hip.hipMalloc(8)[1]
            for stream in streams:
                hip.hipMemsetAsync(memory, 1, 8, stream)
            hip.hipDeviceSynchronize()
            """
        )
    )
    done = run(folder, "replay", token, "other.py", code=4)
    assert re.search(r"the token stopped fitting at choice \d+: it expects \d options", done.stderr)
    assert re.search(r"\(at \S*other\.py:\d\)", done.stderr)
    (folder / "nothing.py").write_text("print('nothing')")
    assert (
        "more choices, the program offers the end of the run"
        in run(folder, "replay", token, "nothing.py", code=4).stderr
    )


def test_replay_draws(folder):
    token = re.search(r"hs1-[\w-]+", run(folder, "explore", "race.py", code=1).stdout)[0]
    done = run(folder, "replay", "--timeline", "--trace", "out.json", token, "race.py", code=1)
    assert "0:stream 1" in done.stderr
    assert (folder / "out.json").stat().st_size > 100


def test_resume_shards_and_budgets(folder):
    options = ["--strategy", "all", "--resume", "file.json"]
    first = run(folder, "explore", *options, "--schedules", "3", "calm.py")
    assert "3 schedules of" in first.stderr
    assert "stopped by: complete" in run(folder, "explore", *options, "--schedules", "0", "calm.py").stderr
    shards = [run(folder, "explore", "--shard", f"{n}/2", "calm.py").stderr for n in range(2)]
    assert [f"shard {n}/2 of all" in text for n, text in enumerate(shards)] == [True, True]
    assert "stopped by: time" in run(folder, "explore", "--seconds", "0", "calm.py").stderr


def test_modules(folder):
    assert "no failure" in run(folder, "explore", "-m", "calm", "a").stderr
    token = re.search(r"hs1-[\w-]+", run(folder, "explore", "-m", "race", code=1).stdout)[0]
    assert "first stream" in run(folder, "replay", "-m", "race", token, code=1).stderr


def test_a_program_that_does_not_repeat_itself(folder):
    (folder / "dice.py").write_text(
        (folder / "calm.py").read_text().replace("range(2)", "range(1 + __import__('os').urandom(1)[0] % 3)")
    )
    done = run(folder, "explore", "--twice", "--strategy", "random", "dice.py", code=4)
    assert "the program depends on a clock, on randomness" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["explore"], "name a program"),
        (["explore", "absent.py"], "no file absent.py"),
        (["explore", "--shard", "2/2", "calm.py"], "is not I/N with 0 <= I < N"),
        (["explore", "--shard", "0/2", "--strategy", "bounded", "calm.py"], "cannot be sharded"),
        (["explore", "--resume", "helper.py", "calm.py"], "cannot resume from helper.py"),
        (["explore", "--nonsense", "calm.py"], "No such option"),
        (["replay"], "Missing argument 'TOKEN'"),
        (["replay", "hs1-x", "calm.py"], "damaged token"),
        (["replay", "calm.py"], "not a token"),
    ],
)
def test_wrong_usage(folder, args, message):
    assert message in run(folder, *args, code=2).stderr

"""``hipfile-sim run``: the program cannot tell the difference, but for the GPU that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hipfile_sim.cli.run import NO_LIBRARY


@pytest.fixture
def sim(tmp_path):
    """Write a program and run it by the command line, in an empty folder."""

    def run(source: str, *options: str, args: tuple[str, ...] = (), name: str = "prog.py", target: str | None = None):
        (tmp_path / name).write_text(textwrap.dedent(source))
        command = [sys.executable, "-m", "hipfile_sim.cli", "run", *options]
        command += [target or name, *args]
        env = {**os.environ, "COLUMNS": "100"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=500, check=False)
        done.stderr = done.stderr.replace(f"{NO_LIBRARY}\n", "")  # true of some environments
        return done

    run.folder = tmp_path
    return run


# ------------------------------------------------------------------------------------------------- what a program sees


def test_the_program_sees_itself_as_main_with_its_own_arguments(sim):
    done = sim(
        """
        import sys, __main__
        print(__name__, sys.argv, __file__, __main__.__dict__ is globals(), sys.path[0])
        """,
        args=("--own-option", "x", "--", "-y"),
    )
    assert done.returncode == 0, done.stderr
    own = ["prog.py", "--own-option", "x", "--", "-y"]
    assert done.stdout.strip() == f"__main__ {own} prog.py True {sim.folder}"


def test_modules_beside_the_program_are_found(sim):
    (sim.folder / "beside.py").write_text("VALUE = 5\n")
    assert sim("import beside; print(beside.VALUE)").stdout == "5\n"


def test_a_module_runs_as_with_python_m(sim):
    (sim.folder / "pack").mkdir()
    (sim.folder / "pack" / "__init__.py").write_text("")
    (sim.folder / "pack" / "tool.py").write_text("import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    done = sim("", "-m", "pack.tool", target="first", args=("--second",))
    assert done.stdout == "__main__ pack ['first', '--second']\n", done.stderr


def test_a_folder_with_a_main_runs(sim):
    (sim.folder / "app").mkdir()
    (sim.folder / "app" / "__main__.py").write_text("print('from a folder')\n")
    assert sim("", target="app").stdout == "from a folder\n"


def test_the_program_gets_the_model(sim):
    done = sim(
        """
        import hipfile
        from hipfile_mock import current
        machine = current.get()
        print(machine.profile.name, machine.hip.device_count, hipfile.Driver.use_count())
        """,
        "--profile", "0.2", "--devices", "3",
    )  # fmt: skip
    assert done.stdout == "0.2 3 0\n", done.stderr


def test_options_of_the_environment_reach_program_and_library(sim):
    done = sim(
        """
        import os
        from hipfile_mock import current
        level = {r.name: r.value for r in current.get().environment.resolved()}["HIPFILE_STATS_LEVEL"]
        print(os.environ["OWN"], level)
        """,
        "--env", "OWN=a=b", "--env", "HIPFILE_STATS_LEVEL=2",
    )  # fmt: skip
    assert done.stdout == "a=b 2\n", done.stderr


def test_spawned_code_can_still_pickle_what_is_in_main(sim):
    done = sim(
        """
        import pickle
        class Thing:
            pass
        print(type(pickle.loads(pickle.dumps(Thing()))).__name__)
        """
    )
    assert done.stdout == "Thing\n", done.stderr


# -------------------------------------------------------------------------------------------------------------- ending


@pytest.mark.parametrize(
    ("source", "code", "err"),
    [
        ("pass", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit(True)", 1, ""),
        ("import sys; sys.exit(256 + 9)", 9, ""),
        ("import sys; sys.exit('a reason')", 1, "a reason\n"),
        ("import os; os._exit(4)", 4, ""),
    ],
)
def test_the_exit_code_is_the_programs_own(sim, source, code, err):
    done = sim(source)
    assert (done.returncode, done.stderr) == (code, err)


def test_an_exception_is_shown_as_python_shows_it(sim):
    source = """
    def inner():
        return 1 // 0

    inner()
    """
    done = sim(source)
    plain = subprocess.run([sys.executable, "prog.py"], cwd=sim.folder, capture_output=True, text=True, check=False)
    assert done.returncode == plain.returncode == 1

    def lines(text):
        return [line.strip().replace(f"{sim.folder}/", "") for line in text.splitlines()]

    assert lines(done.stderr) == lines(plain.stderr)


def test_frames_of_the_simulator_inside_are_left_out_unless_wanted(sim):
    source = "import hipfile\nhipfile.FileHandle(3, 4, handle_type=99)\n"
    assert [line for line in sim(source).stderr.splitlines() if "File " in line] == [
        '  File "prog.py", line 2, in <module>'
    ]
    assert "hipfile_mock" in sim(source, "--full-traceback").stderr


def test_a_cause_is_shown_too(sim):
    done = sim("try:\n    1 // 0\nexcept ZeroDivisionError as e:\n    raise KeyError('later') from e\n")
    assert "ZeroDivisionError" in done.stderr
    assert "direct cause" in done.stderr
    assert "hipfile_sim" not in done.stderr


def test_a_syntax_error_points_at_the_place(sim):
    done = sim("x = (1,\ny = 2\n")
    assert done.returncode == 1
    assert 'File "prog.py", line 1' in done.stderr
    assert "SyntaxError" in done.stderr
    assert "hipfile_sim" not in done.stderr


def test_an_excepthook_of_the_program_is_used(sim):
    done = sim("import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\nraise ValueError\n")
    assert (done.returncode, done.stdout, done.stderr) == (1, "hook ValueError\n", "")


def test_ctrl_c_is_130(sim):
    done = sim("raise KeyboardInterrupt")
    assert done.returncode == 130
    assert "KeyboardInterrupt" in done.stderr


def test_threads_and_exit_handlers_still_have_the_machine(sim):
    done = sim(
        """
        import atexit, threading, time
        from hipfile_mock import current
        ended = threading.Event()
        def late(name):
            ended.wait()
            time.sleep(0.02)
            print(name, current.get().hip.hipGetDeviceCount()[1])
        atexit.register(late, "exit")
        threading.Thread(target=late, args=("thread",)).start()
        print("main ends")
        ended.set()
        """,
        "--devices", "5",
    )  # fmt: skip
    assert done.stdout == "main ends\nthread 5\nexit 5\n", done.stderr
    assert done.returncode == 0


def test_a_pool_that_was_left_open_does_not_hang(sim):
    done = sim(
        """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        print(pool.submit(lambda: 6).result())
        """
    )
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr


# ------------------------------------------------------------------------------------------------- what is shown of it

WORK = """
from hipfile_mock import current
hip = current.get().hip
_, memory = hip.hipMalloc(4096)
_, stream = hip.hipStreamCreate()
hip.hipMemsetAsync(memory, 1, 4096, stream)
hip.hipStreamSynchronize(stream)
hip.hipStreamDestroy(stream)
hip.hipFree(memory)
"""


def test_trace_is_written_and_named(sim):
    done = sim(WORK, "--trace", "out.trace.json")
    assert done.returncode == 0, done.stderr
    assert "trace of 1 commands in out.trace.json" in done.stderr
    written = json.loads((sim.folder / "out.trace.json").read_text())
    assert {e["name"] for e in written["traceEvents"] if e["ph"] == "X"} >= {"hipMemsetAsync", "hipStreamSynchronize"}


def test_the_trace_of_a_program_that_fails_is_written_too(sim):
    done = sim(WORK + "\nraise SystemExit(5)\n", "--trace", "out.trace.json")
    assert done.returncode == 5
    assert (sim.folder / "out.trace.json").exists()


def test_timeline_goes_to_stderr(sim):
    done = sim(WORK + "\nprint('own output')\n", "--timeline")
    assert done.stdout == "own output\n"
    assert "hipMemsetAsync" in done.stderr
    assert "|" in done.stderr


def test_a_token_repeats_the_run(sim):
    token = sim(WORK, "--seed", "3", "--token").stderr.strip().removeprefix("hipfile-sim: token ")
    assert token.startswith("hs1-")
    again = sim(WORK, "--schedule", token, "--token")
    assert again.returncode == 0
    assert again.stderr.strip() == f"hipfile-sim: token {token}"


@pytest.mark.parametrize("engine", ["steps", "threads"])
def test_both_engines_run_it(sim, engine):
    assert sim(WORK, "--engine", engine).returncode == 0


EARLY = """
import os, sys, hipfile
from hipfile_mock import current
hip = current.get().hip
with open("page.bin", "wb") as f:
    f.write(bytes(4096))
_, memory = hip.hipMalloc(4096)
_, stream = hip.hipStreamCreate()
with hipfile.Buffer(memory, 4096, 0) as buffer, hipfile.FileHandle("page.bin", os.O_RDONLY) as file:
    io = file.read_async(buffer, 4096, 0, 0, stream)
    io.bytes_done
    hip.hipStreamSynchronize(stream)
hip.hipStreamDestroy(stream)
hip.hipFree(memory)
"""


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 0, True),
        (["--check", "error"], 3, True),
        (["--check", "off"], 0, False),
        (["--check", "error", "--policy", "result.early-read=off"], 0, False),
        (["--check", "error", "--policy", "result.early-read=warn"], 0, True),
    ],
    ids=["default", "error", "off", "policy-off", "policy-warn"],
)
def test_findings_are_printed_and_may_fail_the_run(sim, options, code, said):
    done = sim(EARLY, *options)
    assert done.returncode == code, done.stderr
    assert ("result.early-read" in done.stderr) is said
    assert ("prog.py:11" in done.stderr) is said


def test_a_program_that_never_waits_is_told_about_the_count_that_it_read(sim):
    done = sim(
        """
        import os
        import hipfile
        from hip import hip

        open("page.bin", "wb").write(b"page" * 1024)
        memory, stream = hip.hipMalloc(4096)[1], hip.hipStreamCreate()[1]
        buffer, file = hipfile.Buffer(int(memory), 4096, 0), hipfile.FileHandle("page.bin", os.O_RDONLY)
        buffer.register()
        file.open()
        io = file.read_async(buffer, 4096, 0, 0, int(stream))
        print(io.bytes_done)
        """
    )
    assert done.stdout == "0\n"
    assert "result.early-read" in done.stderr
    assert "prog.py:12" in done.stderr
    assert "slot.owner-collected" in done.stderr  # when the program ends, which is no line of anybody's
    assert "/cli" not in done.stderr
    assert "click" not in done.stderr


def test_a_program_that_fails_keeps_its_code_and_is_not_blamed_for_what_it_left(sim):
    done = sim(EARLY.replace("hip.hipFree(memory)", "sys.exit(9)"), "--check", "error")
    assert done.returncode == 9
    assert "result.early-read" in done.stderr
    left = sim("from hipfile_mock import current\ncurrent.get().hip.hipMalloc(64)\nraise SystemExit(5)\n")
    assert (left.returncode, left.stderr) == (5, "")


def test_a_wrong_policy_is_said(sim):
    done = sim("pass", "--policy", "race.*=loud")
    assert done.returncode == 2
    assert "loud" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_printed_by_itself(sim):
    done = sim(WORK)
    assert (done.stdout, done.stderr) == ("", "")


def test_relative_paths_are_from_where_it_was_started(sim):
    sub = sim.folder / "sub"
    sub.mkdir()
    done = sim("import os; print(os.getcwd())", name="sub/prog.py")
    assert done.stdout.strip() == str(Path(sim.folder))

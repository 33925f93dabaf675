"""The command line itself: help, wrong use, and the commands that only show something."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hipfile_sim._version import __version__
from hipfile_sim.cli.app import COMMANDS, run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_explains_itself(name, capsys):
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: hipfile-sim {name}")
    assert "--help" in out


def test_help_teaches(capsys):
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "hipfile-sim run prog.py" in out
    for name, entry in COMMANDS.items():
        assert name in out
        assert entry.help.split()[0] in out


def test_the_reference_names_every_command():
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"
    assert re.findall(r"^\| `(\w+)` \|", page.read_text(), re.M) == list(COMMANDS)


def test_version(capsys):
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["prog.py", "a"], "hipfile-sim run prog.py a"),
        (["run"], "name a program to run"),
        (["run", "absent.py"], "no file absent.py"),
        (["run", "."], "is a folder without a __main__.py"),
        (["run", "--bogus", "prog.py"], "No such option"),
        (["run", "--profile", "9.9", "prog.py"], "known profiles: 0.2, 0.3"),
        (["run", "--schedule", "sideways", "prog.py"], "sideways"),
        (["run", "--schedule", "lazy", "--seed", "1", __file__], "give one of the two"),
        (["run", "--engine", "threads", "--seed", "1", __file__], "no order to choose"),
        (["run", "--seed", "x", "prog.py"], "'x' is not a valid int"),
        (["run", "--devices", "0", "prog.py"], "0 is not in the range"),
        (["run", "--env", "A", "prog.py"], "'A' is not NAME=VALUE"),
        (["run", "--trace", "/no/such/folder/t.json", __file__], "no folder /no/such/folder"),
        (["env", "--profile", "1999"], "no profile '1999'"),
        (["env", "--env", "=x"], "'=x' is not NAME=VALUE"),
        (["profiles", "nope"], "no profile 'nope'"),
        (["clauses", "no.such.clause"], "no clause or area"),
        (["clauses", "--function", "hipFileFrobnicate"], "hipFileFrobnicate"),
    ],
)
def test_wrong_use_is_code_2_and_says_what_is_wrong(arguments, says, capsys):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert "Traceback" not in captured.err


def test_env_says_value_and_why(capsys):
    assert run(["env", "--profile", "0.5", "--env", "HIPFILE_STATS_LEVEL=1abc", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["profile"] == "0.5"
    by_name = {row["name"]: row for row in shown["variables"]}
    assert len(by_name) == 5
    assert by_name["HIPFILE_STATS_LEVEL"]["raw"] == "1abc"
    assert by_name["HIPFILE_STATS_LEVEL"]["why"]


def test_env_reads_the_environment_and_env_options_win(capsys, monkeypatch):
    monkeypatch.setenv("HIPFILE_ALLOW_COMPAT_MODE", "false")
    assert run(["env"]) == 0
    assert "'false'" in capsys.readouterr().out
    assert run(["env", "--env", "HIPFILE_ALLOW_COMPAT_MODE=true"]) == 0
    out = capsys.readouterr().out
    assert "'true'" in out
    assert "'false'" not in out


def test_profiles_lists_all_and_marks_the_default(capsys):
    from hipfile_sim.driver.profiles import NEWEST, list_profiles

    assert run(["profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(list_profiles())
    assert [line.split()[0] for line in lines if " default " in line] == [NEWEST]


def test_profiles_shows_the_values_of_one(capsys):
    assert run(["profiles", "0.2"]) == 0
    assert capsys.readouterr().out.startswith("0.2\n")


def test_clauses_lists_areas_functions_and_explains(capsys):
    from hipfile_sim.driver.clauses import all_clauses

    first = all_clauses()[0]
    assert run(["clauses", first.id]) == 0
    out = capsys.readouterr().out
    assert first.text in out
    assert first.source in out
    area = first.id.partition(".")[0]
    assert run(["clauses", area]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == [c.id for c in all_clauses() if c.id.startswith(f"{area}.")]


def test_output_to_a_closed_pipe_is_no_traceback():
    done = subprocess.run(
        f"{sys.executable} -m hipfile_sim.cli clauses | head -1",
        shell=True, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


def test_without_the_extra_the_message_says_what_to_install():
    program = "import sys; sys.modules['click'] = None; from hipfile_sim.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 2
    assert "pip install 'hipfile-sim[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_are_imported_when_called():
    program = (
        "import sys; from hipfile_sim.cli.app import run; run(['--help']);"
        "print([m for m in ('numpy', 'hipfile_sim.cli.run', 'hipfile_mock') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=500, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert loaded == "[]"

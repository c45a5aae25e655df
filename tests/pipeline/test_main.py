"""pipeline/__main__.py: one command line for all commands, whichever way it is called."""

import os
import signal
import subprocess

import pytest
from installed import install_command
from paths import ROOT

import pipeline
from pipeline import __main__ as entry
from tests.pipeline.commands.test_answer import copy, endless, hear_signals, run  # noqa: F401

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def bytepair(capfd):
    """bytepair(*arguments) -> (exit code, stdout, lines of stderr), in this process."""

    def bytepair(*arguments):
        try:
            code = entry.main([*map(str, arguments)], prog="bytepair")
        except SystemExit as exit:
            code = exit.code
        out, err = capfd.readouterr()
        return code, out, err.splitlines()

    return bytepair


@pytest.mark.parametrize("command", ["", *entry.COMMANDS, "bpe encode", "model info"])
def test_help_and_errors_name_what_was_typed(bytepair, run, command):  # noqa: F811
    words = command.split()
    for called, name in ((bytepair, "bytepair"), (run, "python -m pipeline")):
        typed = " ".join([name, *words])
        assert called(*words, "--help")[1].startswith(f"usage: {typed} [")
        code, _, err = called(*words, "x", "--no-such-option")
        assert (code, len(err)) == (2, 1)
        typed = typed.removesuffix(" encode").removesuffix(" info")  # argparse's own way
        assert err[0].endswith(f"(see {typed} --help)")


def test_the_first_help_names_all_commands(bytepair):
    assert "bytepair chat|batch|trace|glitch|bpe|model --help" in bytepair("--help")[1]
    assert {*entry.COMMANDS, *entry.PACKAGES} == {
        "chat", "batch", "trace", "glitch", "bpe", "model"
    }  # fmt: skip


def test_the_version_is_told(bytepair, run):  # noqa: F811
    assert bytepair("--version") == (0, f"bytepair {pipeline.__version__}\n", [])
    assert run("--version") == (0, f"bytepair {pipeline.__version__}\n", [])


def test_the_other_packages_commands_are_commands(bytepair, tiny, tiny_directory):
    ids = " ".join(map(str, tiny.encode("The capital")))
    assert bytepair("bpe", "encode", "-t", tiny_directory, "The capital") == (0, f"{ids}\n", [])
    code, out, err = bytepair("model", "info", tiny_directory)
    assert (code, err) == (0, [])
    assert out.startswith("path ")
    code, _, err = bytepair("model", "info", "nowhere")
    assert (code, len(err)) == (1, 1)


# --- the prompt as an option ---------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-p", "--prompt"])
def test_the_prompt_may_be_an_option(run, tiny_directory, option):  # noqa: F811
    ask = ("--raw", "--quiet", "--max-tokens", 3, "--model", tiny_directory)
    expected = run(*ask, "The capital")
    assert expected[0] == 0
    assert run(option, "The capital", *ask) == expected
    assert run(option, "chat", *ask) == run(*ask, "chat")  # no command


def test_one_prompt_is_enough(run):  # noqa: F811
    code, out, err = run("-p", "this", "that")
    assert (code, out, len(err)) == (2, "", 1)
    assert err[0].startswith("error: there are two prompts, 'that' and that of --prompt")


def test_an_empty_prompt_is_told_however_it_is_given(run):  # noqa: F811
    assert run("-p", " ") == run(" ")
    assert run("-p", "")[0] == 2


def test_a_dash_reads_the_pipe(tiny_directory):
    command = [install_command(tiny_directory.parent / "bin"), "--raw", "--quiet", "-m", "3"]
    done = [
        subprocess.run(
            [*command, "--model", tiny_directory, *prompt],
            input=b"The capital", env=ENVIRONMENT, capture_output=True, check=True,
        )
        for prompt in (["-p", "-"], ["--prompt=-"], ["-"], [])
    ]  # fmt: skip
    assert len({one.stdout for one in done}) == 1


# --- the installed command -----------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_end_the_installed_command_as_the_module(endless, tmp_path, number, code):  # noqa: F811
    command = [install_command(tmp_path / "bin"), "--model", endless, "--raw", "-m", "999999"]
    process = subprocess.Popen(
        [*command, "The"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=hear_signals,
    )  # fmt: skip
    assert process.stdout.read(1)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code

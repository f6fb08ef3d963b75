"""What every verb has: options from files, JSON, silence where nobody looks, codes, the file that repeats it."""

from __future__ import annotations

import json

import pytest
import typer

from kernelformer.cli.app import app
from kernelformer.cli.option_files import options_text, read_options

COMMAND = typer.main.get_command(app)
VERBS = sorted(COMMAND.commands)
TINY = {"distill-steps": 2, "finetune": "none", "batch-size": 8, "measure": False, "held-out": 30}


@pytest.fixture
def convert():
    command = COMMAND.commands["convert"]
    return command.context_class(command, info_name="convert")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb(kernelformer, verb, capsys):
    assert kernelformer(verb, "--help") == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--config", "--json", "--progress"))
    command = COMMAND.commands[verb]
    assert all(parameter.help for parameter in command.params if parameter.name != "help")
    assert command.help.splitlines()[0].endswith(".")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("o.toml", 'num-features = 16\nlayers = [0, 1]\ndata = "a.csv"\noption = {floor = 0.1}\nmeasure = false\n'),
        ("o.yaml", "num_features: 16\nlayers: 0,1\ndata: [a.csv]\noption: [floor=0.1]\nmeasure: false\nwindow:\n"),
        (
            "o.json",
            '{"num-features": 16, "layers": "0,1", "data": ["a.csv"], "option": ["floor=0.1"], "measure": false}',
        ),
    ],
)
def test_files_of_options(convert, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_options(tmp_path / name, convert) == {
        "num_features": 16, "layers": "0,1", "data": ["a.csv"], "option": ["floor=0.1"], "measure": False
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("o.toml", "kernal = 'elu'", "convert has no option 'kernal'; near: kernel"),
        ("o.toml", "zzz = 1", "there are: model, data, output"),
        ("o.toml", "overwrite = true", "no option 'overwrite'"),
        ("o.toml", "kernel = {a = 1}", "kernel must be text"),
        ("o.toml", "data = [1979-05-27]", "data must be text"),
        ("o.toml", "= 1", "is not TOML"),
        ("o.yaml", "a: [", "is not YAML"),
        ("o.yaml", "- a", "must hold options by name"),
        ("o.yaml", "!!python/object/apply:os.getcwd []", "is not YAML"),
        ("o.json", "{", "is not JSON"),
        ("o.toml", "batch-size = 'many'", "batch-size"),
    ],
)
def test_files_that_hold_something_else(kernelformer, tmp_path, capsys, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert kernelformer("convert", "M", "--config", tmp_path / name) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_file_that_is_not_there(kernelformer, tmp_path, capsys):
    assert kernelformer("list", "--config", tmp_path / "absent.toml") == 2
    assert "absent.toml" in capsys.readouterr().err


def test_what_is_written_is_read_back(convert, tmp_path):
    given = {
        "model": 'a "b" \\ c\nd\x7f é', "data": ["x.csv", "y z"], "layers": "0,2", "num_features": None,
        "learning_rate": 1e-06, "kernel_learning_rate": float("inf"), "measure": False, "as_json": True,
    }  # fmt: skip
    path = tmp_path / "o.toml"
    path.write_text(options_text("convert", convert, given), encoding="utf-8")
    assert read_options(path, convert) == {k: v for k, v in given.items() if k not in ("num_features", "as_json")}


def test_a_run_writes_the_file_that_repeats_it(kernelformer, encoder, reviews, tmp_path, capsys):
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"model": str(encoder), "data": str(reviews), **TINY}), encoding="utf-8")
    assert kernelformer("convert", "--config", asked, "--seed", 3, "-o", tmp_path / "one", "--json") == 0
    told = capsys.readouterr()
    record = json.loads(told.out)
    assert record["seed"] == 3 and record["data"]["held_out_texts"] == 30
    assert told.err == ""
    again = tmp_path / "one" / "options.toml"
    assert kernelformer("convert", "--config", again, "-o", tmp_path / "two", "--progress") == 0
    assert "distilling the kernels" in capsys.readouterr().err
    assert (tmp_path / "two" / "options.toml").read_text() == again.read_text().replace("/one", "/two")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    assert kernelformer("convert", "--config", again) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_data_behind_the_model_replace_those_of_the_file_and_follow_those_of_the_option(
    kernelformer, encoder, reviews, tmp_path, capsys
):
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"data": "absent.csv", **TINY}), encoding="utf-8")
    dry = ("--config", asked, "--dry-run", "--json", "--max-length", 16)
    assert kernelformer("convert", encoder, reviews, *dry) == 0
    once = json.loads(capsys.readouterr().out)["data"]
    assert kernelformer("convert", encoder, reviews, "--data", reviews, *dry) == 0
    twice = json.loads(capsys.readouterr().out)["data"]
    assert once.startswith("90 texts") and twice.startswith("180 texts")


@pytest.mark.parametrize("verb", ["list", "doctor", "reproduce"])
def test_answers_as_json(kernelformer, verb, capsys):
    assert kernelformer(verb, "--json") == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), ([], 2), (["lost"], 2), (["explain", "elu", "--length", "many"], 2), (["convert"], 2)],
)
def test_exit_codes(kernelformer, arguments, code, capsys):
    assert kernelformer(*arguments) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_missing_package_is_named_with_its_extra(kernelformer, monkeypatch, capsys):
    def broken(name):
        def call():
            raise ModuleNotFoundError("", name=name)

        return call

    monkeypatch.setattr("kernelformer.cli.app.app", broken("sklearn.linear_model"))
    assert kernelformer("list") == 2
    told = capsys.readouterr().err
    assert told == "kernelformer: sklearn is missing: pip install 'kernelformer[classifier]'\n"
    monkeypatch.setattr("kernelformer.cli.app.app", broken("a_module_of_the_user"))
    with pytest.raises(ModuleNotFoundError):
        kernelformer("list")

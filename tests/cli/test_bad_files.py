"""Files and options that are not what they should be: one line, exit code 2, nothing run, nothing large allocated."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import kernelformer as kf

transformers = pytest.importorskip("transformers")

# Beyond what was in use before; the models here are of 100 kB.
ALLOWED = 300 * 2**20


class Payload:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="module")
def converted(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    (folder / "model.safetensors").unlink()
    kf.convert(transformers.BertModel.from_pretrained(encoder), "favor", 16).save_pretrained(folder)
    return folder


def config(**changed: Any) -> Callable[[Path], None]:
    """Change keys of config.json; ``kernelized__NAME`` and ``layer__NAME`` are of our record and its first layer."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        content = json.loads(path.read_text())
        for key, value in changed.items():
            part, _, name = key.rpartition("__")
            where = {"": content, "kernelized": content["kernelized"], "layer": content["kernelized"]["layers"][0]}[
                part
            ]
            if value is ...:
                del where[name]
            else:
                where[name] = value
        path.write_text(json.dumps(content))

    return change


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def cut(name: str, kept: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: int(len(raw) * kept)])

    return change


def weights(change_one: Callable[[str, torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        changed = {name: change_one(name, tensor) for name, tensor in held.items()}
        kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def header(content: bytes) -> Callable[[Path], None]:
    return text("model.safetensors", struct.pack("<Q", len(content)) + content)


def pickled(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(pickle.dumps(Payload(folder / "executed")))

    return change


def linked(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "nowhere")


def looped(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(folder / "config.json")


def to_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


MODELS: dict[str, Callable[[Path], None]] = {
    "no config": lambda folder: (folder / "config.json").unlink(),
    "an empty config": text("config.json", ""),
    "a config cut in half": cut("config.json", 0.5),
    "a config that is a list": text("config.json", "[]"),
    "a config of zeros": text("config.json", b"\0" * 100),
    "a config that is not UTF-8": text("config.json", b'{"model_type": "\xff"}'),
    "a config nested without end": text("config.json", "[" * 100_000),
    "a config that links to itself": looped,
    "an unknown model": config(model_type="no-such-model"),
    "code of the folder's own": config(model_type="evil", auto_map={"AutoConfig": "evil.Config"}),
    "a class that is none": config(architectures=["AutoModel"]),
    "a class of another kind": config(architectures=["os"]),
    "classes that are numbers": config(architectures=[7]),
    "classes in a word": config(architectures="BertModel"),
    "no record": config(kernelized={}),
    "a record of a word": config(kernelized="hedgehog"),
    "a record without kernel": config(kernelized__kernel=...),
    "a newer record": config(kernelized__format=99),
    "a kernel that is not there": config(kernelized__kernel="hedgehug"),
    "a kernel that is a module": config(kernelized__kernel="os:system"),
    "a kernel that is a number": config(kernelized__kernel=7),
    "another kernel than the weights'": config(kernelized__kernel="hedgehog"),
    "features beyond measure": config(kernelized__num_features=10**30),
    "a million features": config(kernelized__num_features=1 << 20),
    "a negative number of features": config(kernelized__num_features=-16),
    "half a feature": config(kernelized__num_features=0.5),
    "True features": config(kernelized__num_features=True),
    "other features than the weights'": config(kernelized__num_features=32),
    "options of a list": config(kernelized__options=[1]),
    "an option that is not there": config(kernelized__options={"colour": 1}),
    "an option beyond measure": config(kernelized__options={"num_features": 10**40}),
    "an option that is the generator": config(kernelized__options={"generator": "x"}),
    "a seed of text": config(kernelized__seed="x"),
    "a seed beyond measure": config(kernelized__seed=10**40),
    "no layers": config(kernelized__layers=[]),
    "layers beyond measure": config(kernelized__layers=[{}] * 20_000),
    "a layer that is a word": config(kernelized__layers=["encoder"]),
    "a layer that is not there": config(layer__module="encoder.layer.99.attention.self"),
    "a layer outside of the model": config(layer__module="../../etc"),
    "a layer of private parts": config(layer__module="__class__.__init__"),
    "a layer that is no attention": config(layer__module="pooler"),
    "a layer converted perhaps": config(layer__converted="perhaps"),
    "a layer of no heads": config(layer__num_kv_heads=0),
    "a layer of a width of text": config(layer__head_dim="8"),
    "a layer of a width beyond measure": config(layer__head_dim=1 << 19),
    "a layer of another width": config(layer__head_dim=16),
    "a model beyond measure": config(hidden_size=4_000_000, intermediate_size=4_000_000),
    "a vocabulary beyond measure": config(vocab_size=10**12),
    "a negative width": config(hidden_size=-32),
    "heads that do not divide": config(num_attention_heads=5),
    "layers without end": config(num_hidden_layers=10**9),
    "more layers than the weights'": config(num_hidden_layers=3),
    "another width than the weights'": config(hidden_size=64),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "empty weights": text("model.safetensors", ""),
    "weights cut in half": cut("model.safetensors", 0.5),
    "weights without their last bytes": cut("model.safetensors", 0.999),
    "weights of zeros": text("model.safetensors", b"\0" * 5000),
    "weights of HTML": text("model.safetensors", "<html>not found</html>"),
    "weights of Git LFS": text("model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 9\n"),
    "a pickle named weights": pickled("model.safetensors"),
    "a pickle in the place of weights": pickled("pytorch_model.bin"),
    "weights that link nowhere": linked,
    "weights that are a folder": to_folder,
    "a header beyond the file": text("model.safetensors", struct.pack("<Q", 2**62) + b"{}"),
    "a header that is no JSON": header(b"nonsense"),
    "offsets beyond the file": header(
        b'{"embeddings.word_embeddings.weight":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}'
    ),
    "offsets that lie about the shape": header(b'{"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,4]}}') ,
    "an unknown dtype": header(b'{"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}'),
    "weights of NaN": weights(lambda name, x: x * torch.nan if name.endswith("query.weight") else x),
    "infinite weights": weights(lambda name, x: x + torch.inf if name.endswith("query.bias") else x),
    "weights of integers": weights(lambda name, x: x.to(torch.int32) if name.endswith("query.weight") else x),
    "weights without kernels": weights(lambda name, x: None if ".kernel." in name else x),
    "weights without a layer": weights(lambda name, x: None if "layer.1.output" in name else x),
    "weights of another shape": weights(lambda name, x: x[..., :-1].clone() if x.ndim > 1 else x),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_model_is_one_clear_error(name: str, converted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "größe 模型"
    shutil.copytree(converted, folder)
    MODELS[name](folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with pytest.raises(kf.KernelformerError) as caught:
        kf.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < ALLOWED
    message = str(caught.value)
    assert message
    assert len(message.splitlines()) == 1
    assert len(message) < 700
    assert not (folder / "executed").exists()


DATA: dict[str, tuple[str, bytes]] = {
    "no file": ("", b""),
    "an empty file": ("empty.txt", b""),
    "blank lines": ("blank.txt", b"\n\n   \n"),
    "latin-1": ("latin.txt", "größe\n".encode("latin-1") * 30),
    "half a character": ("half.txt", b"a film\n" * 30 + b"\xe6"),
    "UTF-16": ("wide.txt", ("a film\n" * 30).encode("utf-16")),
    "a line that is no JSON": ("x.jsonl", b'{"text": "a"}\n' * 30 + b"{text}\n"),
    "a line cut short": ("x.jsonl", b'{"text": "a"}\n' * 30 + b'{"text": "a'),
    "a line that is a list": ("x.jsonl", b'["a"]\n' * 30),
    "a text that is a number": ("x.jsonl", b'{"text": 7}\n' * 30),
    "a number beyond measure": ("x.jsonl", b'{"text": 1' + b"0" * 5000 + b"}\n"),
    "lines nested without end": ("x.jsonl", b"[" * 100_000 + b"\n"),
    "no text column": ("x.jsonl", b'{"body": "a"}\n' * 30),
    "a table without header": ("x.csv", b""),
    "a column twice": ("x.csv", b"text,text\na,b\n"),
    "a short row": ("x.csv", b"text,label\n" + b"a,b\n" * 30 + b"a\n"),
    "a quote without end": ("x.csv", b'text,label\n"a,b\n' + b"a,b\n" * 30),
    "gzip that is none": ("x.txt.gz", b"a film\n" * 30),
    "gzip cut short": ("x.txt.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03KT"),
    "an unknown suffix": ("x.parquet", b"PAR1"),
    "a pickle": ("x.pkl", pickle.dumps(Payload(Path("executed")))),
}


@pytest.mark.parametrize("name", DATA)
def test_broken_text_is_one_line_and_code_2(
    name: str, kernelformer: Any, encoder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, content = DATA[name]
    if file:
        (tmp_path / file).write_bytes(content)
    assert kernelformer("convert", encoder, "--data", tmp_path / (file or "absent.txt"), "-o", tmp_path / "out") == 2
    told = capsys.readouterr().err.strip()
    assert len(told.splitlines()) == 1
    assert told.startswith("kernelformer: ")
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "out").exists()


VERBS: dict[str, tuple[Any, ...]] = {
    "eval of nothing": ("eval", "/no/such/model", "--data", "DATA"),
    "generate from a file": ("generate", "DATA", "--prompt", "a"),
    "generate from an encoder": ("generate", "MODEL", "--prompt", "a"),
    "convert into a file": ("convert", "MODEL", "--data", "DATA", "-o", "DATA"),
    "convert a converted model": ("convert", "CONVERTED", "--data", "DATA", "-o", "OUT"),
    "convert to no kernel": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--kernel", "\u202ehedgehog"),
    "features beyond measure": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--num-features", 10**12),
    "an import that is not there": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--kernel", "no.such:Map"),
    "layers of text": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--layers", "all"),
    "a negative layer": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--layers=-1"),
    "no tokens": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--max-length", 0),
    "a negative length": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--max-length", -5),
    "a rate of NaN": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--learning-rate", "nan"),
    "a negative rate": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--learning-rate", "-1"),
    "a seed beyond measure": ("convert", "MODEL", "--data", "DATA", "-o", "OUT", "--seed", 10**40),
    "no claim": ("reproduce", "no-such-claim"),
    "one seed": ("reproduce", "coulomb-time", "--seeds", 1),
    "no GGUF": ("import-gguf", "DATA", "-o", "OUT"),
    "a length of nothing": ("explain", "hedgehog", "--length", 0),
    "a width beyond measure": ("explain", "favor", "--head-dim", 10**9),
    "train without labels": ("train", "MODEL", "colour", "--data", "DATA", "-o", "OUT"),
    "align what has no projections": ("align", "MODEL", "label", "--data", "DATA", "-o", "OUT", "--kernel", "elu"),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_bad_request_is_one_line_and_code_2(
    name: str, kernelformer: Any, encoder: Path, converted: Path, reviews: Path, tmp_path: Path, capsys: Any
) -> None:
    places = {"MODEL": encoder, "CONVERTED": converted, "DATA": reviews, "OUT": tmp_path / "out"}
    assert kernelformer(*(places.get(word, word) if isinstance(word, str) else word for word in VERBS[name])) == 2
    told = capsys.readouterr().err.strip()
    assert told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PLACES = [("kernelized", name) for name in ("format", "kernel", "num_features", "options", "seed", "window", "layers")]
PLACES += [("layer", name) for name in ("module", "num_kv_heads", "head_dim", "causal", "converted")]
PLACES += [("", "kernelized"), ("", "architectures"), ("", "num_hidden_layers"), ("", "hidden_size")]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), JSON)
def test_any_config_is_read_or_refused(converted: Path, tmp_path: Path, place: tuple[str, str], value: Any) -> None:
    folder = tmp_path / "fuzzed"
    shutil.copytree(converted, folder, dirs_exist_ok=True)
    part, name = place
    config(**{f"{part}__{name}" if part else name: value})(folder)
    with contextlib.suppress(kf.KernelformerError):
        kf.load(folder)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_bytes_are_read_or_refused(converted: Path, tmp_path: Path, data: Any) -> None:
    """Bytes changed in config and header, where a reader decides; those of the numbers are numbers, too."""
    folder = tmp_path / "fuzzed"
    shutil.copytree(converted, folder, dirs_exist_ok=True)
    path = folder / data.draw(st.sampled_from(["config.json", "model.safetensors"]))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, min(len(raw), 3000) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    with contextlib.suppress(kf.KernelformerError):
        kf.load(folder)

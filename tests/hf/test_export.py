"""A converted encoder as a graph: equal to the model at batches and lengths that the exporter never saw."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf

transformers = pytest.importorskip("transformers")

from kernelformer.hf.export import export_onnx, export_program  # noqa: E402

KERNELS = ("hedgehog", "favor", "flexformer_n")


def tokens(batch, length):
    ids = torch.randint(5, 99, (batch, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones_like(ids)
    mask[-1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_program_of_any_batch_and_length(build, kernel):
    model = kf.convert(build("bert"), kernel, 16)
    program = export_program(model).module()
    for batch, length in ((1, 5), (3, 37)):
        given = tokens(batch, length)
        with torch.no_grad():
            torch.testing.assert_close(program(**given), model(**given).last_hidden_state, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_onnxruntime_computes_the_same(build, family, kernel, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = kf.convert(build(family), kernel, 16)
    session = runtime.InferenceSession(str(export_onnx(model, tmp_path / "model.onnx")))
    for batch, length in ((1, 5), (3, 37)):
        given = tokens(batch, length)
        (found,) = session.run(None, {name: x.numpy() for name, x in given.items()})
        with torch.no_grad():
            expected = model(**given).last_hidden_state
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_exported_says_so(build):
    with pytest.raises(kf.UnsupportedModelError, match="only encoders"):
        export_program(kf.convert(build("llama"), "hedgehog", 16))
    with pytest.raises(kf.KernelformerError, match="convert it first"):
        export_program(build("bert"))

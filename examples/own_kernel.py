"""A kernel of your own, held to the contract that the engine relies on."""

import torch
from torch import Tensor, nn

import kernelformer as kf


class SquaredProjections(kf.FeatureMap):
    """phi(x) = (Wx)² with W learned: a positive polynomial kernel."""

    is_positive = True

    def __init__(
        self, head_dim: int, num_heads: int, num_features: int = 64, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(head_dim, num_heads, num_features)
        generator = generator or torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(num_heads, head_dim, num_features, generator=generator))

    def phi(self, x: Tensor) -> kf.Features:
        values = (x @ self.weight.to(x.dtype)).square()
        # The largest value goes into log_scale, so that values stay in [0, 1] at any magnitude of x.
        top = values.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        return kf.Features(values / top, top[..., 0].log())


feature_map = SquaredProjections(head_dim=16, num_heads=2)
kf.testing.check_feature_map(feature_map)  # raises, with the clause's name, where the contract is broken
q, k, v = torch.randn(3, 1, 2, 50, 16, generator=torch.Generator().manual_seed(0))
print("own kernel:", tuple(kf.KernelAttention(feature_map, causal=True)(q, k, v).shape))
print("on the command line: kernelformer convert MODEL --kernel own_kernel:SquaredProjections …")

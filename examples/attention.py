"""Kernel attention on tensors: padding, causality, streaming."""

import torch

import kernelformer as kf

generator = torch.Generator().manual_seed(0)
q, k, v = torch.randn(3, 1, 4, 1000, 32, generator=generator)  # [batch, heads, length, head_dim]

# A feature map says what the kernel is; KernelAttention computes attention with it, in linear time.
feature_map = kf.feature_maps.Hedgehog(head_dim=32, num_heads=4, num_features=64)
attention = kf.KernelAttention(feature_map)
visible = torch.ones(1, 1000, dtype=torch.bool)
visible[:, 900:] = False  # the last hundred keys are padding
out = attention(q, k, v, key_mask=visible)
print("bidirectional:", tuple(out.shape))

# Causal attention has a state of fixed size: prefill a prompt, then go on token by token.
causal = kf.KernelAttention(feature_map, causal=True)
whole = causal(q, k, v)
prompt, state = causal.stream(q[:, :, :900], k[:, :, :900], v[:, :, :900])
steps = [prompt]
for t in range(900, 1000):
    token = slice(t, t + 1)
    step, state = causal.stream(q[:, :, token], k[:, :, token], v[:, :, token], state)
    steps.append(step)
difference = (torch.cat(steps, dim=2) - whole).abs().max()
size = sum(part.numel() * part.element_size() for part in state)
print(f"streamed against whole: {difference:.1e}; the state holds {size / 1024:.0f} KiB, however long the text")
assert difference < 1e-4

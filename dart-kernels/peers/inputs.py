"""The numbers of benches/support/inputs.rs: a hash of their index, the same bits."""

import numpy as np


def mix(h):
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def scalar_mix(h):
    return int(mix(np.array([h & 0xFFFFFFFF], dtype=np.uint32))[0])


def hashes(seed, count):
    return mix(np.arange(count, dtype=np.uint32) ^ np.uint32(scalar_mix(seed + 0x9E3779B9)))


def normal(seed, count):
    """Nearly normal numbers of deviation 3, f32."""
    first = hashes(seed, count)
    second = mix(first ^ np.uint32(0x5851F42D))
    low = np.uint32(0xFFFF)
    total = (first & low) + (first >> np.uint32(16)) + (second & low) + (second >> np.uint32(16))
    return (total.astype(np.float32) - np.float32(131070.0)) * np.float32(7.928e-5)


def logits(seed, rows, vocab):
    return normal(seed, rows * vocab).reshape(rows, vocab)


def targets(rows, vocab):
    return (hashes(0xFFFF, rows) % np.uint32(vocab)).astype(np.int64)


def log_probs(seed, rows):
    """Log-probs near those of a policy; `seed` 1 << 16 old, 2 << 16 rollout, 3 << 16 reference."""
    return np.float32(-10.0) + normal(seed, rows) / np.float32(10.0)


def rotation(rows, vocab):
    """How many buffers of f32 exceed the caches together."""
    return min(max(-(-(160 << 20) // (rows * vocab * 4)), 2), 32)

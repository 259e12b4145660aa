"""Random numbers that kernels draw: uniform ones, as PyTorch's generator for NVIDIA GPUs gives them (dialects/core/random_state.py)."""

from typing import Any

import torch

from mlirc.dialects.core.dialect import Ternary
from mlirc.dialects.core.scalar_builder import TorchBuilder

LOW_32_BITS = (1 << 32) - 1
ROUNDS = 10
FACTORS, KEYS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
SCALE, HALF_STEP = 2.0**-32, 2.0**-33


class PhiloxUniform(Ternary, name="philox_uniform"):
    """A float32 in (0, 1] for element `index`, as a kernel of ATen's draws it with `seed`, from `counter` on.

    width    consecutive elements of a thread of ATen's kernel, 4 or 8
    threads  of ATen's kernel

    lowering/gpu/triton/random.py has the same in Triton, four elements at a time: keep them equal.
    """

    width: Any
    threads: Any
    computes = "operands"
    gives = torch.float32
    cheap = False

    @staticmethod
    def scalar(b, seed, counter, index, *, width, threads):
        """Philox4x32-10 in 64-bit integers. A call gives four words, of which element `index` takes number index % 4."""
        four, per = b.constant(4), b.constant(width // 4)
        word, shift = b.constant(LOW_32_BITS), b.constant(32)
        quad = b.div(index, four)
        thread = b.rem(b.div(quad, per), b.constant(threads))
        turn = b.add(b.mul(b.div(quad, b.constant(threads * (width // 4))), per), b.rem(quad, per))
        position = b.add(counter, turn)
        c = [b.and_(position, word), b.and_(b.shr(position, shift), word), thread, b.constant(0)]
        key = [b.and_(seed, word), b.and_(b.shr(seed, shift), word)]
        for _ in range(ROUNDS):
            low, high = (b.mul(b.constant(factor), x) for factor, x in zip(FACTORS, (c[0], c[2]), strict=True))
            upper = [b.and_(b.shr(x, shift), word) for x in (high, low)]
            c = [
                b.xor(b.xor(upper[0], c[1]), key[0]),
                b.and_(high, word),
                b.xor(b.xor(upper[1], c[3]), key[1]),
                b.and_(low, word),
            ]
            key = [b.and_(b.add(k, b.constant(step)), word) for k, step in zip(key, KEYS, strict=True)]
        lane = b.rem(index, four)
        drawn = c[3]
        for k in range(3):
            drawn = b.select(b.eq(lane, b.constant(k)), c[k], drawn)
        f32 = torch.float32
        return b.add(b.mul(b.cast(drawn, f32), b.constant(SCALE, f32)), b.constant(HALF_STEP, f32))

    @staticmethod
    def reference(seed, counter, index, *, width, threads):
        b = TorchBuilder(torch.int64)
        return PhiloxUniform.scalar(b, seed, counter, index, width=width, threads=threads)

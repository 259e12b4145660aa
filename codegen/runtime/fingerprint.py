"""Fingerprints of memory: detects a changed byte in tensors at the speed of reading them.

PyTorch counts the writes that go through its operators. It sees none through `.data`, a NumPy array or DLPack capsule of the
same memory, a storage, another process, or a C function. So what is kept of parameters is kept with a fingerprint of them.

Memory is split into chunks, which threads take one after another. A chunk's fingerprint is a number of 64 bits:

    blocks of 4 KiB   h[j] = h[j] * ODD + sum over i of word[i, j] * key[i, j]     16 sums: even and odd words of 32 bits in 8 lanes
    bytes at the end  t = t * ODD + byte
    all together      the same sum of h and t

Keys are odd numbers of 32 bits, so that a product with the difference of two words is never 0 modulo 2**64; ODD has an inverse.
So one word that changes always changes the fingerprint. Several that change in one block cancel out only where their
differences, times fixed random numbers, add up to 0 modulo 2**64.
"""

import ctypes
import random
from collections.abc import Iterable
from functools import cache

import torch

from mlirc.codegen.llvm.machine_code import Code
from mlirc.codegen.runtime.runtime_code import runtime_code
from mlirc.dialects.core.fork_locks import fork_lock

CHUNK = 64 << 10
"""Bytes that a thread takes at once: a few microseconds."""

GRAIN = 1 << 20
"""Bytes for each thread, from which on it is worth waking: 40 us."""

ROW = 3  # words of a chunk: address, bytes, fingerprint

AHEAD = 16 << 10
"""Bytes that are prefetched into the L2 cache: 400 MB are read at 13.5 GB/s by one core so, else at 9.8; 40 MB at 28, else at 20."""

_ODD = 0x9E3779B97F4A7C15

_TEXT = r"""
@even = internal constant [64 x <8 x i64>] [EVEN], align 64
@odd = internal constant [64 x <8 x i64>] [ODDS], align 64

declare void @GOMP_parallel(ptr, ptr, i32, i32)

; Of so many bytes.
define internal i64 @of_chunk(ptr %memory, i64 %bytes) {
entry:
  %vectors = lshr i64 %bytes, 6
  br label %block
block:
  %v = phi i64 [ 0, %entry ], [ %v_end, %block_end ]
  %h = phi <8 x i64> [ zeroinitializer, %entry ], [ %h_next, %block_end ]
  %left = sub i64 %vectors, %v
  %none = icmp eq i64 %left, 0
  br i1 %none, label %lanes, label %fill
fill:
  %count = call i64 @llvm.umin.i64(i64 %left, i64 64)
  %v_end = add i64 %v, %count
  br label %vector
vector:
  %k = phi i64 [ 0, %fill ], [ %k_next, %vector ]
  %sum0 = phi <8 x i64> [ zeroinitializer, %fill ], [ %sum0_next, %vector ]
  %sum1 = phi <8 x i64> [ zeroinitializer, %fill ], [ %sum1_next, %vector ]
  %at = add i64 %v, %k
  %place = getelementptr <8 x i64>, ptr %memory, i64 %at
  %ahead = getelementptr i8, ptr %place, i64 AHEAD
  call void @llvm.prefetch.p0(ptr %ahead, i32 0, i32 2, i32 1)
  %words = load <8 x i64>, ptr %place, align 1
  %even_at = getelementptr <8 x i64>, ptr @even, i64 %k
  %even_keys = load <8 x i64>, ptr %even_at, align 64
  %odd_at = getelementptr <8 x i64>, ptr @odd, i64 %k
  %odd_keys = load <8 x i64>, ptr %odd_at, align 64
  %word0 = and <8 x i64> %words, splat (i64 4294967295)
  %key0 = and <8 x i64> %even_keys, splat (i64 4294967295)
  %word1 = lshr <8 x i64> %words, splat (i64 32)
  %key1 = and <8 x i64> %odd_keys, splat (i64 4294967295)
  %product0 = mul <8 x i64> %word0, %key0
  %product1 = mul <8 x i64> %word1, %key1
  %sum0_next = add <8 x i64> %sum0, %product0
  %sum1_next = add <8 x i64> %sum1, %product1
  %k_next = add i64 %k, 1
  %more = icmp ult i64 %k_next, %count
  br i1 %more, label %vector, label %block_end
block_end:
  %h_times = mul <8 x i64> %h, splat (i64 ODD)
  %h_plus = add <8 x i64> %h_times, %sum0_next
  %h_again = mul <8 x i64> %h_plus, splat (i64 ODD)
  %h_next = add <8 x i64> %h_again, %sum1_next
  br label %block
lanes:
  %start = shl i64 %vectors, 6
  br label %lane
lane:
  %j = phi i64 [ 0, %lanes ], [ %j_next, %lane ]
  %t0 = phi i64 [ 0, %lanes ], [ %t0_next, %lane ]
  %element = extractelement <8 x i64> %h, i64 %j
  %t0_times = mul i64 %t0, ODD
  %t0_next = add i64 %t0_times, %element
  %j_next = add i64 %j, 1
  %more_lanes = icmp ult i64 %j_next, 8
  br i1 %more_lanes, label %lane, label %bytes_head
bytes_head:
  %i = phi i64 [ %start, %lane ], [ %i_next, %byte ]
  %t = phi i64 [ %t0_next, %lane ], [ %t_next, %byte ]
  %more_bytes = icmp ult i64 %i, %bytes
  br i1 %more_bytes, label %byte, label %done
byte:
  %byte_at = getelementptr i8, ptr %memory, i64 %i
  %narrow = load i8, ptr %byte_at
  %wide = zext i8 %narrow to i64
  %t_times = mul i64 %t, ODD
  %t_next = add i64 %t_times, %wide
  %i_next = add i64 %i, 1
  br label %bytes_head
done:
  ret i64 %t
}

declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

; frame: rows, how many, the next one (threads take them), whether fingerprints are written down, whether one was another.
define internal void @part(ptr %frame) {
entry:
  %rows = load ptr, ptr %frame
  %n_at = getelementptr i64, ptr %frame, i64 1
  %n = load i64, ptr %n_at
  %next_at = getelementptr i64, ptr %frame, i64 2
  %noting_at = getelementptr i64, ptr %frame, i64 3
  %noting = load i64, ptr %noting_at
  %notes = icmp ne i64 %noting, 0
  %changed_at = getelementptr i64, ptr %frame, i64 4
  br label %take
take:
  %changed = load atomic i64, ptr %changed_at monotonic, align 8
  %is_changed = icmp ne i64 %changed, 0
  br i1 %is_changed, label %out, label %more
more:
  %k = atomicrmw add ptr %next_at, i64 1 monotonic
  %there = icmp slt i64 %k, %n
  br i1 %there, label %chunk, label %out
chunk:
  %at = mul i64 %k, ROW
  %row = getelementptr i64, ptr %rows, i64 %at
  %memory = load ptr, ptr %row
  %bytes_at = getelementptr i64, ptr %row, i64 1
  %bytes = load i64, ptr %bytes_at
  %found = call i64 @of_chunk(ptr %memory, i64 %bytes)
  %known_at = getelementptr i64, ptr %row, i64 2
  br i1 %notes, label %note, label %compare
note:
  store i64 %found, ptr %known_at
  br label %take
compare:
  %known = load i64, ptr %known_at
  %same = icmp eq i64 %found, %known
  br i1 %same, label %take, label %other
other:
  store atomic i64 1, ptr %changed_at monotonic, align 8
  br label %out
out:
  ret void
}

; 1 where a chunk's fingerprint is another than the row has; with `noting` it is written there.
define i64 @fingerprints(ptr %rows, i64 %n, i64 %noting, i32 %threads) {
entry:
  %frame = alloca [5 x i64], align 64
  store ptr %rows, ptr %frame
  %n_at = getelementptr i64, ptr %frame, i64 1
  store i64 %n, ptr %n_at
  %next_at = getelementptr i64, ptr %frame, i64 2
  store i64 0, ptr %next_at
  %noting_at = getelementptr i64, ptr %frame, i64 3
  store i64 %noting, ptr %noting_at
  %changed_at = getelementptr i64, ptr %frame, i64 4
  store i64 0, ptr %changed_at
  %many = icmp sgt i32 %threads, 1
  br i1 %many, label %parallel, label %alone
parallel:
  call void @GOMP_parallel(ptr @part, ptr %frame, i32 %threads, i32 0)
  br label %done
alone:
  call void @part(ptr %frame)
  br label %done
done:
  %changed = load i64, ptr %changed_at
  ret i64 %changed
}
"""


class Fingerprint:
    """The fingerprint of the bytes that these tensors have now. The tensors must be `readable`."""

    def __init__(self, tensors: Iterable[torch.Tensor]):
        chunks = [chunk for start, end in joined(map(extent, tensors)) for chunk in _chunks(start, end)]
        self.bytes = sum(size for _, size in chunks)
        self._rows = (ctypes.c_int64 * (ROW * len(chunks)))()
        self._rows[::ROW], self._rows[1::ROW] = [start for start, _ in chunks], [size for _, size in chunks]
        self._count = len(chunks)
        self._run(True)

    def same(self) -> bool:
        """Whether the memory still has the same bytes. It must not have been freed."""
        return not self._run(False)

    def _run(self, noting: bool) -> int:
        if not self._count:
            return 0
        # a team of another size than PyTorch's would end threads of libgomp and start others
        threads = torch.get_num_threads() if self.bytes >= 2 * GRAIN else 1
        return _function()(self._rows, self._count, noting, threads)


def readable(x: torch.Tensor) -> bool:
    """Whether all of a tensor's elements are in memory that the processor can read."""
    return x.layout is torch.strided and x.device.type == "cpu" and not x.is_quantized


def extent(x: torch.Tensor) -> tuple[int, int]:
    """The addresses at which a tensor's memory begins and ends. Strides may leave gaps between its elements."""
    start = x.data_ptr()
    if x.numel() == 0:
        return start, start
    elements = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return start, start + elements * x.element_size()


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of the ranges, as disjoint ranges."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start == end:
            continue
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _chunks(start: int, end: int) -> Iterable[tuple[int, int]]:
    return ((at, min(CHUNK, end - at)) for at in range(start, end, CHUNK))


def make_ready() -> None:
    """Compiles the native code now, not at the first fingerprint."""
    _function()


_lock = fork_lock()
_code: list[Code] = []


def _function():
    return _found() if _code else _make()


@cache
def _found():
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
    return kind(_code[0].address("fingerprints"))


def _make():
    with _lock:
        if not _code:
            _code.append(runtime_code(text()))
        return _found()


def text() -> str:
    """LLVM IR of the module."""
    draw = random.Random(0)

    def keys() -> str:
        vectors = (", ".join(f"i64 {draw.getrandbits(32) | 1}" for _ in range(8)) for _ in range(64))
        return ", ".join(f"<8 x i64> <{vector}>" for vector in vectors)

    numbers = {"[EVEN]": f"[{keys()}]", "[ODDS]": f"[{keys()}]", "ROW": str(ROW), "AHEAD": str(AHEAD)}
    numbers["i64 ODD"] = f"i64 {_ODD - (1 << 64)}"
    made = _TEXT
    for name, number in numbers.items():
        made = made.replace(name, number)
    return made.replace(", ODD", f", {_ODD - (1 << 64)}")

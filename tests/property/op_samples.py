"""An op of each kind, alone in a function of its arguments, and such ops with one thing changed (tests/property/test_each_op.py)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import OPS, Binary, Elementwise, Unary, load_ops
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.files.text import TextError, parse_module
from mlirc.lowering.module.rules import StageError

MEMORY = ("launch", "call", "slot", "release", "allocate")
HERE = (
    "kernel",
    "aten",
    "view",
    *MEMORY,
)  # beside what the registry holds; a run is a launch with code, made again and compared
IMAGES, WIDE = (f'tensor<2x{c}x8x8xf32, {{stride = "{64 * c}, 1, {8 * c}, {c}"}}>' for c in (8, 16))
MATRICES = "(tensor<10xf32>, tensor<6x10xf32>, tensor<10x10xf32>) -> tensor<6x10xf32>"
WINDOWS = 'dilation = "1, 1", padding = "1, 1", stride = "1, 1"'
FILTERS, FACTOR, PLACES = "tensor<16x8x3x3xf32>", "tensor<16xf32>", "tensor<6x10xi64>"
BY_HAND = (
    f'"mlirc.addmm"(%0, %1, %2) : {MATRICES}',
    f'"mlirc.addmm_gelu"(%0, %1, %2) : {MATRICES}'.replace("f32>", 'f32, {device = "cuda:0"}>'),
    '"mlirc.panels"(%0) : (tensor<10x40xf32>) -> tensor<2x10x32xf32>',
    '"mlirc.pair_panels"(%0) : (tensor<9x40xbf16>) -> tensor<2x5x32x2xbf16>',
    f'"mlirc.convolution"(%0, %1, %2) {{after = "shift", {WINDOWS}}} : ({IMAGES}, {FILTERS}, {FACTOR}) -> {WIDE}',
    f'"mlirc.convolution_add"(%0, %1, %2, %3) {{after = "shift, relu", {WINDOWS}}} : ({IMAGES}, {FILTERS}, {WIDE}, {FACTOR}) -> {WIDE}',
    f'"mlirc.transposed_convolution"(%0, %1) {{after = "", more = "0, 0", {WINDOWS}}} : ({WIDE}, {FILTERS}) -> {IMAGES}',
    f'"mlirc.fused_convolution"(%0, %1) {{{WINDOWS}}} : ({IMAGES}, tensor<8x1x3x3xf32>) -> {IMAGES}',
    f'"mlirc.grouped_convolution"(%0, %1) {{{WINDOWS}, groups = "4"}} : ({IMAGES}, tensor<1x3x2x3x16xf32>) -> {WIDE}',
    f'"mlirc.convolution_weight_gradient"(%0, %1) {{{WINDOWS}, window = "3, 3"}} : ({IMAGES}, {WIDE}) -> {FILTERS}',
    f'"mlirc.depthwise_weight_gradient"(%0, %1) {{{WINDOWS}, parts = "2", window = "3, 3"}} : ({IMAGES}, {IMAGES}) -> tensor<2x3x3x8xf32>',
    f'"mlirc.philox_uniform"(%0, %1, %2) {{threads = 256 : i64, width = 4 : i64}} : ({PLACES}, {PLACES}, {PLACES}) -> tensor<6x10xf32>',
    '"mlirc.rms_norm"(%0, %1) {axes = 1 : i64, eps = 0.5 : f64} : (tensor<6x10xf32>, tensor<10xf32>) -> (tensor<6x10xf32>, tensor<6x1xf32>)',
    '"mlirc.rms_norm_backward"(%0, %1, %2, %3) {axes = 1 : i64} : '
    "(tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x1xf32>, tensor<10xf32>) -> (tensor<6x10xf32>, tensor<10xf32>)",
    '"mlirc.batch_norm_inference"(%0, %1, %2, %3, %4) {eps = 0.5 : f64} : '
    "(tensor<2x8x4x4xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8x4x4xf32>",
    '"mlirc.release"(%0) : () -> tensor<6x10xf32>',
    '"mlirc.slot"(%0) {offset = "0"} : () -> tensor<6x10xf32>',
    '"mlirc.allocate"(%0) : () -> tensor<6x10xf32>',
)
LINE = re.compile(r'"(\S+)"\([^)]*\) (?:\{(.*)\} )?: \((.*)\) -> (.*)')
TYPE = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>")
PARTS = re.compile(r"tensor<((?:[\d?]+x)*)([^,]*?)(?:, \{(.*)\})?>")


@dataclass(frozen=True)
class Sample:
    name: str  # "mlirc.add"
    operands: tuple[str, ...]  # types
    results: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    body: tuple[str, str] | None = None  # its block's arguments are those of operands

    @property
    def kind(self) -> str:
        return self.name.partition(".")[2]

    def text(self) -> str:
        """The module of a function that does this alone."""
        names = [f"%x{k}" for k in range(len(self.operands))]
        given = ", ".join(map(": ".join, zip(names, self.operands, strict=True)))
        results, planned = self.results, self.kind in MEMORY
        given_back = results[:3] if self.kind == "attention_backward" else results  # but for its scratch
        made = ", ".join(f"%r#{k}" for k in range(len(given_back))) if len(results) != 1 else "%r"
        bound = f"%r{f':{len(results)}' if len(results) > 1 else ''} = " if results else ""
        attributes = ", ".join(f"{name} = {value}" for name, value in self.attributes)
        body = self.body_text() if self.body else ""
        if self.kind in ("slot", "allocate", "release") and len(results) == 1:  # a copy in it
            return self.filled(attributes)
        arena = ' attributes {mlirc.arena = "0"}' if planned else ""
        return (
            f"func.func @graph({given}) -> ({', '.join(given_back)}){arena} {{\n"
            f'  {bound}"{self.name}"({", ".join(names)}) {body}{{{attributes}}} : ({", ".join(self.operands)}) -> ({", ".join(results)})\n'
            f"  return {made if results else ''}{' : ' + ', '.join(given_back) if results else ''}\n}}"
        )

    def filled(self, attributes: str) -> str:
        (made,) = self.results
        call = f'"mlircx.call"(%x, %r) {{callee = "copy", inputs = 1 : i64}} : (tensor<6x10xf32>, {made}) -> ()'
        kept = self.kind == "allocate"
        if self.kind == "release":
            call += f'\n  "mlirc.release"(%r) {{{attributes}}} : ({made}) -> ()'
        name = "mlirc.allocate" if self.kind == "release" else self.name
        back = f"  return {'%r : ' + made if kept else ''}\n}}"
        signature = f'(%x: tensor<6x10xf32>) -> ({made if kept else ""}) attributes {{mlirc.arena = "256"}}'
        return f'func.func @graph{signature} {{\n  %r = "{name}"() {{{attributes}}} : () -> {made}\n  {call}\n{back}'

    def body_text(self) -> str:
        assert self.body is not None
        head, rest = self.body
        for name, type_ in zip(re.findall(r"(%\w+):", head), self.operands, strict=False):
            head = re.sub(rf"{name}: {TYPE.pattern}", lambda m, t=f"{name}: {type_}": t, head)
            rest = re.sub(
                rf'("mlirc\.read"\({name}[,)].*? : \(){TYPE.pattern}', lambda m, t=type_: m[1] + t, rest
            )  # its reads
        return f"({{\n{head}\n{rest}}}) "


# ---- where they come from


def samples(texts: Sequence[str]) -> dict[str, list[Sample]]:
    """By op: those written here, elementwise ones of every dtype class, and some of each op that the modules hold."""
    load_ops()
    found: dict[str, list[Sample]] = {}
    for line in BY_HAND:
        match = LINE.fullmatch(line)
        assert match, line
        attributes = tuple(re.findall(r'(\w+) = ("[^"]*"|[\d.]+ : \w+)', match[2] or ""))
        sample = Sample(match[1], tuple(TYPE.findall(match[3])), tuple(TYPE.findall(match[4])), attributes)
        found.setdefault(sample.kind, []).append(sample)
    for name, cls in OPS.items():
        if issubclass(cls, Elementwise):
            found.setdefault(name, []).extend(elementwise(name, cls))
    for text in texts:
        with context():
            module = parse_module(text.encode())
            for function in module.body.operations:
                if function.operation.name != "func.func" or not function.regions[0].blocks:
                    continue
                for op in function.regions[0].blocks[0].operations:
                    kind = op.operation.name.partition(".")[2]
                    held = found.setdefault(kind, [])
                    if op.operation.name.startswith("mlirc") and len(held) < (4 if kind in HERE else 1):
                        made = of(op)
                        if made is not None and made not in held and accepted(made):
                            held.append(made)
    return found


def of(op: ir.OpView) -> Sample | None:
    types = tuple(str(x.type) for x in op.operands), tuple(str(x.type) for x in op.results)
    attributes = tuple((name, str(op.attributes[name])) for name in op.attributes)
    body = None
    if op.regions and len(op.regions[0].blocks):
        text = str(op)
        inside = text[text.index("({\n") + 3 : text.rindex("})")]
        head, _, rest = inside.partition("\n")
        body = head, rest
    return Sample(op.operation.name, *types, attributes, body)


def elementwise(name: str, cls: type[Elementwise]) -> Iterator[Sample]:
    count = 1 if issubclass(cls, Unary) else 2 if issubclass(cls, Binary) else 3
    words = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * count
    for dtype in ("f32", "i64", "i1", "bf16"):
        given = tuple(f"tensor<6x10x{'i1' if word == 'bool' else dtype}>" for word in words)
        for gives in dict.fromkeys((dtype, "i1", "f32")):
            sample = Sample(f"mlirc.{name}", given, (f"tensor<6x10x{gives}>",))
            if accepted(sample):
                yield sample
                break


def accepted(sample: Sample) -> bool:
    with context():
        try:
            verify_file(parse_module(sample.text().encode()))
        except (TextError, StageError):
            return False
    return True


# ---- one thing changed


def changed(sample: Sample) -> Iterator[Sample]:
    """Each operand's and result's sizes, rank, dtype, strides and device in turn, then each attribute."""
    for field, types in (("operands", sample.operands), ("results", sample.results)):
        for k, old in enumerate(types):
            for new in dict.fromkeys(other_types(old)):
                if new != old:
                    yield replace(sample, **{field: (*types[:k], new, *types[k + 1 :])})
        if types:
            yield replace(sample, **{field: types[:-1]})
            yield replace(sample, **{field: (*types, types[-1])})
    for k, (name, old) in enumerate(sample.attributes):
        rest = sample.attributes[:k], sample.attributes[k + 1 :]
        yield replace(sample, attributes=(*rest[0], *rest[1]))
        for new in dict.fromkeys(other_values(old)):
            if new != old:
                yield replace(sample, attributes=(*rest[0], (name, new), *rest[1]))
    if sample.body:
        head, text = sample.body
        for match in re.finditer(r'(?:map|maps|size|expr|kind|value) = (\["[^"]*"|"[^"]*")', text):
            for new in dict.fromkeys(other_values(match[1])):
                yield replace(sample, body=(head, text[: match.start(1)] + new + text[match.end(1) :]))


def other_types(type_: str) -> Iterator[str]:
    match = PARTS.fullmatch(type_)
    if match is None:
        yield from ("tensor<6x10xf32>", "f64", "i64", "i1")
        return
    shape, dtype, more = match[1].split("x")[:-1], match[2], match[3]
    beside = f", {{{more}}}" if more else ""

    def made(sizes: Sequence[str], dtype: str = dtype, beside: str = beside) -> str:
        return f"tensor<{''.join(f'{n}x' for n in sizes)}{dtype}{beside}>"

    for d, n in enumerate(shape):
        for other in (0, 1, int(n) - 1, int(n) + 1, 2 * int(n), 1 << 40) if n != "?" else (1, 6):
            yield made((*shape[:d], str(max(other, 0)), *shape[d + 1 :]))
    if not more:
        for d in range(len(shape)):
            sizes = ["s0" if e == d else n for e, n in enumerate(shape)]
            yield made((*shape[:d], "?", *shape[d + 1 :]), beside=f', {{size = "{", ".join(sizes)}"}}')
    yield made(shape[1:], beside="")
    yield made((*shape, "1"), beside="")
    yield made((*shape, "3"), beside="")
    yield made(shape[::-1], beside="")
    for other in ("f64", "f32", "bf16", "i64", "i8", "i1", "complex<f32>"):
        yield made(shape, other)
    for strides in (
        [0] * len(shape),
        [64 >> k for k in range(len(shape))],
        [1 << k for k in range(len(shape))],
        [1 << 40] * len(shape),
    ):
        if shape and "?" not in shape:
            yield made(shape, beside=f', {{stride = "{", ".join(map(str, strides))}"}}')
    yield made(shape, beside=', {device = "cuda:0"}')


def other_values(value: str) -> Iterator[str]:
    """Of an attribute, as text."""
    if value in ("true", "false"):
        yield "false" if value == "true" else "true"
    for match in re.finditer(r"(?<![\w.])-?\d+(?![\w.])", value):
        n = int(match[0])
        for other in (n + 1, n - 1, 0, -n, 2 * n, 1 << 40, (1 << 63) - 1):
            yield value[: match.start()] + str(other) + value[match.end() :]
    for match in re.finditer(r"\b[dis]\d\b", value):
        for other in (
            "d0",
            "d1",
            "d9",
            "0",
            "i0",
            f"{match[0]} + 1",
            f"{match[0]} - 1",
            f"2*{match[0]}",
            f"{match[0]} % 2",
        ):
            yield value[: match.start()] + other + value[match.end() :]
    for match in re.finditer(r"(?<=[\"' ,])[a-z_]{3,}(?=[\"' ,])", value):
        for other in ("sum", "argmax", "welford", "relu", "none", "copy", "matmul", "lower"):
            yield value[: match.start()] + other + value[match.end() :]
    yield from (
        "7 : i64",
        "-1 : i64",
        "0.5 : f64",
        '""',
        '"0"',
        '"1, 2, 3, 4, 5"',
        "[]",
        '["d0"]',
        "true",
        "unit",
        "f32",
        '"\\00"',
    )

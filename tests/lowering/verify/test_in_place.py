"""The plan checker on launches that write memory which they read: right exactly where each address is read by the point that writes it alone."""

from itertools import product
from random import Random

import pytest

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.verify.plan import PlanError, check_plan

BASE = "tensor<24xf32>"
MAPS = ["d0, d1", "d1, d0", "3 - d0, d1", "d0, 3 - d1", "(d0 + 1) % 4, d1", "d0, (d0 + d1) % 4"]
VIEW = "tensor<4x4xf32>"


def launch(target, source, reads, writes):
    body = "\n".join(
        f'%r{k} = "mlirc.read"(%a) {{map = "{map_}", masked = false}} : ({VIEW}) -> f32' for k, map_ in enumerate(reads)
    )
    return f"""%s{target} = "mlirc.view"(%x) {{map = "", offset = "{source}"}} : ({BASE}) -> {VIEW}
    %t{target} = "mlirc.view"(%x) {{map = "", offset = "{target}"}} : ({BASE}) -> {VIEW}
    "mlircx.launch"(%s{target}, %t{target}) ({{
    ^bb0(%a: {VIEW}):
      {body}
      "mlircx.yield"(%r0) {{maps = ["{writes}"]}} : (f32) -> ()
    }}) {{parallel = "4, 4", inner = "", inputs = 1 : i64, label = "test"}} : ({VIEW}, {VIEW}) -> ()"""


def place(map_, at):
    row, column = (symbols.evaluate(index, at) for index in symbols.parse_list(map_))
    return 4 * row + column


def right(source, target, reads, writes):
    points = [{"d0": a, "d1": b} for a, b in product(range(4), range(4))]
    writer = {target + place(writes, at): k for k, at in enumerate(points)}
    read = ((source + place(map_, at), k) for map_ in reads for k, at in enumerate(points))
    return all(writer.get(address, k) == k for address, k in read)


@pytest.mark.parametrize("seed", range(60))
def test_each_address_is_read_by_its_writer(seed):
    random = Random(seed)
    source, target = random.choice([(0, 0), (0, 0), (4, 4), (0, 4), (4, 0), (0, 1)])
    reads = random.choices(MAPS, k=random.randint(1, 2))
    writes = random.choice([*reads, random.choice(MAPS)])
    lines = launch(target, source, reads, writes)
    head = f'func.func @graph(%x: {BASE}) attributes {{mlirc.arena = "0"}} {{'
    with context():
        module = ir.Module.parse(f"{head}\n{lines}\nreturn\n}}")
        function = module.body.operations[0]
        if right(source, target, reads, writes):
            check_plan(function, {})
        else:
            with pytest.raises(PlanError, match="spoils operand 0"):
                check_plan(function, {})

"""Merges equal pairs of kernels once: layers of a model, and steps of an unrolled scan, are equal up to their tensors.

An *outline* is what a body is beside its tensors and the source lines of its nodes. What two kernels become depends on
their outlines and on which of their tensors are the same. A pair like an earlier one gets the earlier one's outcome. Its nodes are made
when somebody asks for them, and most bodies are merged again before that.
"""

from collections.abc import Callable, Hashable
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.index_maps import Map, Space
from mlirc.lowering.fusion.body import Body, BodyNode, NodeKind, Once, Result, Tensor, read_body
from mlirc.lowering.fusion.merge import Limits, Refused

Merge = Callable[[Body, Body, set[Tensor], Limits], tuple[str, Body]]
Numbers = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Outline:
    """What equal bodies have alike. There is one of each in an `Outlines`. Nodes are numbered, operands before their users.

    kinds     of its nodes
    numbers   of each node: that of the tensor that it reads (-1: no read), how many operands it has, their numbers
    dims      of each node: the iteration dimensions that it depends on
    results   the number of the node, and the map
    """

    parallel: Space
    inner: Space
    label: str
    kinds: tuple[NodeKind, ...]
    numbers: Numbers
    dims: tuple[frozenset[int], ...]
    results: list[tuple[int, Map]]


class OutlinedBody(Body):
    """A body that makes its nodes when it is asked for them.

    locations   of its nodes
    """

    def __init__(self, outline: Outline, tensors: list[Tensor], outputs: list[Tensor], locations: list[ir.Location]):
        self.parallel, self.inner, self.label, self._below = outline.parallel, outline.inner, outline.label, {}
        self.outline = outline
        self.__dict__ |= {
            "tensors": tensors,
            "outputs": outputs,
            "locations": locations,
        }  # which a body reads from its nodes

    @Once
    def results(self) -> list[Result]:  # type: ignore[override]
        outline, nodes = self.outline, list[BodyNode]()
        numbers, tensors, at = outline.numbers, [*self.tensors, None], 0  # the last one of a node that is no read
        for kind, dims, location in zip(outline.kinds, outline.dims, self.locations, strict=True):
            tensor, end = tensors[numbers[at]], at + 2 + numbers[at + 1]
            node = BodyNode(kind, tuple([nodes[k] for k in numbers[at + 2 : end]]), location, tensor)
            node.dims, at = dims, end
            nodes.append(node)
        made = [Result(nodes[k], map_, to) for (k, map_), to in zip(outline.results, self.outputs, strict=True)]
        self._below[tuple([result.node for result in made])] = nodes
        return made


@dataclass(eq=False, slots=True)
class MergedPair:
    """What a pair of kernels becomes. Numbers are those of the pair's tensors, and of the nodes of both."""

    rule: str
    outline: Outline
    tensors: Numbers
    outputs: Numbers
    locations: Numbers


Refusal = tuple[type[Refused], str, dict[str, int]]
COMPARES: Refusal = (Refused, "", {})  # the outcome depends on where views lie in what both read


class Outlines:
    """The outlines of one function's bodies, and what pairs of them became."""

    def __init__(self) -> None:
        self._outlines: dict[tuple, Outline] = {}
        self._made: dict[tuple, MergedPair | Refusal] = {}
        self._alike: dict[Hashable, tuple[Outline, list[int]]] = {}

    def read(self, kernel: Any, operands: list[Tensor], outputs: list[Tensor], made_of: Hashable) -> Body:
        """The body of a `mlircx.kernel` on these tensors. Those with equal `made_of` are alike, and the nodes of each have its location."""
        if made_of is None:
            return read_body(kernel, operands, outputs)
        found = self._alike.get(made_of)
        location = kernel.location
        if found is None:
            body = read_body(kernel, operands, outputs)
            body.__dict__["locations"] = [location] * len(body.nodes)
            found = self._alike[made_of] = self.outline(body), [operands.index(tensor) for tensor in body.tensors]
        outline, reads = found
        return OutlinedBody(outline, [operands[k] for k in reads], outputs, [location] * len(outline.kinds))

    def merge(
        self,
        merge: Merge,
        compares_reads: Callable[[Body, Body], bool],
        producer: Body,
        consumer: Body,
        keep: set[Tensor],
        limits: Limits,
    ) -> tuple[str, Body]:
        """What `merge` gives for these. Of tensors it looks at which are the same and where views lie in what the producer writes, or, if it
        `compares_reads`, in what both read. Raises Refused."""
        numbers: dict[Tensor, int] = {}
        key = merge, limits, self.outline(producer), self.outline(consumer), *_alike(producer, consumer, keep, numbers)
        found = self._made.get(key)
        if found is None and compares_reads(producer, consumer):
            found = self._made[key] = COMPARES
        if found is COMPARES:
            key += (_common_views(producer, consumer),)
            found = self._made.get(key)
        if found is None:
            try:
                rule, body = merge(producer, consumer, keep, limits)
            except Refused as refusal:
                self._made[key] = type(refusal), refusal.rule, refusal.numbers
                raise
            self._made[key] = self._merged_pair(rule, body, producer, consumer, numbers)
            return rule, body
        if isinstance(found, tuple):
            refused, rule, compared = found
            raise refused(rule, **compared)
        tensors, locations = list(numbers), producer.locations + consumer.locations
        return found.rule, OutlinedBody(
            found.outline,
            [tensors[k] for k in found.tensors],
            [tensors[k] for k in found.outputs],
            [locations[k] for k in found.locations],
        )

    def without_nodes(self, body: Body) -> Body:
        """A body that is equal to `body` and makes its nodes when somebody asks for them.

        Thousands of bodies are kept, and the garbage collector would walk over all of their nodes.
        """
        outline = body.__dict__.get("outline")
        if outline is None or (isinstance(body, OutlinedBody) and "results" not in body.__dict__):
            return body
        return OutlinedBody(outline, body.tensors, body.outputs, body.locations)

    def outline(self, body: Body) -> Outline:
        found = body.__dict__.get("outline")
        if found is None:
            found = body.__dict__["outline"] = self._outline(body)
        return found

    def _outline(self, body: Body) -> Outline:
        numbers = {node: k for k, node in enumerate(body.nodes)}
        reads = {tensor: k for k, tensor in enumerate(body.tensors)}
        flat: list[int] = []
        for node in numbers:
            flat += reads.get(node.tensor, -1), len(node.operands)
            for x in node.operands:
                flat.append(numbers[x])
        kinds, results = tuple([node.kind for node in numbers]), [(numbers[r.node], r.map) for r in body.results]
        key = body.parallel, body.inner, body.label, kinds, tuple(flat), tuple(results), _same(body.locations)
        found = self._outlines.get(key)
        if found is None:
            dims = tuple([node.dims for node in numbers])
            found = Outline(body.parallel, body.inner, body.label, kinds, key[4], dims, results)
            self._outlines[key] = found
        return found

    def _merged_pair(
        self, rule: str, body: Body, producer: Body, consumer: Body, numbers: dict[Tensor, int]
    ) -> MergedPair:
        places: dict[int, int] = {}
        for k, location in enumerate(producer.locations + consumer.locations):
            places.setdefault(id(location), k)
        return MergedPair(
            rule,
            self.outline(body),
            tuple([numbers[tensor] for tensor in body.tensors]),
            tuple([numbers[tensor] for tensor in body.outputs]),
            tuple([places[id(location)] for location in body.locations]),
        )


def _same(locations: list[Any]) -> Numbers:
    """Which are one object: of each the first that it is. A node of a merged body has the location of a node that it was made of."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(location), k) for k, location in enumerate(locations)])


def _alike(producer: Body, consumer: Body, keep: set[Tensor], numbers: dict[Tensor, int]) -> tuple:
    """What else decides about a pair: which tensors are the same or of one root, where views lie in what the producer writes, which results
    are kept, and which nodes have one location. Fills in `numbers`."""
    pattern: list[int] = []
    for tensor in (*producer.tensors, *producer.outputs, *consumer.tensors, *consumer.outputs):
        root = tensor.root
        pattern.append(numbers.setdefault(tensor, len(numbers)))
        pattern.append(-1 if root is tensor else numbers.setdefault(root, len(numbers)))
    views = [t.to_root for t in consumer.tensors if t.view is not None and t.root in producer.outputs]
    lines: list[int] = []
    if not set(map(id, producer.locations)).isdisjoint(map(id, consumer.locations)):
        places = {id(location): k for k, location in enumerate(producer.locations)}
        lines = [places.get(id(location), -1) for location in consumer.locations]
    kept = tuple([tensor in keep for tensor in producer.outputs])
    return tuple(pattern), tuple(views), kept, tuple(lines)


def _common_views(producer: Body, consumer: Body) -> tuple:
    ours = {tensor.root for tensor in producer.tensors}
    common = {tensor.root for tensor in consumer.tensors if tensor.root in ours}
    return tuple([t.to_root for t in (*producer.tensors, *consumer.tensors) if t.view is not None and t.root in common])

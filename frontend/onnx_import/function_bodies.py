"""Operators whose meaning ONNX writes with others, and functions that a model brings: their nodes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mlirc.frontend.onnx_import.package import onnx


class FunctionBody(NamedTuple):
    """Nodes in place of one node, and the names that its operands and results have among them."""

    nodes: Sequence[Any]
    inputs: list[str]
    outputs: list[str]
    opsets: Mapping[str, int]


def expanded(
    node: Any,
    domain: str,
    functions: Mapping[tuple[str, str], Any],
    opsets: Mapping[str, int],
    given: Sequence[tuple[int, list[Any]] | None],
) -> FunctionBody | None:
    """The body of the function that a node calls, with its attributes put in; None where it is none.

    given   element type and sizes of each operand
    """
    function = functions.get((domain, node.op_type)) or _standard(node, domain, opsets, given)
    if function is None:
        return None
    told = {a.name: a for a in node.attribute}
    told = {a.name: a for a in function.attribute_proto} | told
    nodes = [_with_attributes(inner, told) for inner in function.node]
    found = {("" if s.domain == "ai.onnx" else s.domain): s.version for s in function.opset_import}
    return FunctionBody(nodes, list(function.input), list(function.output), {**opsets, **found})


def _standard(node: Any, domain: str, opsets: Mapping[str, int], given: Sequence[Any]) -> Any:
    """The function by which ONNX defines an operator. None for an operator that it does not know or does not define so."""
    version = opsets.get(domain, 0)
    if not onnx().defs.has(node.op_type, domain) or not version:
        return None
    schema = onnx().defs.get_schema(node.op_type, version, domain)
    if schema.has_context_dependent_function:
        types = [
            b""
            if x is None
            else onnx().helper.make_tensor_type_proto(x[0], [_size(n) for n in x[1]]).SerializeToString()
            for x in given
        ]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if not versions:
            return None
        text = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
        function = onnx().FunctionProto()
        function.ParseFromString(text)
    elif schema.has_function:
        function = onnx().FunctionProto()
        function.CopyFrom(schema.function_body)
    else:
        return None
    # An operator that defines itself by itself would never end.
    if any(inner.op_type == node.op_type and inner.domain == node.domain for inner in function.node):
        return None
    defaults = {a.name: a.default_value for a in schema.attributes.values() if a.default_value.name}
    known = {a.name for a in node.attribute} | {a.name for a in function.attribute_proto}
    function.attribute_proto.extend(a for name, a in defaults.items() if name not in known)
    return function


def _size(n: Any) -> int | None:
    return n if isinstance(n, int) else None


def _with_attributes(node: Any, told: Mapping[str, Any]) -> Any:
    """A node of a body, where attributes that refer to the caller's are the caller's; those that it leaves out are left out."""
    if not any(a.ref_attr_name or a.HasField("g") for a in node.attribute):
        return node
    found = onnx().NodeProto()
    found.CopyFrom(node)
    del found.attribute[:]
    for a in node.attribute:
        if a.HasField("g"):
            kept = found.attribute.add()
            kept.CopyFrom(a)
            nodes = [_with_attributes(inner, told) for inner in a.g.node]
            del kept.g.node[:]
            kept.g.node.extend(nodes)
        elif not a.ref_attr_name:
            found.attribute.add().CopyFrom(a)
        elif a.ref_attr_name in told:
            kept = found.attribute.add()
            kept.CopyFrom(told[a.ref_attr_name])
            kept.name = a.name
    return found

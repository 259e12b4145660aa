"""Makes a program that shows a bug smaller, as long as it shows the same bug: statements, calls, arguments, sizes, values."""

import ast
import copy
import time
from collections.abc import Callable, Iterator

Check = Callable[[str], bool]


def shrink(text: str, shows: Check, seconds: float = 60.0) -> str:
    """The smallest text found in the time for which `shows` is true."""
    end = time.monotonic() + seconds
    tree = ast.parse(text)
    best = ast.unparse(tree)
    if best != text and not shows(best):
        return text
    changed = True
    while changed:
        changed = False
        for candidate in candidates(best):
            if time.monotonic() > end:
                return best
            if (len(candidate) < len(best) or _simpler(candidate, best)) and shows(candidate):
                best, changed = candidate, True
                break
    return best


def candidates(text: str) -> Iterator[str]:
    """Smaller programs, the boldest changes first."""
    for step in (_without_statements, _without_parameters, _without_elements, _inner_expressions, _smaller_constants):
        tree = ast.parse(text)
        for changed in step(tree):
            try:
                yield ast.unparse(ast.fix_missing_locations(changed))
            except Exception:
                continue


def _simpler(a: str, b: str) -> bool:
    """Of equal length: smaller numbers count as simpler."""
    return len(a) == len(b) and a < b


def _blocks(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            if isinstance(getattr(node, name, None), list) and not isinstance(node, ast.Lambda):
                found.append((node, name))
    return found


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    for b, (node, name) in enumerate(_blocks(tree)):
        count = len(getattr(node, name))
        lengths = sorted({count // 2, count // 4, 2, 1}, reverse=True)
        for length in (n for n in lengths if n > 0):
            for start in range(count - length, -1, -1):
                changed = copy.deepcopy(tree)
                other, _ = _blocks(changed)[b]
                block = getattr(other, name)
                removed = block[start : start + length]
                if any(isinstance(s, ast.FunctionDef | ast.ClassDef | ast.Return) for s in removed):
                    continue
                if length == 1 and isinstance(removed[0], ast.If | ast.With | ast.For):
                    inner = copy.deepcopy(changed)
                    place = getattr(_blocks(inner)[b][0], name)
                    place[start : start + 1] = removed[0].body
                    yield inner
                del block[start : start + length]
                if not block and name == "body":
                    if isinstance(node, ast.FunctionDef | ast.ClassDef):
                        block.append(ast.Pass())
                    else:
                        continue
                yield changed
        for start in range(count):  # `v3 = f(v1)` goes, and v3 is v1 from there on
            statement = getattr(node, name)[start]
            if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
                continue
            for other in _names(statement.value):
                changed = copy.deepcopy(tree)
                del getattr(_blocks(changed)[b][0], name)[start]
                yield _Rename(statement.targets[0].id, other).visit(changed)


def _names(node: ast.AST) -> list[str]:
    return sorted(
        {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in ("torch", "F", "math", "nn")}
    )


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: str):
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new, node.ctx) if node.id == self.old else node


def _without_parameters(tree: ast.Module) -> Iterator[ast.Module]:
    """One parameter of `program` or `forward` less, in all calls of f."""
    target = next(
        (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in ("program", "forward")), None
    )
    if target is None:
        return
    first = int(target.name == "forward")
    for k in range(first, len(target.args.args)):
        changed = copy.deepcopy(tree)
        for node in ast.walk(changed):
            if isinstance(node, ast.FunctionDef) and node.name == target.name:
                del node.args.args[k]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                skip = {"f": 0, "in_thread": 1}.get(node.func.id)
                if skip is not None and len(node.args) > k - first + skip:
                    del node.args[k - first + skip]
        yield changed


def _without_elements(tree: ast.Module) -> Iterator[ast.Module]:
    """One element less in a tuple, list, dict, or call; a single one by itself."""
    for k, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load):
            counts = len(node.elts)
        elif isinstance(node, ast.Dict):
            counts = len(node.values)
        elif isinstance(node, ast.Call):
            counts = len(node.args) + len(node.keywords)
        else:
            continue
        for i in range(counts):
            changed = copy.deepcopy(tree)
            other = next(n for j, n in enumerate(ast.walk(changed)) if j == k)
            if isinstance(other, ast.Tuple | ast.List):
                if counts == 1:
                    break
                del other.elts[i]
            elif isinstance(other, ast.Dict):
                del other.keys[i], other.values[i]
            elif isinstance(other, ast.Call):
                if i < len(other.args):
                    del other.args[i]
                else:
                    del other.keywords[i - len(other.args)]
            yield changed


class _Replace(ast.NodeTransformer):
    """Puts another expression at the k-th expression."""

    def __init__(self, k: int, new: ast.expr):
        self.k, self.new, self.count = k, new, -1

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            self.count += 1
            if self.count == self.k:
                self.generic_visit(node)
                return self.new
        return self.generic_visit(node)


def _expressions(tree: ast.AST) -> list[ast.expr]:
    found = []

    class Collect(ast.NodeVisitor):
        def visit(self, node: ast.AST) -> None:
            if isinstance(node, ast.expr):
                found.append(node)
            self.generic_visit(node)

    Collect().visit(tree)
    return found


def _inner_expressions(tree: ast.Module) -> Iterator[ast.Module]:
    """An expression becomes one of its parts: `f(x, 2)` becomes x, `a + b` becomes a."""
    for k, node in enumerate(_expressions(tree)):
        if isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        if isinstance(node, ast.Call):
            inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        elif isinstance(node, ast.Subscript):
            inner = [node.value]
        elif isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 1:
            inner = [node.elts[0]]
        elif isinstance(node, ast.Dict) and len(node.values) == 1:
            inner = [node.values[0]]
        else:
            inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        for part in inner:
            if isinstance(part, ast.Name) and part.id in ("torch", "F", "math", "nn", "m", "f"):
                continue
            yield _Replace(k, copy.deepcopy(part)).visit(copy.deepcopy(tree))


def _smaller_constants(tree: ast.Module) -> Iterator[ast.Module]:
    for k, node in enumerate(_expressions(tree)):
        if isinstance(node, ast.Constant):
            for value in _smaller(node.value):
                yield _Replace(k, ast.Constant(value)).visit(copy.deepcopy(tree))
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in _DTYPES:
            for dtype in _DTYPES[: _DTYPES.index(ast.unparse(node))]:
                yield _Replace(k, ast.parse(dtype, mode="eval").body).visit(copy.deepcopy(tree))


_DTYPES = ["torch.int8", "torch.bool", "torch.int16", "torch.uint8", "torch.int32", "torch.int64", "torch.float16"]
_DTYPES += ["torch.float32", "torch.float64", "torch.bfloat16", "torch.complex64", "torch.complex128"]


def _smaller(value: object) -> list:
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int):
        return [v for v in dict.fromkeys((0, 1, 2, value // 2, value - 1)) if 0 <= v < value]
    if isinstance(value, str) and value in ("extreme", "special", "ties", "positive"):
        return ["ones", "normal"]
    return []

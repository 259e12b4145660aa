"""`mlirc opt --rewrites` and `--list-rewrites`."""

from tests.commands.command import bad, good


def test_rewrites_are_numbered_and_limited(tmp_path):
    path, x = tmp_path / "a.mlir", "tensor<8xf32>"
    ops = "".join(f'  %{k + 1} = "mlirc.neg"(%{k}) : ({x}) -> {x}\n' for k in range(3))
    path.write_text(f"func.func @graph(%0: {x}) -> {x} {{\n{ops}  return %3 : {x}\n}}\n")
    done = good("opt", path, "-p", "to-kernels,fuse-elementwise", "--list-rewrites")
    assert "to-kernels 0: mlirc.neg (" in done.stderr and "fuse-elementwise 1: neg -> neg (" in done.stderr
    for limit, kernels in (("none", 3), ("0", 2), ("1", 2), ("0-1", 1), ("0,1-", 1)):
        done = good("opt", path, "-p", "to-kernels,fuse-elementwise", "--rewrites", f"fuse-elementwise={limit}")
        assert done.stdout.count("mlircx.kernel") == kernels
    done = good("opt", path, "-p", "to-kernels", "--rewrites", "to-kernels=2", "--list-rewrites")
    assert done.stdout.count("mlircx.kernel") == 1 and "to-kernels 0: mlirc.neg" in done.stderr
    assert done.stderr.count(": refused") == 2
    assert "no such pass runs" in bad("opt", path, "-p", "to-kernels", "--rewrites", "cse=1", code=2)
    assert "is no range" in bad("opt", path, "-p", "cse", "--rewrites", "cse=x", code=2)

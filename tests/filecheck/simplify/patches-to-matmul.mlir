// RUN: mlirc-opt %s -p "patches-to-matmul"
func.func @graph(%x: tensor<2x3x12x10xbf16, {device = "cuda:0"}>, %w: tensor<6x3x4x2xbf16, {device = "cuda:0"}>, %b: tensor<6xbf16, {device = "cuda:0"}>) -> tensor<2x6x3x5xbf16, {device = "cuda:0"}> {
%0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", op = "aten.convolution.default", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [4, 2], [0, 0], [1, 1], false, [0, 0], 1]"} : (tensor<2x3x12x10xbf16, {device = "cuda:0"}>, tensor<6x3x4x2xbf16, {device = "cuda:0"}>, tensor<6xbf16, {device = "cuda:0"}>) -> tensor<2x6x3x5xbf16, {device = "cuda:0"}>
return %0 : tensor<2x6x3x5xbf16, {device = "cuda:0"}>
}

// CHECK: "mlirc.copy"
// CHECK: "mlirc.addmm"
// CHECK-NOT: "mlircx.aten"
// CHECK: // PATCHES: multiply aten.convolution, taken

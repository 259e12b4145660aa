// RUN: mlirc-opt %s -p "convolve-channels-last,eliminate-dead,canonicalize,cse"

// Between two convolutions nothing is copied; only what the graph takes and gives is.
// CHECK-LABEL: func.func @two
// CHECK:         %[[X:.*]] = "mlirc.copy"(%arg0)
// CHECK:         %[[C:.*]] = "mlircx.aten"(%[[X]],
// CHECK:         %[[R:.*]] = "mlirc.relu"(%[[C]]) : (tensor<2x8x4x4xbf16, {device = "cuda:0", stride = "128, 1, 32, 8"}>)
// CHECK-NOT:     "mlirc.copy"(%[[R]])
// CHECK:         %[[D:.*]] = "mlircx.aten"(%[[R]],
// CHECK:         %[[Y:.*]] = "mlirc.copy"(%[[D]])
// CHECK:         return %[[Y]]
func.func @two(%x: tensor<2x8x4x4xbf16, {device = "cuda:0"}>, %w: tensor<8x8x3x3xbf16, {device = "cuda:0"}>) -> tensor<2x8x4x4xbf16, {device = "cuda:0"}> {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x8x4x4xbf16, {device = "cuda:0"}>, tensor<8x8x3x3xbf16, {device = "cuda:0"}>) -> tensor<2x8x4x4xbf16, {device = "cuda:0"}>
  %1 = "mlirc.relu"(%0) : (tensor<2x8x4x4xbf16, {device = "cuda:0"}>) -> tensor<2x8x4x4xbf16, {device = "cuda:0"}>
  %2 = "mlircx.aten"(%1, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x8x4x4xbf16, {device = "cuda:0"}>, tensor<8x8x3x3xbf16, {device = "cuda:0"}>) -> tensor<2x8x4x4xbf16, {device = "cuda:0"}>
  return %2 : tensor<2x8x4x4xbf16, {device = "cuda:0"}>
}

// float32 has no fast kernels in that order: it stays.
// CHECK-LABEL: func.func @single
// CHECK-NOT:     "mlirc.copy"
func.func @single(%x: tensor<2x8x4x4xf32, {device = "cuda:0"}>, %w: tensor<8x8x3x3xf32, {device = "cuda:0"}>) -> tensor<2x8x4x4xf32, {device = "cuda:0"}> {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x8x4x4xf32, {device = "cuda:0"}>, tensor<8x8x3x3xf32, {device = "cuda:0"}>) -> tensor<2x8x4x4xf32, {device = "cuda:0"}>
  return %0 : tensor<2x8x4x4xf32, {device = "cuda:0"}>
}

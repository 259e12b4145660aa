// RUN: mlirc-opt %s -p "generate-convolutions,eliminate-dead,canonicalize,cse"

// The gradient of a weight is a kernel of ours, that of large images oneDNN's; what stands between is channels last.
// CHECK-LABEL: func.func @both
// CHECK-DAG:     %[[X:.*]] = "mlirc.copy"(%arg1)
// CHECK-DAG:     %[[Y:.*]] = "mlirc.copy"(%arg0)
// CHECK:         %[[DX:.*]] = "mlircx.aten"(%[[Y]], %[[X]], %arg2) {{.*}}[true, false, false]
// CHECK:         %[[DW:.*]] = "mlirc.convolution_weight_gradient"(%[[X]], %[[Y]]) {dilation = "1, 1", padding = "1, 1", stride = "1, 1", window = "3, 3"}
// CHECK:         %[[R:.*]] = "mlirc.relu"(%[[DX]]) : (tensor<2x16x120x120xf32, {stride = "230400, 1, 1920, 16"}>)
// CHECK:         %[[P:.*]] = "mlirc.copy"(%[[R]])
// CHECK:         return %[[P]], %[[DW]]
func.func @both(%dy: tensor<2x16x120x120xf32>, %x: tensor<2x16x120x120xf32>, %w: tensor<16x16x3x3xf32>) -> (tensor<2x16x120x120xf32>, tensor<16x16x3x3xf32>) {
  %0:2 = "mlircx.aten"(%dy, %x, %w) {aliases = "-1, -1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [0], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, [true, true, false]]", op = "aten.convolution_backward.default"} : (tensor<2x16x120x120xf32>, tensor<2x16x120x120xf32>, tensor<16x16x3x3xf32>) -> (tensor<2x16x120x120xf32>, tensor<16x16x3x3xf32>)
  %1 = "mlirc.relu"(%0#0) : (tensor<2x16x120x120xf32>) -> tensor<2x16x120x120xf32>
  return %1, %0#1 : tensor<2x16x120x120xf32>, tensor<16x16x3x3xf32>
}

// Regions decide for themselves: groups of many channels lose, so that they stay as they are; a small convolution is ours,
// and its depthwise neighbour goes with it.
// CHECK-LABEL: func.func @regions
// CHECK-DAG:     "mlircx.aten"(%arg0, %arg1) {{.*}}, 2]
// CHECK-DAG:     %[[X:.*]] = "mlirc.copy"(%arg2)
// CHECK-DAG:     %[[D:.*]] = "mlircx.aten"(%[[X]], %arg3) {{.*}}, 32]
// CHECK-DAG:     "mlirc.convolution"(%[[D]], %arg4)
// CHECK:         return
func.func @regions(%g: tensor<2x64x8x8xf32>, %u: tensor<64x32x3x3xf32>, %x: tensor<2x32x8x8xf32>, %w: tensor<32x1x3x3xf32>, %v: tensor<32x32x3x3xf32>) -> (tensor<2x64x8x8xf32>, tensor<2x32x8x8xf32>) {
  %0 = "mlircx.aten"(%g, %u) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 2]", op = "aten.convolution.default"} : (tensor<2x64x8x8xf32>, tensor<64x32x3x3xf32>) -> tensor<2x64x8x8xf32>
  %1 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 32]", op = "aten.convolution.default"} : (tensor<2x32x8x8xf32>, tensor<32x1x3x3xf32>) -> tensor<2x32x8x8xf32>
  %2 = "mlircx.aten"(%1, %v) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x32x8x8xf32>, tensor<32x32x3x3xf32>) -> tensor<2x32x8x8xf32>
  return %0, %2 : tensor<2x64x8x8xf32>, tensor<2x32x8x8xf32>
}

// A transposed convolution is ours, with its bias; its result goes on channels last.
// CHECK-LABEL: func.func @transposed
// CHECK:         %[[T:.*]] = "mlirc.transposed_convolution"(%{{.*}}, %arg1, %arg2) {after = "shift", dilation = "1, 1", more = "1, 0", padding = "1, 1", stride = "2, 2"}
// CHECK:         "mlirc.relu"(%[[T]])
func.func @transposed(%x: tensor<2x32x8x8xf32>, %w: tensor<32x24x3x3xf32>, %b: tensor<24xf32>) -> tensor<2x24x16x15xf32> {
  %0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [2, 2], [1, 1], [1, 1], true, [1, 0], 1]", op = "aten.convolution.default"} : (tensor<2x32x8x8xf32>, tensor<32x24x3x3xf32>, tensor<24xf32>) -> tensor<2x24x16x15xf32>
  %1 = "mlirc.relu"(%0) : (tensor<2x24x16x15xf32>) -> tensor<2x24x16x15xf32>
  return %1 : tensor<2x24x16x15xf32>
}

// Large weights: the convolution is ours.
// CHECK-LABEL: func.func @large
// CHECK:         "mlirc.convolution"(%{{.*}}, %arg1, %arg2) {after = "shift", dilation = "1, 1", padding = "0, 0", stride = "2, 2"}
func.func @large(%x: tensor<2x512x8x8xf32>, %w: tensor<520x512x1x1xf32>, %b: tensor<520xf32>) -> tensor<2x520x4x4xf32> {
  %0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [2, 2], [0, 0], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x512x8x8xf32>, tensor<520x512x1x1xf32>, tensor<520xf32>) -> tensor<2x520x4x4xf32>
  return %0 : tensor<2x520x4x4xf32>
}

// RUN: mlirc-opt %s -p "generate-convolutions,eliminate-dead,canonicalize,cse"

// The gradient of a weight is a kernel of ours, that of the images oneDNN's; what stands between is channels last.
// CHECK-LABEL: func.func @both
// CHECK-DAG:     %[[X:.*]] = "mlirc.copy"(%arg1)
// CHECK-DAG:     %[[Y:.*]] = "mlirc.copy"(%arg0)
// CHECK:         %[[DX:.*]] = "mlircx.aten"(%[[Y]], %[[X]], %arg2) {{.*}}[true, false, false]
// CHECK:         %[[DW:.*]] = "mlirc.convolution_weight_gradient"(%[[X]], %[[Y]]) {dilation = "1, 1", padding = "1, 1", stride = "1, 1", window = "3, 3"}
// CHECK:         %[[R:.*]] = "mlirc.relu"(%[[DX]]) : (tensor<2x16x8x8xf32, {stride = "1024, 1, 128, 16"}>)
// CHECK:         %[[P:.*]] = "mlirc.copy"(%[[R]])
// CHECK:         return %[[P]], %[[DW]]
func.func @both(%dy: tensor<2x16x8x8xf32>, %x: tensor<2x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) {
  %0:2 = "mlircx.aten"(%dy, %x, %w) {aliases = "-1, -1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [0], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, [true, true, false]]", op = "aten.convolution_backward.default"} : (tensor<2x16x8x8xf32>, tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>)
  %1 = "mlirc.relu"(%0#0) : (tensor<2x16x8x8xf32>) -> tensor<2x16x8x8xf32>
  return %1, %0#1 : tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>
}

// Groups: nothing is known of them, so that every convolution stays as it is.
// CHECK-LABEL: func.func @groups
// CHECK-NOT:     "mlirc.copy"
// CHECK:         return
func.func @groups(%x: tensor<2x32x8x8xf32>, %w: tensor<32x1x3x3xf32>, %v: tensor<32x32x3x3xf32>) -> tensor<2x32x8x8xf32> {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 32]", op = "aten.convolution.default"} : (tensor<2x32x8x8xf32>, tensor<32x1x3x3xf32>) -> tensor<2x32x8x8xf32>
  %1 = "mlircx.aten"(%0, %v) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x32x8x8xf32>, tensor<32x32x3x3xf32>) -> tensor<2x32x8x8xf32>
  return %1 : tensor<2x32x8x8xf32>
}

// Large weights: the convolution is ours.
// CHECK-LABEL: func.func @large
// CHECK:         "mlirc.convolution"(%{{.*}}, %arg1, %arg2) {after = "shift", dilation = "1, 1", padding = "0, 0", stride = "2, 2"}
func.func @large(%x: tensor<2x512x8x8xf32>, %w: tensor<520x512x1x1xf32>, %b: tensor<520xf32>) -> tensor<2x520x4x4xf32> {
  %0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [2, 2], [0, 0], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x512x8x8xf32>, tensor<520x512x1x1xf32>, tensor<520xf32>) -> tensor<2x520x4x4xf32>
  return %0 : tensor<2x520x4x4xf32>
}

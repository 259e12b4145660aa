// RUN: mlirc-opt %s -p "convolution-to-matmul,eliminate-dead,canonicalize,cse"

// Filters as large as their image, whatever the stride.
// CHECK-LABEL: func.func @whole
// CHECK-DAG:     %[[X:.*]] = "mlirc.view"(%arg0) {{.*}} -> tensor<8x24xf32>
// CHECK-DAG:     %[[W:.*]] = "mlirc.view"(%arg1) {{.*}} -> tensor<5x24xf32>
// CHECK-DAG:     %[[T:.*]] = "mlirc.view"(%[[W]]) {{.*}} -> tensor<24x5xf32, {stride = "1, 24"}>
// CHECK:         %[[M:.*]] = "mlirc.matmul"(%[[X]], %[[T]])
// CHECK:         "mlirc.add"
// CHECK-NOT:     aten.convolution
func.func @whole(%x: tensor<8x6x2x2xf32>, %w: tensor<5x6x2x2xf32>, %b: tensor<5xf32>) -> tensor<8x5x1x1xf32> {
  %0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [3, 3], [0, 0], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<8x6x2x2xf32>, tensor<5x6x2x2xf32>, tensor<5xf32>) -> tensor<8x5x1x1xf32>
  return %0 : tensor<8x5x1x1xf32>
}

// All its gradients: two matmuls and a sum.
// CHECK-LABEL: func.func @gradients
// CHECK-COUNT-2: "mlirc.matmul"
// CHECK:         "mlirc.sum"
// CHECK-NOT:     aten.convolution
func.func @gradients(%dy: tensor<8x5x1x1xf32>, %x: tensor<8x6x2x2xf32>, %w: tensor<5x6x2x2xf32>) -> (tensor<8x6x2x2xf32>, tensor<5x6x2x2xf32>, tensor<5xf32>) {
  %0:3 = "mlircx.aten"(%dy, %x, %w) {aliases = "-1, -1, -1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [5], [1, 1], [0, 0], [1, 1], false, [0, 0], 1, [true, true, true]]", op = "aten.convolution_backward.default"} : (tensor<8x5x1x1xf32>, tensor<8x6x2x2xf32>, tensor<5x6x2x2xf32>) -> (tensor<8x6x2x2xf32>, tensor<5x6x2x2xf32>, tensor<5xf32>)
  return %0#0, %0#1, %0#2 : tensor<8x6x2x2xf32>, tensor<5x6x2x2xf32>, tensor<5xf32>
}

// A transposed one of images of one pixel.
// CHECK-LABEL: func.func @transposed
// CHECK:         "mlirc.matmul"{{.*}} -> tensor<8x40xf32>
// CHECK-NOT:     aten.convolution
func.func @transposed(%x: tensor<8x6x1x1xf32>, %w: tensor<6x10x2x2xf32>) -> tensor<8x10x2x2xf32> {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [2, 2], [0, 0], [1, 1], true, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<8x6x1x1xf32>, tensor<6x10x2x2xf32>) -> tensor<8x10x2x2xf32>
  return %0 : tensor<8x10x2x2xf32>
}

// Padding, more than one window, groups, dilation: other convolutions.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-4: aten.convolution.default
// CHECK-NOT:     "mlirc.matmul"
func.func @others(%x: tensor<8x6x3x3xf32>, %w: tensor<5x6x3x3xf32>, %v: tensor<5x6x2x3xf32>, %g: tensor<6x1x3x3xf32>, %d: tensor<5x6x2x2xf32>) -> (tensor<8x5x3x3xf32>, tensor<8x5x2x1xf32>, tensor<8x6x1x1xf32>, tensor<8x5x1x1xf32>) {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<8x6x3x3xf32>, tensor<5x6x3x3xf32>) -> tensor<8x5x3x3xf32>
  %1 = "mlircx.aten"(%x, %v) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<8x6x3x3xf32>, tensor<5x6x2x3xf32>) -> tensor<8x5x2x1xf32>
  %2 = "mlircx.aten"(%x, %g) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 6]", op = "aten.convolution.default"} : (tensor<8x6x3x3xf32>, tensor<6x1x3x3xf32>) -> tensor<8x6x1x1xf32>
  %3 = "mlircx.aten"(%x, %d) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [0, 0], [2, 2], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<8x6x3x3xf32>, tensor<5x6x2x2xf32>) -> tensor<8x5x1x1xf32>
  return %0, %1, %2, %3 : tensor<8x5x3x3xf32>, tensor<8x5x2x1xf32>, tensor<8x6x1x1xf32>, tensor<8x5x1x1xf32>
}

// Few windows and large weights: im2col, and the gradient of the image is col2im.
// CHECK-LABEL: func.func @few(
// CHECK:         "mlirc.pad"
// CHECK:         "mlirc.reindex"{{.*}} -> tensor<2x2x2x128x3x3xf32>
// CHECK:         "mlirc.matmul"{{.*}} -> tensor<8x64xf32>
// CHECK-NOT:     aten.convolution
func.func @few(%x: tensor<2x128x4x4xf32>, %w: tensor<64x128x3x3xf32>) -> tensor<2x64x2x2xf32> {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [2, 2], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x128x4x4xf32>, tensor<64x128x3x3xf32>) -> tensor<2x64x2x2xf32>
  return %0 : tensor<2x64x2x2xf32>
}

// CHECK-LABEL: func.func @backward_of_few
// CHECK-COUNT-2: "mlirc.matmul"
// CHECK-NOT:     aten.convolution
// CHECK:         return
func.func @backward_of_few(%dy: tensor<2x64x2x2xf32>, %x: tensor<2x128x4x4xf32>, %w: tensor<64x128x3x3xf32>) -> (tensor<2x128x4x4xf32>, tensor<64x128x3x3xf32>) {
  %0:2 = "mlircx.aten"(%dy, %x, %w) {aliases = "-1, -1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, null, [2, 2], [1, 1], [1, 1], false, [0, 0], 1, [true, true, false]]", op = "aten.convolution_backward.default"} : (tensor<2x64x2x2xf32>, tensor<2x128x4x4xf32>, tensor<64x128x3x3xf32>) -> (tensor<2x128x4x4xf32>, tensor<64x128x3x3xf32>)
  return %0#0, %0#1 : tensor<2x128x4x4xf32>, tensor<64x128x3x3xf32>
}

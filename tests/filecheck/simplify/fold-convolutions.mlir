// RUN: mlirc-opt %s -p "fold-convolutions"

// A batch norm by parameters and an addition go into the convolution; its result is copied back to row-major. A relu stays: oneDNN's gives 0 for NaN.
// CHECK-LABEL: func.func @block
// CHECK: %[[SCALE:.+]] = "mlirc.mul"(%{{.+}}, %arg2)
// CHECK: %[[B:.+]] = "mlirc.add"(%{{.+}}, %arg3)
// CHECK: %[[W:.+]] = "mlirc.mul"(%arg1, %{{.+}})
// CHECK: %[[X:.+]] = "mlirc.copy"(%arg0) {{.*}} -> tensor<2x8x230x230xf32, {stride = "423200, 1, 1840, 8"}>
// CHECK: %[[P:.+]] = "mlircx.aten"(%[[W]]) {{.*}}op = "mkldnn._reorder_convolution_weight.default"{{.*}} -> tensor<8x8x3x3xf32, {layout = "mkldnn"}>
// CHECK: %[[Y:.+]] = "mlircx.aten"(%[[X]], %{{.+}}, %[[P]], %[[B]]) {{.*}}\22add\22, null, null{{.*}}op = "mkldnn._convolution_pointwise.binary"
// CHECK: %[[Z:.+]] = "mlirc.relu"(%[[Y]])
// CHECK: %[[R:.+]] = "mlirc.copy"(%[[Z]]) {{.*}} -> tensor<2x8x230x230xf32>
// CHECK: return %[[R]]
func.func @block(
    %x: tensor<2x8x230x230xf32>, %w: tensor<8x8x3x3xf32> {mlirc.parameter}, %gamma: tensor<8xf32> {mlirc.parameter},
    %beta: tensor<8xf32> {mlirc.parameter}, %mean: tensor<8xf32> {mlirc.parameter}, %variance: tensor<8xf32> {mlirc.parameter}
) -> tensor<2x8x230x230xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x8x230x230xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x230x230xf32>
  %1 = "mlirc.batch_norm_inference"(%0, %gamma, %beta, %mean, %variance) {eps = 1.0e-05 : f64} : (tensor<2x8x230x230xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8x230x230xf32>
  %2 = "mlirc.add"(%1, %x) : (tensor<2x8x230x230xf32>, tensor<2x8x230x230xf32>) -> tensor<2x8x230x230xf32>
  %3 = "mlirc.relu"(%2) : (tensor<2x8x230x230xf32>) -> tensor<2x8x230x230xf32>
  return %3 : tensor<2x8x230x230xf32>
}

// A weight that is no parameter may change with every call.
// CHECK-LABEL: func.func @weights_as_arguments
// CHECK: aten.convolution.default
// CHECK-NOT: mkldnn
func.func @weights_as_arguments(%x: tensor<2x8x5x5xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<2x8x5x5xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x8x5x5xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x5x5xf32>
  return %0 : tensor<2x8x5x5xf32>
}

// A depthwise convolution becomes a kernel, with its norm in a copy of the weights that has channels innermost.
// CHECK-LABEL: func.func @depthwise
// CHECK: %[[W:.+]] = "mlirc.copy"(%{{.+}}) {{.*}} -> tensor<8x1x3x3xf32, {stride = "1, 72, 24, 8"}>
// CHECK: "mlirc.fused_convolution"(%{{.+}}, %[[W]]) {dilation = "1, 1", padding = "1, 1", stride = "1, 1"}
// CHECK: "mlirc.add"
func.func @depthwise(
    %x: tensor<2x8x9x9xf32>, %w: tensor<8x1x3x3xf32> {mlirc.parameter}, %gamma: tensor<8xf32> {mlirc.parameter},
    %beta: tensor<8xf32> {mlirc.parameter}, %mean: tensor<8xf32> {mlirc.parameter}, %variance: tensor<8xf32> {mlirc.parameter}
) -> tensor<2x8x9x9xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 8]", op = "aten.convolution.default"} : (tensor<2x8x9x9xf32>, tensor<8x1x3x3xf32>) -> tensor<2x8x9x9xf32>
  %1 = "mlirc.batch_norm_inference"(%0, %gamma, %beta, %mean, %variance) {eps = 1.0e-05 : f64} : (tensor<2x8x9x9xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8x9x9xf32>
  return %1 : tensor<2x8x9x9xf32>
}

// A convolution of one pixel is a matmul of pixels; its weight is read in place.
// CHECK-LABEL: func.func @pixel
// CHECK: %[[X:.+]] = "mlirc.view"(%{{.+}}) {{.*}} -> tensor<162x8xf32>
// CHECK: %[[W:.+]] = "mlirc.view"(%arg1) {{.*}} -> tensor<8x16xf32, {stride = "1, 8"}>
// CHECK: %[[Y:.+]] = "mlirc.matmul"(%[[X]], %[[W]])
// CHECK: "mlirc.add"(%[[Y]], %arg2)
func.func @pixel(%x: tensor<2x8x9x9xf32>, %w: tensor<16x8x1x1xf32> {mlirc.parameter}, %b: tensor<16xf32> {mlirc.parameter}) -> tensor<2x16x9x9xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]", op = "aten.convolution.default"} : (tensor<2x8x9x9xf32>, tensor<16x8x1x1xf32>, tensor<16xf32>) -> tensor<2x16x9x9xf32>
  return %0 : tensor<2x16x9x9xf32>
}

// What is joined, and a norm in front of a convolution, keep the order of the convolutions around them. ATen joins more than four.
// CHECK-LABEL: func.func @joined
// CHECK: %[[A:.+]] = "mlirc.fused_convolution"
// CHECK: %[[J:.+]] = "mlirc.cat2"(%[[A]], %[[A]]) {{.*}} -> tensor<2x16x9x9xf32, {stride = "1296, 1, 144, 16"}>
// CHECK: %[[N:.+]] = "mlirc.batch_norm_inference"(%[[J]], {{.*}} -> tensor<2x16x9x9xf32, {stride = "1296, 1, 144, 16"}>
// CHECK: %[[B:.+]] = "mlirc.fused_convolution"(%[[N]],
// CHECK: %[[C:.+]] = "mlircx.aten"(%[[B]], %[[B]], %[[B]], %[[B]], %[[B]]) {{.*}}aten.cat.default{{.*}} -> tensor<2x80x9x9xf32, {stride = "6480, 1, 720, 80"}>
// CHECK: "mlirc.relu"(%[[C]])
func.func @joined(
    %x: tensor<2x8x9x9xf32>, %w: tensor<8x1x3x3xf32> {mlirc.parameter}, %v: tensor<16x1x3x3xf32> {mlirc.parameter},
    %gamma: tensor<16xf32> {mlirc.parameter}, %beta: tensor<16xf32> {mlirc.parameter}, %mean: tensor<16xf32> {mlirc.parameter},
    %variance: tensor<16xf32> {mlirc.parameter}
) -> tensor<2x80x9x9xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlircx.aten"(%x, %w) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 8]", op = "aten.convolution.default"} : (tensor<2x8x9x9xf32>, tensor<8x1x3x3xf32>) -> tensor<2x8x9x9xf32>
  %1 = "mlirc.cat2"(%0, %0) {dim = 1 : i64} : (tensor<2x8x9x9xf32>, tensor<2x8x9x9xf32>) -> tensor<2x16x9x9xf32>
  %2 = "mlirc.batch_norm_inference"(%1, %gamma, %beta, %mean, %variance) {eps = 1.0e-05 : f64} : (tensor<2x16x9x9xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<2x16x9x9xf32>
  %3 = "mlircx.aten"(%2, %v) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 16]", op = "aten.convolution.default"} : (tensor<2x16x9x9xf32>, tensor<16x1x3x3xf32>) -> tensor<2x16x9x9xf32>
  %4 = "mlircx.aten"(%3, %3, %3, %3, %3) {aliases = "-1", args = "[[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, {\22$\22: 3}, {\22$\22: 4}], 1]", op = "aten.cat.default"} : (tensor<2x16x9x9xf32>, tensor<2x16x9x9xf32>, tensor<2x16x9x9xf32>, tensor<2x16x9x9xf32>, tensor<2x16x9x9xf32>) -> tensor<2x80x9x9xf32>
  %5 = "mlirc.relu"(%4) : (tensor<2x80x9x9xf32>) -> tensor<2x80x9x9xf32>
  return %5 : tensor<2x80x9x9xf32>
}

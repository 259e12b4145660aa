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

// RUN: mlirc-opt %s -p "move-to-gpu"

// Every type says the GPU, and so do the arguments of a call.
// CHECK-LABEL: func.func @graph
// CHECK-SAME:    (%arg0: tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0"}>
// CHECK:         "mlirc.relu"(%arg0) : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0"}>
// CHECK:         "mlircx.aten"
// CHECK-SAME:    cuda:0
func.func @graph(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "mlirc.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "mlircx.aten"(%0) {op = "aten.sin.default", args = "[{\22$\22: 0}]", aliases = "-1"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

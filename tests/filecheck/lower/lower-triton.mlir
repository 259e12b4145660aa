// RUN: mlirc-opt %s -p "to-kernels,plan-memory,lower-triton"
func.func @graph(%x: tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %1 = "mlirc.neg"(%0) : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  return %1 : tensor<8xf32, {device = "cuda:0"}>
}

// CHECK: "mlircx.run"
// CHECK: kernel = "kernel_0_exp"
// CHECK: "mlircx.run"
// CHECK: kernel = "kernel_1_neg"
// CHECK: "mlirc.triton"

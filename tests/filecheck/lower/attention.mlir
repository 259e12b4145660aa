// RUN: mlirc-opt %s --target cpu-avx512 -p "select-attention,plan-memory,lower-kernels"

// Two calls of the same sizes share a function; it takes the words that every kernel does.
// CHECK-LABEL: func.func @graph
// CHECK:         %[[O:.*]] = "mlirc.slot"
// CHECK:         "mlircx.call"(%arg0, %arg0, %arg0, %[[O]], %{{.*}}) {callee = "attention", causal = "none", inputs = 3 : i64, kernel = "kernel_0", scale = {{.*}}, symbols = "s0"}
// CHECK:         "mlircx.call"(%[[O]], %arg0, %arg0, %{{.*}}) {callee = "attention", causal = "none", inputs = 3 : i64, kernel = "kernel_0"
// CHECK:         func.func @kernel_0(%{{.*}}: !llvm.ptr) -> i64
// CHECK-NOT:     func.func @kernel_1
// CHECK:       // COVERED: generate attention, taken
func.func @graph(%q: tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>) -> tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}> {
  %0:2 = "mlirc.attention"(%q, %q, %q) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>) -> (tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?xf32, {size = "2, 4, s0"}>)
  %1:2 = "mlirc.attention"(%0#0, %q, %q) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>) -> (tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?xf32, {size = "2, 4, s0"}>)
  return %1#0 : tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>
}

// RUN: mlirc-opt %s -p "schedule-collectives"

// OPERANDS READY, FIRST READER: the collective starts before the kernel that does not need it, and is waited for behind both.
// CHECK-LABEL: func.func @overlaps
// CHECK:         %[[S:.*]] = "mlircx.aten_effect"(%arg0) {{.*}}all_reduce
// CHECK-NEXT:    %[[M:.*]] = "mlirc.matmul"(%arg1, %arg1)
// CHECK-NEXT:    %[[N:.*]] = "mlirc.matmul"(%[[M]], %arg1)
// CHECK-NEXT:    %[[W:.*]] = "mlircx.aten"(%[[S]], %arg0) {{.*}}wait_tensor
// CHECK-NEXT:    "mlirc.matmul"(%[[W]], %[[N]])
func.func @overlaps(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %1 = "mlirc.matmul"(%y, %y) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "mlircx.aten_effect"(%x) {op = "_c10d_functional.all_reduce.default", args = "[{\22$\22: 0}, \22sum\22, \220\22]", aliases = "-1"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "mlircx.aten"(%2, %x) {op = "_c10d_functional.wait_tensor.default", args = "[{\22$\22: 0}]", aliases = "0"} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = "mlirc.matmul"(%1, %y) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %5 = "mlirc.matmul"(%3, %4) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %5 : tensor<8x8xf32>
}

// Nothing passes what may write memory.
// CHECK-LABEL: func.func @stays
// CHECK:         "mlircx.aten_effect"
// CHECK-NEXT:    %[[S:.*]] = "mlircx.aten_effect"(%arg0) {{.*}}all_reduce
// CHECK-NEXT:    %[[W:.*]] = "mlircx.aten"(%[[S]], %arg0) {{.*}}wait_tensor
// CHECK-NEXT:    "mlircx.aten_effect"
func.func @stays(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = "mlircx.aten_effect"(%x) {op = "aten.sin_.default", args = "[{\22$\22: 0}]", aliases = "0"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "mlircx.aten_effect"(%x) {op = "_c10d_functional.all_reduce.default", args = "[{\22$\22: 0}, \22sum\22, \220\22]", aliases = "-1"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "mlircx.aten"(%2, %x) {op = "_c10d_functional.wait_tensor.default", args = "[{\22$\22: 0}]", aliases = "0"} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %f = "mlircx.aten_effect"(%x) {op = "aten.sin_.default", args = "[{\22$\22: 0}]", aliases = "0"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = "mlirc.matmul"(%3, %3) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}

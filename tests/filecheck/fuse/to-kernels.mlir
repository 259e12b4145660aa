// RUN: mlirc-opt %s -p to-kernels

// An elementwise op; its number becomes a scalar of the kernel.
// CHECK-LABEL: func.func @elementwise
// CHECK-NEXT:    %[[K:.*]] = "mlircx.kernel"(%arg0) ({
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<4x8xf32>):
// CHECK-NEXT:      %[[X:.*]] = "mlirc.read"(%[[A]]) {map = "d0, d1", masked = false}
// CHECK-NEXT:      %[[C:.*]] = "mlirc.constant"() {value = "0x1.0000000000000p+1"} : () -> f32
// CHECK-NEXT:      %[[M:.*]] = "mlirc.mul"(%[[X]], %[[C]]) : (f32, f32) -> f32
// CHECK-NEXT:      "mlircx.yield"(%[[M]]) {maps = ["d0, d1"]}
// CHECK-NEXT:    }) {inner = "", label = "mul", parallel = "4, 8"}
// CHECK-NEXT:    return %[[K]]
func.func @elementwise(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c = "mlirc.constant"() {value = "0x1.0000000000000p+1"} : () -> tensor<f32>
  %0 = "mlirc.mul"(%x, %c) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// A reduction: kept dimensions are parallel, folded ones inner.
// CHECK-LABEL: func.func @reduction
// CHECK:           "mlirc.read"{{.*}}map = "d1, d0"
// CHECK-NEXT:      "mlirc.reduce"{{.*}}kind = "sum"
// CHECK-NEXT:      "mlircx.yield"{{.*}}maps = ["0, d0"]
// CHECK-NEXT:    inner = "4", label = "sum", parallel = "8"
func.func @reduction(%x: tensor<4x8xf32>) -> tensor<1x8xf32> {
  %0 = "mlirc.sum"(%x) {dims = "0", keepdim = true} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  return %0 : tensor<1x8xf32>
}

// A number that is returned is a kernel of one point; a size as a plain integer stays.
// CHECK-LABEL: func.func @numbers
// CHECK:         "mlircx.kernel"()
// CHECK:           "mlirc.constant"() {value = "7"} : () -> i64
// CHECK:         }) {inner = "", label = "constant", parallel = ""} : () -> tensor<i64>
// CHECK-NEXT:    "mlirc.size"() {expr = "2*s0"} : () -> i64
// CHECK-NEXT:    return
func.func @numbers(%x: tensor<?xf32, {size = "s0"}>) -> (tensor<i64>, i64) {
  %0 = "mlirc.constant"() {value = "7"} : () -> tensor<i64>
  %1 = "mlirc.size"() {expr = "2*s0"} : () -> i64
  return %0, %1 : tensor<i64>, i64
}

// An iota is an expression of the kernel that uses it, through a view too.
// CHECK-LABEL: func.func @iota
// CHECK-NEXT:    "mlircx.kernel"(%arg0)
// CHECK:           "mlirc.size"() {expr = "d0 + 1"} : () -> i64
// CHECK:         label = "add"
// CHECK-NEXT:    return
func.func @iota(%x: tensor<4x8xi64>) -> tensor<4x8xi64> {
  %0 = "mlirc.iota"() {expr = "d0 + 1"} : () -> tensor<4xi64>
  %1 = "mlirc.view"(%0) {map = "d0", offset = "0"} : (tensor<4xi64>) -> tensor<4x1xi64>
  %2 = "mlirc.add"(%x, %1) : (tensor<4x8xi64>, tensor<4x1xi64>) -> tensor<4x8xi64>
  return %2 : tensor<4x8xi64>
}

// Products and ATen calls stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-NOT:     "mlircx.kernel"
// CHECK:         "mlirc.matmul"
// CHECK-NEXT:    "mlircx.aten"
// CHECK-NEXT:    return
func.func @others(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %0 = "mlirc.matmul"(%x, %y) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = "mlircx.aten"(%0) {op = "aten.tril.default", args = "[{\22$\22: 0}]", aliases = "-1"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

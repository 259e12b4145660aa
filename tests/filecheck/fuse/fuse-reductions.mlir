// RUN: mlirc-opt %s -p "decompose,to-kernels,fuse-elementwise,fuse-reductions,eliminate-dead"

// A softmax is one kernel, labelled by its name; so is a layer norm.
// CHECK-LABEL: func.func @softmax
// CHECK-NEXT:    "mlircx.kernel"(%arg0)
// CHECK:           %[[X:.*]] = "mlirc.read"
// CHECK-NEXT:      %[[M:.*]] = "mlirc.reduce"(%[[X]]) {kind = "max"}
// CHECK-NEXT:      %[[D:.*]] = "mlirc.sub"(%[[X]], %[[M]])
// CHECK-NEXT:      %[[E:.*]] = "mlirc.exp"(%[[D]])
// CHECK-NEXT:      %[[S:.*]] = "mlirc.reduce"(%[[E]]) {kind = "sum"}
// CHECK-NEXT:      "mlirc.div"(%[[E]], %[[S]])
// CHECK:         inner = "16", label = "softmax", parallel = "4"
// CHECK-NEXT:    return
func.func @softmax(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = "mlirc.softmax"(%x) {dim = 1 : i64} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// SAME ROWS: dimensions may be put together; the rows [2, 3] are the consumer's 6.
// CHECK-LABEL: func.func @flattened_rows
// CHECK-NEXT:    "mlircx.kernel"(%arg1, %arg0)
// CHECK:           "mlirc.read"{{.*}}map = "3*d0 + d1, d2"
// CHECK:         inner = "8", label = "sum_mul", parallel = "2, 3"
// CHECK-NEXT:    return
func.func @flattened_rows(%x: tensor<2x3x8xf32>, %y: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %0 = "mlirc.sum"(%x) {dims = "2", keepdim = false} : (tensor<2x3x8xf32>) -> tensor<2x3xf32>
  %1 = "mlirc.view"(%0) {map = "d0//3, d0 % 3", offset = "0"} : (tensor<2x3xf32>) -> tensor<6x1xf32>
  %2 = "mlirc.mul"(%y, %1) : (tensor<6x8xf32>, tensor<6x1xf32>) -> tensor<6x8xf32>
  return %2 : tensor<6x8xf32>
}

// SAME ROWS: a sum over rows and one over columns are two kernels.
// CHECK-LABEL: func.func @rows_and_columns
// CHECK:         label = "sum"
// CHECK:         label = "mul_sum"
// CHECK-NEXT:    return
func.func @rows_and_columns(%x: tensor<4x8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.sum"(%x) {dims = "1", keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %1 = "mlirc.mul"(%x, %0) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %2 = "mlirc.sum"(%1) {dims = "0", keepdim = false} : (tensor<4x8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// SAME ROWS: every row's sum, used in every other row, is known only when all are.
// CHECK-LABEL: func.func @transposed
// CHECK:         label = "sum"
// CHECK:         label = "mul"
func.func @transposed(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "mlirc.sum"(%x) {dims = "1", keepdim = false} : (tensor<8x8xf32>) -> tensor<8xf32>
  %1 = "mlirc.view"(%0) {map = "7 - d0", offset = "7"} : (tensor<8xf32>) -> tensor<8xf32, {stride = "-1"}>
  %2 = "mlirc.mul"(%x, %1) : (tensor<8x8xf32>, tensor<8xf32, {stride = "-1"}>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// What is done with a row's sum is done once a row: an expensive op too.
// CHECK-LABEL: func.func @outer_work
// CHECK:           %[[S:.*]] = "mlirc.reduce"
// CHECK-NEXT:      %[[E:.*]] = "mlirc.exp"(%[[S]])
// CHECK:           "mlirc.mul"({{.*}}, %[[E]])
// CHECK:         inner = "8", label = "sum_exp_mul", parallel = "4"
// CHECK-NEXT:    return
func.func @outer_work(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "mlirc.sum"(%x) {dims = "1", keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %1 = "mlirc.exp"(%0) : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %2 = "mlirc.mul"(%x, %1) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// IN ORDER: argmax counts [4, 8] row-major; the consumer goes through them the other way round.
// CHECK-LABEL: func.func @in_order
// CHECK:         label = "amax"
// CHECK:         label = "sub_argmax"
func.func @in_order(%x: tensor<2x4x8xf32>) -> tensor<2xi64> {
  %0 = "mlirc.amax"(%x) {dims = "1, 2", keepdim = true} : (tensor<2x4x8xf32>) -> tensor<2x1x1xf32>
  %1 = "mlirc.view"(%x) {map = "d0, d2, d1", offset = "0"} : (tensor<2x4x8xf32>) -> tensor<2x8x4xf32, {stride = "32, 1, 8"}>
  %2 = "mlirc.sub"(%1, %0) : (tensor<2x8x4xf32, {stride = "32, 1, 8"}>, tensor<2x1x1xf32>) -> tensor<2x8x4xf32>
  %3 = "mlirc.argmax"(%2) {dims = "1, 2", keepdim = false} : (tensor<2x8x4xf32>) -> tensor<2xi64>
  return %3 : tensor<2xi64>
}

// Symbolic sizes are no different.
// CHECK-LABEL: func.func @symbolic
// CHECK:         inner = "s1", label = "softmax", parallel = "s0"
// CHECK-NEXT:    return
func.func @symbolic(%x: tensor<?x?xf32, {size = "s0, s1"}>) -> tensor<?x?xf32, {size = "s0, s1"}> {
  %0 = "mlirc.softmax"(%x) {dim = 1 : i64} : (tensor<?x?xf32, {size = "s0, s1"}>) -> tensor<?x?xf32, {size = "s0, s1"}>
  return %0 : tensor<?x?xf32, {size = "s0, s1"}>
}

// CHECK:      // SAME ROWS: fuse sum -> mul, taken
// CHECK:      // SAME ROWS: fuse sum -> mul_sum, refused
// CHECK:      // SAME ROWS: fuse sum -> mul, refused
// CHECK:      // IN ORDER: fuse amax -> sub_argmax, refused

// RUN: mlirc-opt %s -p "to-kernels,fuse-elementwise,fuse-reductions,fuse-horizontally"

// SAME READS: x is read once.
// CHECK-LABEL: func.func @siblings
// CHECK-NEXT:    %[[K:.*]]:2 = "mlircx.kernel"(%arg0)
// CHECK:           %[[X:.*]] = "mlirc.read"
// CHECK-NEXT:      %[[E:.*]] = "mlirc.exp"(%[[X]])
// CHECK-NEXT:      %[[N:.*]] = "mlirc.neg"(%[[X]])
// CHECK-NEXT:      "mlircx.yield"(%[[E]], %[[N]])
// CHECK:         return %[[K]]#0, %[[K]]#1
func.func @siblings(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.neg"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// A sum over rows and a negation of the same rows; the negation is of a transposed view.
// CHECK-LABEL: func.func @fold_and_map
// CHECK-NEXT:    "mlircx.kernel"(%arg0)
// CHECK:           %[[X:.*]] = "mlirc.read"{{.*}}map = "d0, d1"
// CHECK-NEXT:      %[[S:.*]] = "mlirc.reduce"(%[[X]])
// CHECK-NEXT:      %[[N:.*]] = "mlirc.neg"(%[[X]])
// CHECK-NEXT:      "mlircx.yield"(%[[S]], %[[N]]) {maps = ["d0", "d1, d0"]}
// CHECK:         inner = "8", label = "{{.*}}", parallel = "4"
// CHECK-NEXT:    return
func.func @fold_and_map(%x: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<4xf32>) {
  %0 = "mlirc.view"(%x) {map = "d1, d0", offset = "0"} : (tensor<4x8xf32>) -> tensor<8x4xf32, {stride = "1, 8"}>
  %1 = "mlirc.neg"(%0) : (tensor<8x4xf32, {stride = "1, 8"}>) -> tensor<8x4xf32>
  %2 = "mlirc.sum"(%x) {dims = "1", keepdim = false} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<8x4xf32>, tensor<4xf32>
}

// SAME READS: sums over rows and over columns go through x differently.
// CHECK-LABEL: func.func @different_folds
// CHECK:         label = "sum"
// CHECK:         label = "sum"
func.func @different_folds(%x: tensor<4x8xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = "mlirc.sum"(%x) {dims = "0", keepdim = false} : (tensor<4x8xf32>) -> tensor<8xf32>
  %1 = "mlirc.sum"(%x) {dims = "1", keepdim = false} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<8xf32>, tensor<4xf32>
}

// WORTH IT: a row shared by two large kernels is in the cache anyway.
// CHECK-LABEL: func.func @small_share
// CHECK:         label = "add"
// CHECK:         label = "mul"
func.func @small_share(%x: tensor<64x8xf32>, %y: tensor<64x8xf32>, %row: tensor<8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>) {
  %0 = "mlirc.add"(%x, %row) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  %1 = "mlirc.mul"(%y, %row) : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  return %0, %1 : tensor<64x8xf32>, tensor<64x8xf32>
}

// NO CYCLE: the sort lies between.
// CHECK-LABEL: func.func @between
// CHECK:         label = "exp"
// CHECK:         "mlircx.aten"
// CHECK:         label = "add"
func.func @between(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1:2 = "mlircx.aten"(%0) {op = "aten.sort.default", args = "[{\22$\22: 0}]", aliases = "-1, -1"} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi64>)
  %2 = "mlirc.add"(%x, %1#0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// CHECK:      // SAME READS: fuse exp -> neg, taken
// CHECK:      // SAME READS: fuse sum -> sum, refused
// CHECK:      // WORTH IT: fuse add -> mul, refused
// CHECK:      // NO CYCLE: fuse exp -> add, refused

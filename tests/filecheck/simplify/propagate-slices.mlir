// RUN: mlirc-opt %s -p "propagate-slices,eliminate-views,canonicalize"

// One token of 17: the product and the activation have two rows.
// CHECK-LABEL: func.func @one_token
// CHECK:         %[[X:.*]] = "mlirc.view"(%arg1) {map = "17*d0, d1", offset = "0"} {{.*}} -> tensor<2x8xf32, {stride = "136, 1"}>
// CHECK-NEXT:    %[[P:.*]] = "mlirc.addmm"(%arg0, %[[X]], %arg2) {{.*}} -> tensor<2x4xf32>
// CHECK:         %[[G:.*]] = "mlirc.gelu"
// CHECK-SAME:      -> tensor<2x1x4xf32>
// CHECK-NOT:     x17x
func.func @one_token(%b: tensor<4xf32>, %x: tensor<34x8xf32>, %w: tensor<8x4xf32>, %y: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %0 = "mlirc.addmm"(%b, %x, %w) : (tensor<4xf32>, tensor<34x8xf32>, tensor<8x4xf32>) -> tensor<34x4xf32>
  %1 = "mlirc.view"(%0) {map = "17*d0 + d1, d2", offset = "0"} : (tensor<34x4xf32>) -> tensor<2x17x4xf32>
  %2 = "mlirc.gelu"(%1) : (tensor<2x17x4xf32>) -> tensor<2x17x4xf32>
  %3 = "mlirc.view"(%2) {map = "d0, 0, d1", offset = "0"} : (tensor<2x17x4xf32>) -> tensor<2x4xf32, {stride = "68, 1"}>
  %4 = "mlirc.matmul"(%3, %y) : (tensor<2x4xf32, {stride = "68, 1"}>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return %4 : tensor<2x4xf32>
}

// Columns of a product are columns of its second factor.
// CHECK-LABEL: func.func @columns
// CHECK:         %[[W:.*]] = "mlirc.view"(%arg1) {map = "d0, d1 + 2", offset = "2"} {{.*}} -> tensor<8x3xf32, {stride = "16, 1"}>
// CHECK-NEXT:    "mlirc.matmul"(%arg0, %[[W]]) {{.*}} -> tensor<5x3xf32>
func.func @columns(%x: tensor<5x8xf32>, %w: tensor<8x16xf32>) -> tensor<5x3xf32> {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<5x8xf32>, tensor<8x16xf32>) -> tensor<5x16xf32>
  %1 = "mlirc.view"(%0) {map = "d0, d1 + 2", offset = "2"} : (tensor<5x16xf32>) -> tensor<5x3xf32, {stride = "16, 1"}>
  %2 = "mlirc.exp"(%1) : (tensor<5x3xf32, {stride = "16, 1"}>) -> tensor<5x3xf32>
  return %2 : tensor<5x3xf32>
}

// The last query sees all keys: there is no diagonal left.
// CHECK-LABEL: func.func @last_query
// CHECK:         %[[Q:.*]] = "mlirc.view"(%arg0) {{.*}} -> tensor<1x2x1x8xf32
// CHECK-NEXT:    "mlirc.attention"(%[[Q]], %arg1, %arg1) {causal = "none"
func.func @last_query(%q: tensor<1x2x6x8xf32>, %k: tensor<1x2x6x8xf32>) -> tensor<1x2x8xf32> {
  %0:2 = "mlirc.attention"(%q, %k, %k) {causal = "upper_left", scale = 1.0 : f64} : (tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>) -> (tensor<1x2x6x8xf32>, tensor<1x2x6xf32>)
  %1 = "mlirc.view"(%0#0) {map = "d0, d1, 5, d2", offset = "40"} : (tensor<1x2x6x8xf32>) -> tensor<1x2x8xf32, {stride = "96, 48, 1"}>
  %2 = "mlirc.exp"(%1) : (tensor<1x2x8xf32, {stride = "96, 48, 1"}>) -> tensor<1x2x8xf32>
  return %2 : tensor<1x2x8xf32>
}

// A query in the middle does not see them all; a sum over the rows reads every row; two rows that differ are two parts; and a
// result has the strides that are promised.
// CHECK-LABEL: func.func @whole
// CHECK:         "mlirc.attention"{{.*}}causal = "upper_left"
// CHECK:         "mlirc.sin"{{.*}} -> tensor<6x8xf32>
// CHECK:         "mlirc.cos"{{.*}} -> tensor<6x8xf32>
// CHECK:         "mlirc.tanh"{{.*}} -> tensor<6x8xf32>
func.func @whole(%q: tensor<1x2x6x8xf32>, %x: tensor<6x8xf32>) -> (tensor<1x2x8xf32>, tensor<1x8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0:2 = "mlirc.attention"(%q, %q, %q) {causal = "upper_left", scale = 1.0 : f64} : (tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>) -> (tensor<1x2x6x8xf32>, tensor<1x2x6xf32>)
  %1 = "mlirc.view"(%0#0) {map = "d0, d1, 3, d2", offset = "24"} : (tensor<1x2x6x8xf32>) -> tensor<1x2x8xf32, {stride = "96, 48, 1"}>
  %2 = "mlirc.exp"(%1) : (tensor<1x2x8xf32, {stride = "96, 48, 1"}>) -> tensor<1x2x8xf32>
  %3 = "mlirc.sin"(%x) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %4 = "mlirc.sum"(%3) {dims = "0", keepdim = true} : (tensor<6x8xf32>) -> tensor<1x8xf32>
  %5 = "mlirc.cos"(%x) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %6 = "mlirc.view"(%5) {map = "0, d0", offset = "0"} : (tensor<6x8xf32>) -> tensor<8xf32>
  %7 = "mlirc.view"(%5) {map = "1, d0", offset = "8"} : (tensor<6x8xf32>) -> tensor<8xf32>
  %8 = "mlirc.add"(%6, %7) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %9 = "mlirc.tanh"(%x) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %10 = "mlirc.view"(%9) {map = "5, d0", offset = "40"} : (tensor<6x8xf32>) -> tensor<8xf32>
  return %2, %4, %8, %10 : tensor<1x2x8xf32>, tensor<1x8xf32>, tensor<8xf32>, tensor<8xf32>
}

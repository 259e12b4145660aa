// RUN: mlirc-opt %s -p simplify-attention,canonicalize

// CHECK-LABEL: func.func @always_true
// CHECK-NEXT:    %[[A:.*]]:2 = "mlirc.attention"(%arg0, %arg1, %arg2) {causal = "none"
// CHECK-NEXT:    return %[[A]]#0
func.func @always_true(%q: tensor<2x4x8x16xf32>, %k: tensor<2x4x8x16xf32>, %v: tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32> {
  %i = "mlirc.iota"() {expr = "d0"} : () -> tensor<8xi64>
  %zero = "mlirc.constant"() {value = "0"} : () -> tensor<i64>
  %ge = "mlirc.ge"(%i, %zero) : (tensor<8xi64>, tensor<i64>) -> tensor<8xi1>
  %m = "mlirc.view"(%ge) {map = "d2", offset = "0"} : (tensor<8xi1>) -> tensor<2x1x8x8xi1, {stride = "0, 0, 1, 0"}>
  %0:2 = "mlirc.attention"(%q, %k, %v, %m) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x1x8x8xi1, {stride = "0, 0, 1, 0"}>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  return %0#0 : tensor<2x4x8x16xf32>
}

// k <= q, of numbers to add
// CHECK-LABEL: func.func @causal
// CHECK-NEXT:    "mlirc.attention"(%arg0, %arg1, %arg1) {causal = "upper_left"
func.func @causal(%q: tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, %k: tensor<2x4x?x16xf32, {size = "2, 4, s1, 16"}>) -> tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}> {
  %i = "mlirc.iota"() {expr = "d1"} : () -> tensor<1x?xi64, {size = "1, s1"}>
  %j = "mlirc.iota"() {expr = "d0"} : () -> tensor<?x1xi64, {size = "s0, 1"}>
  %le = "mlirc.le"(%i, %j) : (tensor<1x?xi64, {size = "1, s1"}>, tensor<?x1xi64, {size = "s0, 1"}>) -> tensor<?x?xi1, {size = "s0, s1"}>
  %zero = "mlirc.constant"() {value = "0x0p+0"} : () -> tensor<f32>
  %inf = "mlirc.constant"() {value = "-inf"} : () -> tensor<f32>
  %s = "mlirc.select"(%le, %zero, %inf) : (tensor<?x?xi1, {size = "s0, s1"}>, tensor<f32>, tensor<f32>) -> tensor<?x?xf32, {size = "s0, s1"}>
  %m = "mlirc.view"(%s) {map = "d2, d3", offset = "0"} : (tensor<?x?xf32, {size = "s0, s1"}>) -> tensor<1x1x?x?xf32, {size = "1, 1, s0, s1"}>
  %0:2 = "mlirc.attention"(%q, %k, %k, %m) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?x16xf32, {size = "2, 4, s1, 16"}>, tensor<2x4x?x16xf32, {size = "2, 4, s1, 16"}>, tensor<1x1x?x?xf32, {size = "1, 1, s0, s1"}>) -> (tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>, tensor<2x4x?xf32, {size = "2, 4, s0"}>)
  return %0#0 : tensor<2x4x?x16xf32, {size = "2, 4, s0, 16"}>
}

// With 5 keys before the 8 of the queries; the mask hides by the lowest number, and each row sees some key.
// CHECK-LABEL: func.func @after_a_cache
// CHECK-NEXT:    "mlirc.attention"(%arg0, %arg1, %arg1) {causal = "lower_right"
func.func @after_a_cache(%q: tensor<2x4x8x16xf32>, %k: tensor<2x4x13x16xf32>) -> tensor<2x4x8x16xf32> {
  %i = "mlirc.iota"() {expr = "d3"} : () -> tensor<1x1x1x13xi64>
  %j = "mlirc.iota"() {expr = "d2 + 5"} : () -> tensor<1x1x8x1xi64>
  %gt = "mlirc.gt"(%i, %j) : (tensor<1x1x1x13xi64>, tensor<1x1x8x1xi64>) -> tensor<1x1x8x13xi1>
  %zero = "mlirc.constant"() {value = "0x0p+0"} : () -> tensor<f32>
  %min = "mlirc.constant"() {value = "-0x1.fffffep+127"} : () -> tensor<f32>
  %m = "mlirc.select"(%gt, %min, %zero) : (tensor<1x1x8x13xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x8x13xf32>
  %0:2 = "mlirc.attention"(%q, %k, %k, %m) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf32>, tensor<2x4x13x16xf32>, tensor<2x4x13x16xf32>, tensor<1x1x8x13xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  return %0#0 : tensor<2x4x8x16xf32>
}

// Fewer keys than queries, the first rows see none: by the lowest number these average the values, and the mask stays.
// CHECK-LABEL: func.func @rows_that_see_nothing
// CHECK:         "mlirc.attention"(%arg0, %arg1, %arg1, %{{.*}}) {causal = "none"
func.func @rows_that_see_nothing(%q: tensor<2x4x8x16xf32>, %k: tensor<2x4x6x16xf32>) -> tensor<2x4x8x16xf32> {
  %i = "mlirc.iota"() {expr = "d3"} : () -> tensor<1x1x1x6xi64>
  %j = "mlirc.iota"() {expr = "d2 - 2"} : () -> tensor<1x1x8x1xi64>
  %le = "mlirc.le"(%i, %j) : (tensor<1x1x1x6xi64>, tensor<1x1x8x1xi64>) -> tensor<1x1x8x6xi1>
  %zero = "mlirc.constant"() {value = "0x0p+0"} : () -> tensor<f32>
  %min = "mlirc.constant"() {value = "-0x1.fffffep+127"} : () -> tensor<f32>
  %m = "mlirc.select"(%le, %zero, %min) : (tensor<1x1x8x6xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x8x6xf32>
  %0:2 = "mlirc.attention"(%q, %k, %k, %m) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf32>, tensor<2x4x6x16xf32>, tensor<2x4x6x16xf32>, tensor<1x1x8x6xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  return %0#0 : tensor<2x4x8x16xf32>
}

// A bias that is no mask, one that lets a window through, and one by an argument stay.
// CHECK-LABEL: func.func @other_masks
// CHECK-COUNT-3: "mlirc.attention"(%arg0, %arg0, %arg0, %{{.*}}) {causal = "none"
func.func @other_masks(%q: tensor<1x1x4x16xf32>, %some: tensor<1x1x4x4xi1>) -> (tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>) {
  %i = "mlirc.iota"() {expr = "d3"} : () -> tensor<1x1x1x4xi64>
  %j = "mlirc.iota"() {expr = "d2"} : () -> tensor<1x1x4x1xi64>
  %k = "mlirc.iota"() {expr = "d2 - 2"} : () -> tensor<1x1x4x1xi64>
  %le = "mlirc.le"(%i, %j) : (tensor<1x1x1x4xi64>, tensor<1x1x4x1xi64>) -> tensor<1x1x4x4xi1>
  %near = "mlirc.gt"(%i, %k) : (tensor<1x1x1x4xi64>, tensor<1x1x4x1xi64>) -> tensor<1x1x4x4xi1>
  %window = "mlirc.logical_and"(%le, %near) : (tensor<1x1x4x4xi1>, tensor<1x1x4x4xi1>) -> tensor<1x1x4x4xi1>
  %zero = "mlirc.constant"() {value = "0x0p+0"} : () -> tensor<f32>
  %soft = "mlirc.constant"() {value = "-0x1.388p+13"} : () -> tensor<f32>
  %bias = "mlirc.select"(%le, %zero, %soft) : (tensor<1x1x4x4xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x4x4xf32>
  %both = "mlirc.logical_and"(%le, %some) : (tensor<1x1x4x4xi1>, tensor<1x1x4x4xi1>) -> tensor<1x1x4x4xi1>
  %0:2 = "mlirc.attention"(%q, %q, %q, %bias) {causal = "none", scale = 2.5e-01 : f64} : (tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x4xf32>) -> (tensor<1x1x4x16xf32>, tensor<1x1x4xf32>)
  %1:2 = "mlirc.attention"(%q, %q, %q, %window) {causal = "none", scale = 2.5e-01 : f64} : (tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x4xi1>) -> (tensor<1x1x4x16xf32>, tensor<1x1x4xf32>)
  %2:2 = "mlirc.attention"(%q, %q, %q, %both) {causal = "none", scale = 2.5e-01 : f64} : (tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x4xi1>) -> (tensor<1x1x4x16xf32>, tensor<1x1x4xf32>)
  return %0#0, %1#0, %2#0 : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>
}

// Two heads that four of the query share, written out: they are read as they were.
// CHECK-LABEL: func.func @repeated
// CHECK-NEXT:    %[[A:.*]]:2 = "mlirc.attention"(%arg0, %arg1, %arg1)
// CHECK-NEXT:    return %[[A]]#0
// CHECK:       // REPEATED: simplify attention, taken
func.func @repeated(%q: tensor<2x4x8x16xf32>, %k: tensor<2x2x8x16xf32>) -> tensor<2x4x8x16xf32> {
  %0 = "mlirc.view"(%k) {map = "d0, d1, d3, d4", offset = "0"} : (tensor<2x2x8x16xf32>) -> tensor<2x2x2x8x16xf32, {stride = "256, 128, 0, 16, 1"}>
  %1 = "mlirc.copy"(%0) : (tensor<2x2x2x8x16xf32, {stride = "256, 128, 0, 16, 1"}>) -> tensor<2x2x2x8x16xf32>
  %2 = "mlirc.view"(%1) {map = "d0, d1//2, d1 % 2, d2, d3", offset = "0"} : (tensor<2x2x2x8x16xf32>) -> tensor<2x4x8x16xf32>
  %3:2 = "mlirc.attention"(%q, %2, %2) {causal = "none", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  return %3#0 : tensor<2x4x8x16xf32>
}

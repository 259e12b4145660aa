// RUN: mlirc-opt %s -p "fold-constants,canonicalize"

// CHECK-LABEL: func.func @numbers
// CHECK-NEXT:    %[[C:.*]] = "mlirc.constant"() {value = "0x1.4000000000000p+2"} : () -> tensor<f32>
// CHECK-NEXT:    return %[[C]]
func.func @numbers() -> tensor<f32> {
  %0 = "mlirc.constant"() {value = "0x1.0000000000000p+1"} : () -> tensor<f32>
  %1 = "mlirc.constant"() {value = "0x1.8000000000000p+1"} : () -> tensor<f32>
  %2 = "mlirc.add"(%0, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// A mask that is always true, as attention masks are: the comparison, the conjunction and the choice all go.
// CHECK-LABEL: func.func @mask
// CHECK-NEXT:    return %arg0
func.func @mask(%x: tensor<4x?xf32, {size = "4, s0"}>, %y: tensor<4x?xf32, {size = "4, s0"}>) -> tensor<4x?xf32, {size = "4, s0"}> {
  %zero = "mlirc.constant"() {value = "0"} : () -> tensor<i64>
  %true = "mlirc.constant"() {value = "true"} : () -> tensor<i1>
  %0 = "mlirc.iota"() {expr = "d0"} : () -> tensor<?xi64, {size = "s0"}>
  %1 = "mlirc.add"(%0, %zero) : (tensor<?xi64, {size = "s0"}>, tensor<i64>) -> tensor<?xi64, {size = "s0"}>
  %2 = "mlirc.ge"(%1, %zero) : (tensor<?xi64, {size = "s0"}>, tensor<i64>) -> tensor<?xi1, {size = "s0"}>
  %3 = "mlirc.view"(%2) {map = "d1", offset = "0"} : (tensor<?xi1, {size = "s0"}>) -> tensor<4x?xi1, {size = "4, s0", stride = "0, 1"}>
  %4 = "mlirc.logical_and"(%true, %3) : (tensor<i1>, tensor<4x?xi1, {size = "4, s0", stride = "0, 1"}>) -> tensor<4x?xi1, {size = "4, s0"}>
  %5 = "mlirc.select"(%4, %x, %y) : (tensor<4x?xi1, {size = "4, s0"}>, tensor<4x?xf32, {size = "4, s0"}>, tensor<4x?xf32, {size = "4, s0"}>) -> tensor<4x?xf32, {size = "4, s0"}>
  return %5 : tensor<4x?xf32, {size = "4, s0"}>
}

// A causal mask is neither true nor false everywhere.
// CHECK-LABEL: func.func @causal
// CHECK:         "mlirc.ge"
func.func @causal() -> tensor<8x8xi1> {
  %0 = "mlirc.iota"() {expr = "d0"} : () -> tensor<8x1xi64>
  %1 = "mlirc.iota"() {expr = "d0"} : () -> tensor<8xi64>
  %2 = "mlirc.ge"(%0, %1) : (tensor<8x1xi64>, tensor<8xi64>) -> tensor<8x8xi1>
  return %2 : tensor<8x8xi1>
}

// x + 0 is 0 where x is -0.0, x - 0 is x.
// CHECK-LABEL: func.func @negative_zero
// CHECK:         %[[A:.*]] = "mlirc.add"(%arg0,
// CHECK-NEXT:    return %[[A]], %arg0, %arg0, %arg0
func.func @negative_zero(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %zero = "mlirc.constant"() {value = "0x0.0p+0"} : () -> tensor<f32>
  %negative = "mlirc.constant"() {value = "-0x0.0p+0"} : () -> tensor<f32>
  %one = "mlirc.constant"() {value = "0x1.0000000000000p+0"} : () -> tensor<f32>
  %0 = "mlirc.add"(%x, %zero) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = "mlirc.sub"(%x, %zero) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = "mlirc.add"(%negative, %x) : (tensor<f32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = "mlirc.mul"(%x, %one) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  return %0, %1, %2, %3 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Of integers x + 0 is x; of another shape or dtype nothing is.
// CHECK-LABEL: func.func @neutral
// CHECK:         %[[M:.*]] = "mlirc.mul"
// CHECK-NEXT:    return %arg0, %[[M]]
func.func @neutral(%x: tensor<8xi64>, %y: tensor<8x1xi64>) -> (tensor<8xi64>, tensor<8x4xi64>) {
  %zero = "mlirc.constant"() {value = "0"} : () -> tensor<i64>
  %ones = "mlirc.iota"() {expr = "1"} : () -> tensor<8x4xi64>
  %0 = "mlirc.add"(%x, %zero) : (tensor<8xi64>, tensor<i64>) -> tensor<8xi64>
  %1 = "mlirc.mul"(%y, %ones) : (tensor<8x1xi64>, tensor<8x4xi64>) -> tensor<8x4xi64>
  return %0, %1 : tensor<8xi64>, tensor<8x4xi64>
}

// bfloat16 to float32 and back is nothing; float32 to bfloat16 and back rounds.
// CHECK-LABEL: func.func @casts
// CHECK-NEXT:    %[[R:.*]] = "mlirc.cast"(%arg1){{.*}} -> tensor<8xbf16>
// CHECK-NEXT:    %[[S:.*]] = "mlirc.cast"(%[[R]]){{.*}} -> tensor<8xf32>
// CHECK-NEXT:    return %arg0, %[[S]]
func.func @casts(%x: tensor<8xbf16>, %y: tensor<8xf32>) -> (tensor<8xbf16>, tensor<8xf32>) {
  %0 = "mlirc.cast"(%x) : (tensor<8xbf16>) -> tensor<8xf32>
  %1 = "mlirc.cast"(%0) : (tensor<8xf32>) -> tensor<8xbf16>
  %2 = "mlirc.cast"(%y) : (tensor<8xf32>) -> tensor<8xbf16>
  %3 = "mlirc.cast"(%2) : (tensor<8xbf16>) -> tensor<8xf32>
  return %1, %3 : tensor<8xbf16>, tensor<8xf32>
}

// int32 to float64 to uint8 is not int32 to uint8: the one is undefined below 0, the other wraps around.
// CHECK-LABEL: func.func @by_way_of_float
// CHECK-NEXT:    %[[F:.*]] = "mlirc.cast"(%arg0){{.*}} -> tensor<8xf64>
// CHECK-NEXT:    "mlirc.cast"(%[[F]]){{.*}} -> tensor<8xui8>
func.func @by_way_of_float(%x: tensor<8xi32>) -> tensor<8xui8> {
  %0 = "mlirc.cast"(%x) : (tensor<8xi32>) -> tensor<8xf64>
  %1 = "mlirc.cast"(%0) : (tensor<8xf64>) -> tensor<8xui8>
  return %1 : tensor<8xui8>
}

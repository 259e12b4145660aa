// RUN: mlirc-opt %s -p "scalars-to-device"

// A scalar that is known is made where it is read; another is copied, once for all that read it.
// CHECK-LABEL: func.func @scale
// CHECK:         %[[S:.*]] = "mlirc.copy"(%arg1) : (tensor<f32>) -> tensor<f32, {device = "cuda:0"}>
// CHECK:         %[[M:.*]] = "mlirc.mul"(%arg0, %[[S]])
// CHECK:         %[[N:.*]] = "mlirc.add"(%[[M]], %[[S]])
// CHECK:         %[[T:.*]] = "mlirc.constant"() {value = "0x1.0000000000000p+1"} : () -> tensor<f32, {device = "cuda:0"}>
// CHECK:         "mlirc.mul"(%[[N]], %[[T]])
func.func @scale(%x: tensor<8xf32, {device = "cuda:0"}>, %s: tensor<f32>) -> tensor<8xf32, {device = "cuda:0"}> {
  %two = "mlirc.constant"() {value = "0x1.0000000000000p+1"} : () -> tensor<f32>
  %0 = "mlirc.mul"(%x, %s) : (tensor<8xf32, {device = "cuda:0"}>, tensor<f32>) -> tensor<8xf32, {device = "cuda:0"}>
  %1 = "mlirc.add"(%0, %s) : (tensor<8xf32, {device = "cuda:0"}>, tensor<f32>) -> tensor<8xf32, {device = "cuda:0"}>
  %2 = "mlirc.mul"(%1, %two) : (tensor<8xf32, {device = "cuda:0"}>, tensor<f32>) -> tensor<8xf32, {device = "cuda:0"}>
  return %2 : tensor<8xf32, {device = "cuda:0"}>
}

// What is on the CPU as a whole stays there.
// CHECK-LABEL: func.func @cpu
// CHECK-NOT:     "mlirc.copy"
func.func @cpu(%x: tensor<8xf32>, %s: tensor<f32>) -> tensor<8xf32> {
  %0 = "mlirc.mul"(%x, %s) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

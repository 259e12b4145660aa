// RUN: mlirc-opt %s -p "hoist-parameters"

// What is kept takes no more than what it comes from; what is computed on the way there, in a wider type, is not kept.
// CHECK-LABEL: func.func @scaled
// CHECK-NOT:     "mlirc.cast"
// CHECK:         "mlirc.mul"(%arg0, %arg3)
// CHECK-LABEL: func.func @prepare
// CHECK:         %[[W:.*]] = "mlirc.cast"(%arg0) {{.*}} -> tensor<4x8xf32>
// CHECK:         %[[S:.*]] = "mlirc.cast"(%arg1) {{.*}} -> tensor<8xf32>
// CHECK:         %[[P:.*]] = "mlirc.mul"(%[[W]], %[[S]])
// CHECK:         %[[R:.*]] = "mlirc.cast"(%[[P]]) {{.*}} -> tensor<4x8xbf16>
// CHECK:         return %[[R]] : tensor<4x8xbf16>
func.func @scaled(%x: tensor<4x8xbf16>, %w: tensor<4x8xbf16> {mlirc.parameter}, %s: tensor<8xbf16> {mlirc.parameter}) -> tensor<4x8xbf16> {
  %0 = "mlirc.cast"(%w) : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %1 = "mlirc.cast"(%s) : (tensor<8xbf16>) -> tensor<8xf32>
  %2 = "mlirc.mul"(%0, %1) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %3 = "mlirc.cast"(%2) : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %4 = "mlirc.mul"(%x, %3) : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %4 : tensor<4x8xbf16>
}

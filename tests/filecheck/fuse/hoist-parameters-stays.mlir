// RUN: mlirc-opt %s -p "hoist-parameters"

// The float32 copy would take twice the parameter's memory: it stays, and what it is made of is kept.
// CHECK-LABEL: func.func @wide
// CHECK:         %[[C:.*]] = "mlirc.cast"(%arg2) {{.*}} -> tensor<8xf32>
// CHECK:         "mlirc.mul"(%arg0, %[[C]])
// CHECK-LABEL: func.func @prepare
// CHECK:         %[[R:.*]] = "mlirc.neg"(%arg0)
// CHECK:         return %[[R]] : tensor<8xbf16>
func.func @wide(%x: tensor<8xf32>, %w: tensor<8xbf16> {mlirc.parameter}) -> tensor<8xf32> {
  %0 = "mlirc.neg"(%w) : (tensor<8xbf16>) -> tensor<8xbf16>
  %1 = "mlirc.cast"(%0) : (tensor<8xbf16>) -> tensor<8xf32>
  %2 = "mlirc.mul"(%x, %1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

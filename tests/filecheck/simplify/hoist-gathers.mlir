// RUN: mlirc-opt %s -p "hoist-gathers,canonicalize"

// A cross entropy: of the log-probabilities only those at the labels are computed.
// CHECK-LABEL: func.func @one_of_a_row
// CHECK:         %[[S:.*]] = "mlirc.sum"
// CHECK-NEXT:    %[[L:.*]] = "mlirc.log"(%[[S]])
// CHECK-NEXT:    %[[G:.*]] = "mlirc.gather"(%arg0, %arg1)
// CHECK-NEXT:    %[[C:.*]] = "mlirc.cast"(%[[G]]) : (tensor<64x1xbf16>) -> tensor<64x1xf32>
// CHECK-NEXT:    %[[D:.*]] = "mlirc.sub"(%[[C]], %[[L]]) : (tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
// CHECK-NEXT:    return %[[D]]
func.func @one_of_a_row(%x: tensor<64x500xbf16>, %label: tensor<64x1xi64>) -> tensor<64x1xf32> {
  %0 = "mlirc.cast"(%x) : (tensor<64x500xbf16>) -> tensor<64x500xf32>
  %1 = "mlirc.exp"(%0) : (tensor<64x500xf32>) -> tensor<64x500xf32>
  %2 = "mlirc.sum"(%1) {dims = "1", keepdim = true} : (tensor<64x500xf32>) -> tensor<64x1xf32>
  %3 = "mlirc.log"(%2) : (tensor<64x1xf32>) -> tensor<64x1xf32>
  %4 = "mlirc.sub"(%0, %3) : (tensor<64x500xf32>, tensor<64x1xf32>) -> tensor<64x500xf32>
  %5 = "mlirc.gather"(%4, %label) {dim = 1 : i64, message = "m"} : (tensor<64x500xf32>, tensor<64x1xi64>) -> tensor<64x1xf32>
  return %5 : tensor<64x1xf32>
}

// A view of a cast becomes a cast of a view: only what is picked is converted.
// CHECK-LABEL: func.func @behind_a_view
// CHECK:         %[[V:.*]] = "mlirc.view"(%arg0) {{.*}} -> tensor<64x500xbf16>
// CHECK-NEXT:    %[[G:.*]] = "mlirc.gather"(%[[V]], %arg2)
// CHECK-NEXT:    %[[C:.*]] = "mlirc.cast"(%[[G]]) : (tensor<64x1xbf16>) -> tensor<64x1xf32>
// CHECK-NEXT:    %[[D:.*]] = "mlirc.sub"(%[[C]], %arg1) : (tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
// CHECK-NEXT:    return %[[D]]
func.func @behind_a_view(%x: tensor<8x8x500xbf16>, %y: tensor<64x1xf32>, %label: tensor<64x1xi64>) -> tensor<64x1xf32> {
  %0 = "mlirc.cast"(%x) : (tensor<8x8x500xbf16>) -> tensor<8x8x500xf32>
  %1 = "mlirc.view"(%0) {map = "d0//8, d0 % 8, d1", offset = "0"} : (tensor<8x8x500xf32>) -> tensor<64x500xf32>
  %2 = "mlirc.sub"(%1, %y) : (tensor<64x500xf32>, tensor<64x1xf32>) -> tensor<64x500xf32>
  %3 = "mlirc.gather"(%2, %label) {dim = 1 : i64, message = "m"} : (tensor<64x500xf32>, tensor<64x1xi64>) -> tensor<64x1xf32>
  return %3 : tensor<64x1xf32>
}

// The log-probabilities are needed all the same: reading one of them costs less than computing it again.
// CHECK-LABEL: func.func @needed
// CHECK:         "mlirc.sub"{{.*}} -> tensor<64x500xf32>
// CHECK-NEXT:    "mlirc.gather"
func.func @needed(%x: tensor<64x500xf32>, %y: tensor<64x1xf32>, %label: tensor<64x1xi64>) -> (tensor<64x500xf32>, tensor<64x1xf32>) {
  %0 = "mlirc.sub"(%x, %y) : (tensor<64x500xf32>, tensor<64x1xf32>) -> tensor<64x500xf32>
  %1 = "mlirc.gather"(%0, %label) {dim = 1 : i64, message = "m"} : (tensor<64x500xf32>, tensor<64x1xi64>) -> tensor<64x1xf32>
  return %0, %1 : tensor<64x500xf32>, tensor<64x1xf32>
}

// A bias of columns would have to be picked from by rows, and two of a row are not one.
// CHECK-LABEL: func.func @other_operands
// CHECK:         "mlirc.add"{{.*}} -> tensor<64x500xf32>
// CHECK-NEXT:    "mlirc.gather"
// CHECK-NEXT:    "mlirc.neg"{{.*}} -> tensor<64x500xf32>
// CHECK-NEXT:    "mlirc.gather"
func.func @other_operands(%x: tensor<64x500xf32>, %b: tensor<500xf32>, %one: tensor<64x1xi64>, %two: tensor<64x2xi64>) -> (tensor<64x1xf32>, tensor<64x2xf32>) {
  %0 = "mlirc.add"(%x, %b) : (tensor<64x500xf32>, tensor<500xf32>) -> tensor<64x500xf32>
  %1 = "mlirc.gather"(%0, %one) {dim = 1 : i64, message = "m"} : (tensor<64x500xf32>, tensor<64x1xi64>) -> tensor<64x1xf32>
  %2 = "mlirc.neg"(%x) : (tensor<64x500xf32>) -> tensor<64x500xf32>
  %3 = "mlirc.gather"(%2, %two) {dim = 1 : i64, message = "m"} : (tensor<64x500xf32>, tensor<64x2xi64>) -> tensor<64x2xf32>
  return %1, %3 : tensor<64x1xf32>, tensor<64x2xf32>
}

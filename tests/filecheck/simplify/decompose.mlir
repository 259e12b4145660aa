// RUN: mlirc-opt %s -p decompose

// CHECK-LABEL: func.func @softmax
// CHECK-NEXT:    %[[M:.*]] = "mlirc.amax"(%arg0) {dims = "1", keepdim = true}
// CHECK-NEXT:    %[[D:.*]] = "mlirc.sub"(%arg0, %[[M]])
// CHECK-NEXT:    %[[E:.*]] = "mlirc.exp"(%[[D]])
// CHECK-NEXT:    %[[S:.*]] = "mlirc.sum"(%[[E]]) {dims = "1", keepdim = true}
// CHECK-NEXT:    %[[Q:.*]] = "mlirc.div"(%[[E]], %[[S]])
// CHECK-NEXT:    return %[[Q]]
func.func @softmax(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = "mlirc.softmax"(%x) {dim = 1 : i64} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// Half types compute in float32; the result has the dtype and the strides that it had.
// CHECK-LABEL: func.func @half
// CHECK-NEXT:    "mlirc.cast"(%arg0)
// CHECK:         %[[Q:.*]] = "mlirc.div"{{.*}} -> tensor<4x16xf32>
// CHECK-NEXT:    %[[H:.*]] = "mlirc.cast"(%[[Q]])
// CHECK-NEXT:    %[[R:.*]] = "mlirc.copy"(%[[H]]){{.*}} -> tensor<4x16xbf16, {stride = "1, 4"}>
// CHECK-NEXT:    return %[[R]]
func.func @half(%x: tensor<4x16xbf16>) -> tensor<4x16xbf16, {stride = "1, 4"}> {
  %0 = "mlirc.softmax"(%x) {dim = 1 : i64} : (tensor<4x16xbf16>) -> tensor<4x16xbf16, {stride = "1, 4"}>
  return %0 : tensor<4x16xbf16, {stride = "1, 4"}>
}

// RUN: mlirc-opt %s -p "accumulate-embeddings,canonicalize,cse"

// The decoder's gradient, to which the embedding's is added: rows of equal tokens first.
// CHECK-LABEL: func.func @tied
// CHECK:         %[[P:.*]] = "mlirc.matmul"
// CHECK:         "mlircx.aten"({{.*}}op = "aten.index_put.default"
// CHECK:         %[[PLACE:.*]] = "mlirc.index"
// CHECK:         %[[SUMS:.*]] = "mlircx.aten"({{.*}}, %[[PLACE]], %arg2) {{.*}}op = "aten.index_add.default"
// CHECK:         %[[ALL:.*]] = "mlircx.aten"(%[[P]], %arg3, %[[SUMS]]) {{.*}}op = "aten.index_add.default"
// CHECK:         return %[[ALL]]
func.func @tied(%d: tensor<50x7xf32>, %x: tensor<7x8xf32>, %rows: tensor<7x8xf32>, %tokens: tensor<7xi64>) -> tensor<50x8xf32> {
  %0 = "mlircx.aten"(%rows, %tokens) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, 50, -1, false]", op = "aten.embedding_dense_backward.default"} : (tensor<7x8xf32>, tensor<7xi64>) -> tensor<50x8xf32>
  %1 = "mlirc.matmul"(%d, %x) : (tensor<50x7xf32>, tensor<7x8xf32>) -> tensor<50x8xf32>
  %2 = "mlirc.add"(%1, %0) : (tensor<50x8xf32>, tensor<50x8xf32>) -> tensor<50x8xf32>
  return %2 : tensor<50x8xf32>
}

// Rows of the token that pads count for nothing. A sum with what is no product, or is read elsewhere, stays a sum.
// CHECK-LABEL: func.func @alone
// CHECK:         %[[ROWS:.*]] = "mlirc.select"({{.*}}, %arg1, {{.*}})
// CHECK:         %[[E:.*]] = "mlircx.aten"({{.*}}, %arg2, %[[ROWS]]) {{.*}}op = "aten.index_add.default"
// CHECK:         "mlirc.add"(%arg0, %[[E]])
func.func @alone(%x: tensor<50x8xf32>, %rows: tensor<7x8xf32>, %tokens: tensor<7xi64>) -> tensor<50x8xf32> {
  %0 = "mlircx.aten"(%rows, %tokens) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, 50, 3, false]", op = "aten.embedding_dense_backward.default"} : (tensor<7x8xf32>, tensor<7xi64>) -> tensor<50x8xf32>
  %1 = "mlirc.add"(%x, %0) : (tensor<50x8xf32>, tensor<50x8xf32>) -> tensor<50x8xf32>
  return %1 : tensor<50x8xf32>
}

// ATen scales by frequency; and it has half types, whose sums would be rounded at each step.
// CHECK-LABEL: func.func @stay
// CHECK-COUNT-2: aten.embedding_dense_backward.default
func.func @stay(%x: tensor<7x8xf32>, %y: tensor<7x8xbf16>, %tokens: tensor<7xi64>) -> (tensor<50x8xf32>, tensor<50x8xbf16>) {
  %0 = "mlircx.aten"(%x, %tokens) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, 50, -1, true]", op = "aten.embedding_dense_backward.default"} : (tensor<7x8xf32>, tensor<7xi64>) -> tensor<50x8xf32>
  %1 = "mlircx.aten"(%y, %tokens) {aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, 50, -1, false]", op = "aten.embedding_dense_backward.default"} : (tensor<7x8xbf16>, tensor<7xi64>) -> tensor<50x8xbf16>
  return %0, %1 : tensor<50x8xf32>, tensor<50x8xbf16>
}

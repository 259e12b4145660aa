// RUN: mlirc-opt %s -p "merge-matmuls,eliminate-views,canonicalize,cse"

// Queries, keys and values of one matrix: one product by all three parameters; what reads them reads columns of it.
// CHECK-LABEL: func.func @projections
// CHECK:         %[[W:.*]] = "mlirc.cat2"(%arg1, %arg2) {dim = 0 : i64}
// CHECK:         %[[B:.*]] = "mlirc.cat2"(%arg3, %arg4) {dim = 0 : i64}
// CHECK:         %[[P:.*]] = "mlirc.addmm"(%[[B]], %arg0, {{.*}} -> tensor<64x96xbf16, {device = "cuda:0"}>
// CHECK:         %[[K:.*]] = "mlirc.view"(%[[P]]) {map = "d0, d1 + 64", offset = "64"} {{.*}} stride = "96, 1"
// CHECK:         %[[Q:.*]] = "mlirc.view"(%[[P]]) {map = "16*d0 + d1, d2", offset = "0"} {{.*}} stride = "1536, 96, 1"
// CHECK:         "mlirc.exp"(%[[Q]]) {{.*}} -> tensor<4x16x64xbf16, {device = "cuda:0"}>
// CHECK:         "mlirc.neg"(%[[K]]) {{.*}} -> tensor<64x32xbf16, {device = "cuda:0"}>
func.func @projections(%x: tensor<64x48xbf16, {device = "cuda:0"}>, %wq: tensor<64x48xbf16, {device = "cuda:0"}> {mlirc.parameter}, %wk: tensor<32x48xbf16, {device = "cuda:0"}> {mlirc.parameter}, %bq: tensor<64xbf16, {device = "cuda:0"}> {mlirc.parameter}, %bk: tensor<32xbf16, {device = "cuda:0"}> {mlirc.parameter}) -> (tensor<4x16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) {
  %0 = "mlirc.view"(%wq) {map = "d1, d0", offset = "0"} : (tensor<64x48xbf16, {device = "cuda:0"}>) -> tensor<48x64xbf16, {device = "cuda:0", stride = "1, 48"}>
  %1 = "mlirc.view"(%wk) {map = "d1, d0", offset = "0"} : (tensor<32x48xbf16, {device = "cuda:0"}>) -> tensor<48x32xbf16, {device = "cuda:0", stride = "1, 48"}>
  %2 = "mlirc.addmm"(%bq, %x, %0) : (tensor<64xbf16, {device = "cuda:0"}>, tensor<64x48xbf16, {device = "cuda:0"}>, tensor<48x64xbf16, {device = "cuda:0", stride = "1, 48"}>) -> tensor<64x64xbf16, {device = "cuda:0"}>
  %3 = "mlirc.addmm"(%bk, %x, %1) : (tensor<32xbf16, {device = "cuda:0"}>, tensor<64x48xbf16, {device = "cuda:0"}>, tensor<48x32xbf16, {device = "cuda:0", stride = "1, 48"}>) -> tensor<64x32xbf16, {device = "cuda:0"}>
  %4 = "mlirc.view"(%2) {map = "16*d0 + d1, d2", offset = "0"} : (tensor<64x64xbf16, {device = "cuda:0"}>) -> tensor<4x16x64xbf16, {device = "cuda:0"}>
  %5 = "mlirc.exp"(%4) : (tensor<4x16x64xbf16, {device = "cuda:0"}>) -> tensor<4x16x64xbf16, {device = "cuda:0"}>
  %6 = "mlirc.neg"(%3) : (tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<64x32xbf16, {device = "cuda:0"}>
  return %5, %6 : tensor<4x16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>
}

// What the graph returns has the strides that were promised; what is no parameter is not copied in every call.
// CHECK-LABEL: func.func @stays
// CHECK-NOT:     "mlirc.cat2"
func.func @stays(%x: tensor<64x48xbf16, {device = "cuda:0"}>, %a: tensor<48x64xbf16, {device = "cuda:0"}> {mlirc.parameter}, %b: tensor<48x64xbf16, {device = "cuda:0"}> {mlirc.parameter}, %c: tensor<48x64xbf16, {device = "cuda:0"}>) -> (tensor<64x64xbf16, {device = "cuda:0"}>, tensor<64x64xbf16, {device = "cuda:0"}>) {
  %0 = "mlirc.matmul"(%x, %a) : (tensor<64x48xbf16, {device = "cuda:0"}>, tensor<48x64xbf16, {device = "cuda:0"}>) -> tensor<64x64xbf16, {device = "cuda:0"}>
  %1 = "mlirc.matmul"(%x, %b) : (tensor<64x48xbf16, {device = "cuda:0"}>, tensor<48x64xbf16, {device = "cuda:0"}>) -> tensor<64x64xbf16, {device = "cuda:0"}>
  %2 = "mlirc.matmul"(%x, %c) : (tensor<64x48xbf16, {device = "cuda:0"}>, tensor<48x64xbf16, {device = "cuda:0"}>) -> tensor<64x64xbf16, {device = "cuda:0"}>
  %3 = "mlirc.add"(%0, %2) : (tensor<64x64xbf16, {device = "cuda:0"}>, tensor<64x64xbf16, {device = "cuda:0"}>) -> tensor<64x64xbf16, {device = "cuda:0"}>
  return %1, %3 : tensor<64x64xbf16, {device = "cuda:0"}>, tensor<64x64xbf16, {device = "cuda:0"}>
}

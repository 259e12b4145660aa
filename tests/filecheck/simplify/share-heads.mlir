// RUN: mlirc-opt %s -p "share-heads,canonicalize,cse"

// Two heads of keys for four of queries: heads 0 and 1 read the first.
// CHECK-LABEL: func.func @grouped
// CHECK-NOT:     "mlirc.copy"
// CHECK:         "mlircx.aten_effect"(%arg0, %arg1, %arg1) {{.*}} (tensor<1x4x8x16xbf16, {device = "cuda:0"}>, tensor<1x2x8x16xbf16, {device = "cuda:0"}>, tensor<1x2x8x16xbf16, {device = "cuda:0"}>)
func.func @grouped(%q: tensor<1x4x8x16xbf16, {device = "cuda:0"}>, %k: tensor<1x2x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x4x8x16xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.view"(%k) {map = "d0, d1, d3, d4", offset = "0"} : (tensor<1x2x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x2x2x8x16xbf16, {device = "cuda:0", stride = "256, 128, 0, 16, 1"}>
  %1 = "mlirc.copy"(%0) : (tensor<1x2x2x8x16xbf16, {device = "cuda:0", stride = "256, 128, 0, 16, 1"}>) -> tensor<1x2x2x8x16xbf16, {device = "cuda:0"}>
  %2 = "mlirc.view"(%1) {map = "d0, d1//2, d1 % 2, d2, d3", offset = "0"} : (tensor<1x2x2x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x4x8x16xbf16, {device = "cuda:0"}>
  %3 = "mlircx.aten_effect"(%q, %2, %2) {op = "aten._scaled_dot_product_cudnn_attention.default", aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, null, false, 0.0, true]"} : (tensor<1x4x8x16xbf16, {device = "cuda:0"}>, tensor<1x4x8x16xbf16, {device = "cuda:0"}>, tensor<1x4x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x4x8x16xbf16, {device = "cuda:0"}>
  return %3 : tensor<1x4x8x16xbf16, {device = "cuda:0"}>
}

// In another order, heads 0 and 2 read the first: a copy.
// CHECK-LABEL: func.func @interleaved
// CHECK:         "mlirc.copy"
func.func @interleaved(%q: tensor<1x4x8x16xbf16, {device = "cuda:0"}>, %k: tensor<1x2x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x4x8x16xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.view"(%k) {map = "d0, d2, d3, d4", offset = "0"} : (tensor<1x2x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x2x2x8x16xbf16, {device = "cuda:0", stride = "256, 0, 128, 16, 1"}>
  %1 = "mlirc.copy"(%0) : (tensor<1x2x2x8x16xbf16, {device = "cuda:0", stride = "256, 0, 128, 16, 1"}>) -> tensor<1x2x2x8x16xbf16, {device = "cuda:0"}>
  %2 = "mlirc.view"(%1) {map = "d0, d1//2, d1 % 2, d2, d3", offset = "0"} : (tensor<1x2x2x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x4x8x16xbf16, {device = "cuda:0"}>
  %3 = "mlircx.aten"(%q, %2, %2) {op = "aten._scaled_dot_product_cudnn_attention.default", aliases = "-1", args = "[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, null, false, 0.0, true]"} : (tensor<1x4x8x16xbf16, {device = "cuda:0"}>, tensor<1x4x8x16xbf16, {device = "cuda:0"}>, tensor<1x4x8x16xbf16, {device = "cuda:0"}>) -> tensor<1x4x8x16xbf16, {device = "cuda:0"}>
  return %3 : tensor<1x4x8x16xbf16, {device = "cuda:0"}>
}

// RUN: mlirc-opt %s -p "to-kernels,plan-memory,split-unaligned"
func.func @graph(%x: tensor<16x24xbf16, {device = "cuda:0"}>, %w: tensor<44x24xbf16, {device = "cuda:0"}>) -> tensor<16x44xbf16, {device = "cuda:0"}> {
%0 = "mlirc.view"(%w) {map = "d1, d0", offset = "0"} : (tensor<44x24xbf16, {device = "cuda:0"}>) -> tensor<24x44xbf16, {device = "cuda:0", stride = "1, 24"}>
%1 = "mlirc.matmul"(%x, %0) : (tensor<16x24xbf16, {device = "cuda:0"}>, tensor<24x44xbf16, {device = "cuda:0", stride = "1, 24"}>) -> tensor<16x44xbf16, {device = "cuda:0"}>
return %1 : tensor<16x44xbf16, {device = "cuda:0"}>
}

// CHECK: "mlircx.call"
// CHECK: "mlircx.call"
// CHECK: "mlircx.launch"
// CHECK: label = "matmul_edges"
// CHECK: // BY ROWS: split matmul, taken

// RUN: mlirc-opt %s -p "generate-triton-matmuls"
func.func @graph(%x: tensor<1024x768xbf16, {device = "cuda:0"}>, %w: tensor<50257x768xbf16, {device = "cuda:0"}>) -> tensor<1024x50257xbf16, {device = "cuda:0"}> {
%0 = "mlirc.view"(%w) {map = "d1, d0", offset = "0"} : (tensor<50257x768xbf16, {device = "cuda:0"}>) -> tensor<768x50257xbf16, {device = "cuda:0", stride = "1, 768"}>
%1 = "mlirc.matmul"(%x, %0) : (tensor<1024x768xbf16, {device = "cuda:0"}>, tensor<768x50257xbf16, {device = "cuda:0", stride = "1, 768"}>) -> tensor<1024x50257xbf16, {device = "cuda:0"}>
return %1 : tensor<1024x50257xbf16, {device = "cuda:0"}>
}

// CHECK-NOT: "mlirc.matmul"
// CHECK: "mlirc.reduce"
// CHECK: // UNALIGNED: generate mlirc.matmul, taken

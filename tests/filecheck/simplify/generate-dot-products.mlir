// RUN: mlirc-opt %s -p "generate-dot-products"
func.func @graph(%x: tensor<1x768xbf16, {device = "cuda:0"}>, %w: tensor<768x1536xbf16, {device = "cuda:0", stride = "1, 768"}>, %b: tensor<1536xbf16, {device = "cuda:0"}>) -> tensor<1x1536xbf16, {device = "cuda:0"}> {
%0 = "mlirc.addmm"(%b, %x, %w) : (tensor<1536xbf16, {device = "cuda:0"}>, tensor<1x768xbf16, {device = "cuda:0"}>, tensor<768x1536xbf16, {device = "cuda:0", stride = "1, 768"}>) -> tensor<1x1536xbf16, {device = "cuda:0"}>
%1 = "mlirc.relu"(%0) : (tensor<1x1536xbf16, {device = "cuda:0"}>) -> tensor<1x1536xbf16, {device = "cuda:0"}>
return %1 : tensor<1x1536xbf16, {device = "cuda:0"}>
}

// CHECK-NOT: "mlirc.addmm"
// CHECK: "mlirc.reduce"
// CHECK: // ONE ROW: generate mlirc.addmm, taken

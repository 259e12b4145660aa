// RUN: mlirc-opt %s -p "fold-cudnn"
func.func @graph(%x: tensor<2x4x5x5xbf16, {device = "cuda:0"}>, %w: tensor<4x4x1x1xbf16, {device = "cuda:0"}> {mlirc.parameter}, %v: tensor<4x4x1x1xbf16, {device = "cuda:0"}> {mlirc.parameter}, %c: tensor<4xbf16, {device = "cuda:0"}> {mlirc.parameter}) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}> {
%0 = "mlircx.aten"(%x, %w) {aliases = "-1", op = "aten.convolution.default", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]"} : (tensor<2x4x5x5xbf16, {device = "cuda:0"}>, tensor<4x4x1x1xbf16, {device = "cuda:0"}>) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}>
%1 = "mlirc.batch_norm_inference"(%0, %c, %c, %c, %c) {eps = 1.0e-05 : f64} : (tensor<2x4x5x5xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}>
%2 = "mlircx.aten"(%x, %v) {aliases = "-1", op = "aten.convolution.default", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]"} : (tensor<2x4x5x5xbf16, {device = "cuda:0"}>, tensor<4x4x1x1xbf16, {device = "cuda:0"}>) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}>
%3 = "mlirc.batch_norm_inference"(%2, %c, %c, %c, %c) {eps = 1.0e-05 : f64} : (tensor<2x4x5x5xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>, tensor<4xbf16, {device = "cuda:0"}>) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}>
%4 = "mlirc.add"(%1, %3) : (tensor<2x4x5x5xbf16, {device = "cuda:0"}>, tensor<2x4x5x5xbf16, {device = "cuda:0"}>) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}>
%5 = "mlirc.relu"(%4) : (tensor<2x4x5x5xbf16, {device = "cuda:0"}>) -> tensor<2x4x5x5xbf16, {device = "cuda:0"}>
return %5 : tensor<2x4x5x5xbf16, {device = "cuda:0"}>
}

// CHECK: op = "aten.cudnn_convolution_add_relu.default"
// CHECK-NOT: "mlirc.relu"
// CHECK: // RELU: fold aten.convolution, taken

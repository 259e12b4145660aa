// A stride of unknown size is refused.
// RUN: mlirc-opt %s -p "space-to-depth"
func.func @graph(%x: tensor<2x3x20x18xbf16, {device = "cuda:0"}>, %w: tensor<8x3x7x7xbf16, {device = "cuda:0"}> {mlirc.parameter}) -> tensor<2x8x?x9xbf16, {size = "2, 8, 19//s0 + 1, 9", device = "cuda:0"}> {
%0 = "mlircx.aten"(%x, %w) {aliases = "-1", op = "aten.convolution.default", args = "[{\22$\22: 0}, {\22$\22: 1}, null, [{\22size\22: \22s0\22}, 2], [3, 3], [1, 1], false, [0, 0], 1]"} : (tensor<2x3x20x18xbf16, {device = "cuda:0"}>, tensor<8x3x7x7xbf16, {device = "cuda:0"}>) -> tensor<2x8x?x9xbf16, {size = "2, 8, 19//s0 + 1, 9", device = "cuda:0"}>
return %0 : tensor<2x8x?x9xbf16, {size = "2, 8, 19//s0 + 1, 9", device = "cuda:0"}>
}

// CHECK-NOT: "mlirc.pad"
// CHECK: op = "aten.convolution.default"
// CHECK: // FEW CHANNELS: widen aten.convolution.default, refused

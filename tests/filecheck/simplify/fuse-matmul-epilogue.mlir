// RUN: mlirc-opt %s -p "fuse-matmul-epilogue"
func.func @graph(%b: tensor<16xbf16, {device = "cuda:0"}>, %x: tensor<24x8xbf16, {device = "cuda:0"}>, %w: tensor<8x16xbf16, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}> {

%h = "mlirc.constant"() {value = "0x1.0000000000000p-1"} : () -> tensor<f32, {device = "cuda:0"}>
%c = "mlirc.constant"() {value = "0x1.6e4e26d4801f7p-5"} : () -> tensor<f32, {device = "cuda:0"}>
%s = "mlirc.constant"() {value = "0x1.9884533d43651p-1"} : () -> tensor<f32, {device = "cuda:0"}>
%o = "mlirc.constant"() {value = "0x1.0000000000000p+0"} : () -> tensor<bf16, {device = "cuda:0"}>
%0 = "mlirc.addmm"(%b, %x, %w) : (tensor<16xbf16, {device = "cuda:0"}>, tensor<24x8xbf16, {device = "cuda:0"}>, tensor<8x16xbf16, {device = "cuda:0"}>) -> tensor<24x16xbf16, {device = "cuda:0"}>
%1 = "mlirc.view"(%0) {map = "12*d0 + d1, d2", offset = "0"} : (tensor<24x16xbf16, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%2 = "mlirc.mul"(%1, %h) : (tensor<2x12x16xbf16, {device = "cuda:0"}>, tensor<f32, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%3 = "mlirc.cast"(%1) : (tensor<2x12x16xbf16, {device = "cuda:0"}>) -> tensor<2x12x16xf32, {device = "cuda:0"}>
%4 = "mlirc.mul"(%3, %3) : (tensor<2x12x16xf32, {device = "cuda:0"}>, tensor<2x12x16xf32, {device = "cuda:0"}>) -> tensor<2x12x16xf32, {device = "cuda:0"}>
%5 = "mlirc.mul"(%4, %3) : (tensor<2x12x16xf32, {device = "cuda:0"}>, tensor<2x12x16xf32, {device = "cuda:0"}>) -> tensor<2x12x16xf32, {device = "cuda:0"}>
%6 = "mlirc.cast"(%5) : (tensor<2x12x16xf32, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%7 = "mlirc.mul"(%6, %c) : (tensor<2x12x16xbf16, {device = "cuda:0"}>, tensor<f32, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%8 = "mlirc.add"(%1, %7) : (tensor<2x12x16xbf16, {device = "cuda:0"}>, tensor<2x12x16xbf16, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%9 = "mlirc.mul"(%8, %s) : (tensor<2x12x16xbf16, {device = "cuda:0"}>, tensor<f32, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%10 = "mlirc.tanh"(%9) : (tensor<2x12x16xbf16, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%11 = "mlirc.add"(%10, %o) : (tensor<2x12x16xbf16, {device = "cuda:0"}>, tensor<bf16, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
%12 = "mlirc.mul"(%2, %11) : (tensor<2x12x16xbf16, {device = "cuda:0"}>, tensor<2x12x16xbf16, {device = "cuda:0"}>) -> tensor<2x12x16xbf16, {device = "cuda:0"}>
return %12 : tensor<2x12x16xbf16, {device = "cuda:0"}>
}

// CHECK: "mlirc.addmm_gelu"
// CHECK: // ONE READER: fuse gelu, taken

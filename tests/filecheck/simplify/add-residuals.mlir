// RUN: mlirc-opt %s -p "add-residuals"

// CHECK-LABEL: func.func @residual
// CHECK:         %[[R:.*]] = "mlirc.view"(%arg0) {map = "d0//8, d0 % 8, d1", offset = "0"} {{.*}} -> tensor<16x32xbf16, {device = "cuda:0"}>
// CHECK:         %[[P:.*]] = "mlirc.addmm"(%[[R]], %arg1, %arg2)
// CHECK:         %[[V:.*]] = "mlirc.view"(%[[P]]) {map = "8*d0 + d1, d2", offset = "0"}
// CHECK-NOT:     "mlirc.add"(
// CHECK:         return %[[V]]
func.func @residual(%r: tensor<2x8x32xbf16, {device = "cuda:0"}>, %x: tensor<16x64xbf16, {device = "cuda:0"}>, %w: tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<2x8x32xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %1 = "mlirc.view"(%0) {map = "8*d0 + d1, d2", offset = "0"} : (tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<2x8x32xbf16, {device = "cuda:0"}>
  %2 = "mlirc.add"(%r, %1) : (tensor<2x8x32xbf16, {device = "cuda:0"}>, tensor<2x8x32xbf16, {device = "cuda:0"}>) -> tensor<2x8x32xbf16, {device = "cuda:0"}>
  return %2 : tensor<2x8x32xbf16, {device = "cuda:0"}>
}

// Three products are added in a chain, the later ones to the earlier.
// CHECK-LABEL: func.func @sum_of_products
// CHECK:         %[[A:.*]] = "mlirc.matmul"(%arg0, %arg1)
// CHECK:         %[[B:.*]] = "mlirc.addmm"(%[[A]], %arg0, %arg2)
// CHECK:         %[[C:.*]] = "mlirc.addmm"(%[[B]], %arg0, %arg3)
// CHECK:         return %[[C]]
func.func @sum_of_products(%x: tensor<16x64xbf16, {device = "cuda:0"}>, %u: tensor<64x32xbf16, {device = "cuda:0"}>, %v: tensor<64x32xbf16, {device = "cuda:0"}>, %w: tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.matmul"(%x, %u) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %1 = "mlirc.matmul"(%x, %v) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %2 = "mlirc.matmul"(%x, %w) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %3 = "mlirc.add"(%0, %1) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %4 = "mlirc.add"(%2, %3) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  return %4 : tensor<16x32xbf16, {device = "cuda:0"}>
}

// The product is also a result; the addend comes after the product; one that broadcasts; doubles; another device.
// CHECK-LABEL: func.func @stays
// CHECK-NOT:     mlirc.addmm
// CHECK:         return
func.func @stays(%r: tensor<16x32xbf16, {device = "cuda:0"}>, %x: tensor<16x64xbf16, {device = "cuda:0"}>, %w: tensor<64x32xbf16, {device = "cuda:0"}>, %b: tensor<32xbf16, {device = "cuda:0"}>, %c: tensor<16x64xbf16>, %d: tensor<64x32xbf16>, %e: tensor<16x32xbf16>) -> (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16>) {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %1 = "mlirc.add"(%r, %0) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %2 = "mlirc.matmul"(%x, %w) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %3 = "mlirc.neg"(%r) : (tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %4 = "mlirc.add"(%2, %3) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %5 = "mlirc.matmul"(%x, %w) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %6 = "mlirc.add"(%5, %b) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %7 = "mlirc.matmul"(%c, %d) : (tensor<16x64xbf16>, tensor<64x32xbf16>) -> tensor<16x32xbf16>
  %8 = "mlirc.add"(%7, %e) : (tensor<16x32xbf16>, tensor<16x32xbf16>) -> tensor<16x32xbf16>
  return %0, %1, %4, %6, %8 : tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16>
}

// What is added is overwritten between the product and the addition.
// CHECK-LABEL: func.func @overwritten
// CHECK-NOT:     mlirc.addmm
// CHECK:         return
func.func @overwritten(%r: tensor<16x32xbf16, {device = "cuda:0"}>, %x: tensor<16x64xbf16, {device = "cuda:0"}>, %w: tensor<64x32xbf16, {device = "cuda:0"}>, %n: tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  "mlirc.assign"(%r, %n) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> ()
  %1 = "mlirc.add"(%r, %0) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  return %1 : tensor<16x32xbf16, {device = "cuda:0"}>
}

// A product of one element, viewed as a number, is none to add to.
// CHECK-LABEL: func.func @number
// CHECK-NOT:     mlirc.addmm
// CHECK:         return
func.func @number(%r: tensor<f32, {device = "cuda:0"}>, %x: tensor<1x64xf32, {device = "cuda:0"}>, %w: tensor<64x1xf32, {device = "cuda:0"}>) -> tensor<f32, {device = "cuda:0"}> {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<1x64xf32, {device = "cuda:0"}>, tensor<64x1xf32, {device = "cuda:0"}>) -> tensor<1x1xf32, {device = "cuda:0"}>
  %1 = "mlirc.view"(%0) {map = "0, 0", offset = "0"} : (tensor<1x1xf32, {device = "cuda:0"}>) -> tensor<f32, {device = "cuda:0"}>
  %2 = "mlirc.add"(%r, %1) : (tensor<f32, {device = "cuda:0"}>, tensor<f32, {device = "cuda:0"}>) -> tensor<f32, {device = "cuda:0"}>
  return %2 : tensor<f32, {device = "cuda:0"}>
}

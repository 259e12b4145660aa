// RUN: mlirc-opt %s -p "defer-biases,add-residuals,canonicalize"

// The second sum takes the first one without its bias; both biases are added in float32 where the sums are read.
// CHECK-LABEL: func.func @stream
// CHECK:         %[[A:.*]] = "mlirc.addmm"(%arg0, %arg1, %arg2)
// CHECK:         %[[B:.*]] = "mlirc.cast"(%arg3) : {{.*}} -> tensor<32xf32
// CHECK:         %[[F:.*]] = "mlirc.cast"(%[[A]])
// CHECK:         %[[S:.*]] = "mlirc.add"(%[[F]], %[[B]])
// CHECK:         %[[T:.*]] = "mlirc.cast"(%[[S]])
// CHECK:         %[[N:.*]] = "mlirc.neg"(%[[T]])
// CHECK:         %[[D:.*]] = "mlirc.addmm"(%[[A]], %{{.*}}, %arg4)
// CHECK:         %[[C:.*]] = "mlirc.add"(%[[B]], %{{.*}}) : {{.*}} -> tensor<32xf32
// CHECK:         "mlirc.add"(%{{.*}}, %[[C]])
// CHECK:         "mlirc.neg"
func.func @stream(%r: tensor<16x32xbf16, {device = "cuda:0"}>, %x: tensor<16x64xbf16, {device = "cuda:0"}>, %w: tensor<64x32xbf16, {device = "cuda:0"}>, %b: tensor<32xbf16, {device = "cuda:0"}> {mlirc.parameter}, %v: tensor<32x32xbf16, {device = "cuda:0"}>, %c: tensor<32xbf16, {device = "cuda:0"}> {mlirc.parameter}) -> tensor<16x32xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.addmm"(%b, %x, %w) : (tensor<32xbf16, {device = "cuda:0"}>, tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %1 = "mlirc.add"(%r, %0) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %2 = "mlirc.neg"(%1) : (tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %3 = "mlirc.addmm"(%c, %2, %v) : (tensor<32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<32x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %4 = "mlirc.add"(%3, %1) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %5 = "mlirc.neg"(%4) : (tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  return %5 : tensor<16x32xbf16, {device = "cuda:0"}>
}

// The sum is a result; the product is one too; the bias is no parameter.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-3: "mlirc.addmm"
// CHECK-COUNT-3: "mlirc.add"(
// CHECK:         return
func.func @stays(%r: tensor<16x32xbf16, {device = "cuda:0"}>, %x: tensor<16x64xbf16, {device = "cuda:0"}>, %w: tensor<64x32xbf16, {device = "cuda:0"}>, %b: tensor<32xbf16, {device = "cuda:0"}> {mlirc.parameter}, %a: tensor<32xbf16, {device = "cuda:0"}>) -> (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) {
  %0 = "mlirc.addmm"(%b, %x, %w) : (tensor<32xbf16, {device = "cuda:0"}>, tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %1 = "mlirc.addmm"(%b, %x, %w) : (tensor<32xbf16, {device = "cuda:0"}>, tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %2 = "mlirc.addmm"(%a, %x, %w) : (tensor<32xbf16, {device = "cuda:0"}>, tensor<16x64xbf16, {device = "cuda:0"}>, tensor<64x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %3 = "mlirc.add"(%r, %0) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %4 = "mlirc.add"(%r, %1) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %5 = "mlirc.add"(%r, %2) : (tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %6 = "mlirc.neg"(%4) : (tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  %7 = "mlirc.neg"(%5) : (tensor<16x32xbf16, {device = "cuda:0"}>) -> tensor<16x32xbf16, {device = "cuda:0"}>
  return %3, %1, %6, %7 : tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>, tensor<16x32xbf16, {device = "cuda:0"}>
}

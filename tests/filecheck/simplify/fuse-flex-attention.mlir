// RUN: mlirc-opt %s -p "fuse-flex-attention,canonicalize" --target "cpu{arch=x86_64 vector-bytes=32},gpu{arch=sm_90 multiprocessors=132}"
// score_mod and mask_mod become the body of one op. What comes of memory and is the same for all keys stays outside: %bias + %bias.

// CHECK-LABEL: func.func @graph(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %[[K:[a-z0-9]*]]: {{.*}}, %[[V:[a-z0-9]*]]: {{.*}}, %[[COUNTS:[a-z0-9]*]]: {{.*}}, %[[INDICES:[a-z0-9]*]]: {{.*}}, %[[BIAS:[a-z0-9]*]]: {{.*}})
// CHECK: %[[TWICE:.*]] = "mlirc.add"(%[[BIAS]], %[[BIAS]])
// CHECK: "mlircx.flex_attention"(%[[Q]], %[[K]], %[[V]], %[[COUNTS]], %[[INDICES]], %[[TWICE]]) ({
// CHECK-NEXT: ^bb0(%[[S:.*]]: tensor<1x2x32x32xf32, {device = "cuda:0"}>, %[[B:.*]]: tensor<2x1x1xf32, {device = "cuda:0"}>):
// CHECK: "mlirc.mul"
// CHECK: "mlirc.ge"
// CHECK: "mlircx.yield"(%{{.*}}, %{{.*}}) {maps = ["d0, d1, d2, d3", "d0, d1, d2, d3"]} : (f32, i1) -> ()
// CHECK-NEXT: columns = 16 : i64, full = false, inner = "", label = "flex_attention", parallel = "1, 2, 32, 32", rows = 16 : i64, scale = 2.500000e-01 : f64
// CHECK-NOT: flex_scores
// CHECK: func.func @sorted
// CHECK: "mlirc.flex_attend"
// CHECK: // ONE KERNEL: generate flex_attend, taken
// CHECK: // NO KERNEL OF MLIRCX.ATEN: generate flex_attend, refused

func.func @graph(%q: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %k: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %v: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %counts: tensor<1x1x2xi32, {device = "cuda:0"}>, %indices: tensor<1x1x2x2xi32, {device = "cuda:0"}>, %bias: tensor<2x1x1xf32, {device = "cuda:0"}>) -> tensor<1x2x32x16xf16, {device = "cuda:0"}> {
  %s = "mlirc.flex_scores"(%q, %k) {scale = 0.25 : f64} : (tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>) -> tensor<1x2x32x32xf32, {device = "cuda:0"}>
  %b = "mlirc.add"(%bias, %bias) : (tensor<2x1x1xf32, {device = "cuda:0"}>, tensor<2x1x1xf32, {device = "cuda:0"}>) -> tensor<2x1x1xf32, {device = "cuda:0"}>
  %x = "mlirc.mul"(%s, %b) : (tensor<1x2x32x32xf32, {device = "cuda:0"}>, tensor<2x1x1xf32, {device = "cuda:0"}>) -> tensor<1x2x32x32xf32, {device = "cuda:0"}>
  %i = "mlirc.iota"() {expr = "d0"} : () -> tensor<32xi64, {device = "cuda:0"}>
  %c = "mlirc.view"(%i) {map = "d0", offset = "0"} : (tensor<32xi64, {device = "cuda:0"}>) -> tensor<32x1xi64, {device = "cuda:0"}>
  %m = "mlirc.ge"(%c, %i) : (tensor<32x1xi64, {device = "cuda:0"}>, tensor<32xi64, {device = "cuda:0"}>) -> tensor<32x32xi1, {device = "cuda:0"}>
  %o:3 = "mlirc.flex_attend"(%x, %m, %q, %k, %v, %counts, %indices, %counts, %indices) {columns = 16 : i64, full = false, order = "0, 1, 2, 3", rows = 16 : i64, scale = 0.25 : f64} : (tensor<1x2x32x32xf32, {device = "cuda:0"}>, tensor<32x32xi1, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x1x2xi32, {device = "cuda:0"}>, tensor<1x1x2x2xi32, {device = "cuda:0"}>, tensor<1x1x2xi32, {device = "cuda:0"}>, tensor<1x1x2x2xi32, {device = "cuda:0"}>) -> (tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32xf32, {device = "cuda:0"}>, tensor<1x2x32xf32, {device = "cuda:0"}>)
  return %o#0 : tensor<1x2x32x16xf16, {device = "cuda:0"}>
}

func.func @sorted(%q: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %k: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %v: tensor<1x2x32x16xf16, {device = "cuda:0"}>, %counts: tensor<1x1x2xi32, {device = "cuda:0"}>, %indices: tensor<1x1x2x2xi32, {device = "cuda:0"}>) -> tensor<1x2x32x16xf16, {device = "cuda:0"}> {
  %s = "mlirc.flex_scores"(%q, %k) {scale = 0.25 : f64} : (tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>) -> tensor<1x2x32x32xf32, {device = "cuda:0"}>
  %x, %places = "mlircx.aten"(%s) {op = "aten.sort.default", args = "[{\"$\": 0}]", aliases = "-1, -1"} : (tensor<1x2x32x32xf32, {device = "cuda:0"}>) -> (tensor<1x2x32x32xf32, {device = "cuda:0"}>, tensor<1x2x32x32xi64, {device = "cuda:0"}>)
  %i = "mlirc.iota"() {expr = "d0"} : () -> tensor<32xi64, {device = "cuda:0"}>
  %c = "mlirc.view"(%i) {map = "d0", offset = "0"} : (tensor<32xi64, {device = "cuda:0"}>) -> tensor<32x1xi64, {device = "cuda:0"}>
  %m = "mlirc.ge"(%c, %i) : (tensor<32x1xi64, {device = "cuda:0"}>, tensor<32xi64, {device = "cuda:0"}>) -> tensor<32x32xi1, {device = "cuda:0"}>
  %o:3 = "mlirc.flex_attend"(%x, %m, %q, %k, %v, %counts, %indices, %counts, %indices) {columns = 16 : i64, full = false, order = "0, 1, 2, 3", rows = 16 : i64, scale = 0.25 : f64} : (tensor<1x2x32x32xf32, {device = "cuda:0"}>, tensor<32x32xi1, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x1x2xi32, {device = "cuda:0"}>, tensor<1x1x2x2xi32, {device = "cuda:0"}>, tensor<1x1x2xi32, {device = "cuda:0"}>, tensor<1x1x2x2xi32, {device = "cuda:0"}>) -> (tensor<1x2x32x16xf16, {device = "cuda:0"}>, tensor<1x2x32xf32, {device = "cuda:0"}>, tensor<1x2x32xf32, {device = "cuda:0"}>)
  return %o#0 : tensor<1x2x32x16xf16, {device = "cuda:0"}>
}

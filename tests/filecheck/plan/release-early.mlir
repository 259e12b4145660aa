// RUN: mlirc opt %s -p release-early{least=1024} | filecheck %s

// LESS MEMORY: the weight's gradient goes before the input's, with the view that it reads, as %saved is not needed any more.
// CHECK-LABEL: func.func @moves
// CHECK-NEXT:    "mlircx.kernel"
// CHECK:         label = "dy"
// CHECK-NEXT:    %[[T:.*]] = "mlirc.view"(%[[DY:.*]]) {map = "d1, d0"
// CHECK-NEXT:    "mlirc.matmul"(%[[T]], %arg1)
// CHECK-NEXT:    "mlirc.matmul"(%[[DY]], %arg2)
func.func @moves(%g: tensor<64x32xf32>, %saved: tensor<64x16xf32>, %w: tensor<32x16xf32>) -> (tensor<64x16xf32>, tensor<32x16xf32>) attributes {mlirc.consumes} {
  %dy = "mlircx.kernel"(%g) ({
  ^bb0(%a: tensor<64x32xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<64x32xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "64, 32", inner = "", label = "dy"} : (tensor<64x32xf32>) -> tensor<64x32xf32>
  %dx = "mlirc.matmul"(%dy, %w) : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
  %t = "mlirc.view"(%dy) {map = "d1, d0", offset = "0"} : (tensor<64x32xf32>) -> tensor<32x64xf32, {stride = "1, 32"}>
  %dw = "mlirc.matmul"(%t, %saved) : (tensor<32x64xf32, {stride = "1, 32"}>, tensor<64x16xf32>) -> tensor<32x16xf32>
  return %dx, %dw : tensor<64x16xf32>, tensor<32x16xf32>
}

// It stays behind what else uses %saved, and behind a call with effects, which may write anywhere.
// CHECK-LABEL: func.func @stays
// CHECK:         "mlirc.matmul"(%arg1, %arg2)
// CHECK-NEXT:    "mlirc.matmul"(%{{.*}}, %arg1)
// CHECK-NEXT:    "mlirc.matmul"(%arg0, %arg0)
// CHECK-NEXT:    "mlircx.aten_effect"
// CHECK-NEXT:    "mlirc.matmul"(%arg0, %arg0)
// CHECK-NEXT:    "mlirc.matmul"(%arg3, %arg3)
func.func @stays(%x: tensor<64x64xf32>, %saved: tensor<16x64xf32>, %w: tensor<64x64xf32>, %other: tensor<64x64xf32>) -> (tensor<16x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) attributes {mlirc.consumes} {
  %t = "mlirc.view"(%saved) {map = "d1, d0", offset = "0"} : (tensor<16x64xf32>) -> tensor<64x16xf32, {stride = "1, 64"}>
  %1 = "mlirc.matmul"(%saved, %w) : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
  %2 = "mlirc.matmul"(%t, %saved) : (tensor<64x16xf32, {stride = "1, 64"}>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %3 = "mlirc.matmul"(%x, %x) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %e = "mlircx.aten_effect"(%x) {op = "aten.sin_.default", args = "[{\22$\22: 0}]", aliases = "0"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %4 = "mlirc.matmul"(%x, %x) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %5 = "mlirc.matmul"(%other, %other) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1, %2, %3, %5 : tensor<16x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

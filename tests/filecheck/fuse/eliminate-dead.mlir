// RUN: mlirc-opt %s -p "eliminate-dead"
func.func @graph(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<8xf32>) -> f32
    %v = "mlirc.exp"(%r) : (f32) -> f32
    "mlircx.yield"(%v) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "", label = "exp"} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<8xf32>) -> f32
    %v = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%v) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "", label = "neg"} : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// CHECK-NOT: mlirc.exp
// CHECK: "mlirc.neg"

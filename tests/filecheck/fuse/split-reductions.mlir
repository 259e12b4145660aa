// RUN: mlirc-opt %s -p "split-reductions"
module {
  func.func @graph(%arg0: tensor<8x65536xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}> {
    %0 = "mlircx.kernel"(%arg0) ({
    ^bb0(%arg1: tensor<8x65536xf32, {device = "cuda:0"}>):
      %1 = "mlirc.read"(%arg1) {map = "d0, d1", masked = false} : (tensor<8x65536xf32, {device = "cuda:0"}>) -> f32
      %2 = "mlirc.reduce"(%1) {kind = "sum"} : (f32) -> f32
      "mlircx.yield"(%2) {maps = ["d0"]} : (f32) -> ()
    }) {inner = "65536", label = "test", parallel = "8"} : (tensor<8x65536xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
    return %0 : tensor<8xf32, {device = "cuda:0"}>
  }
}

// CHECK: "mlirc.reduce"
// CHECK: inner = "4096"
// CHECK: "mlirc.reduce"
// CHECK: inner = "16"
// CHECK: // FEW ROWS: split test, taken

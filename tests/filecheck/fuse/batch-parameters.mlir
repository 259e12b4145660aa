// RUN: mlirc opt %s -p batch-parameters{max-reads=4} | filecheck %s

// PARAMETERS: two kernels of one space become one at the beginning, a view of a parameter before it; the one that reads a
// parameter which the graph writes to stays, and so does the one that reads an input.
// CHECK-LABEL: func.func @graph
// CHECK-NEXT:    "mlirc.view"(%arg1)
// CHECK-NEXT:    %[[R:.*]]:2 = "mlircx.kernel"(%arg1, %{{.*}}) ({
// CHECK:         "mlircx.kernel"(%arg0)
// CHECK:         label = "input"
// CHECK:         "mlirc.assign"
// CHECK:         "mlircx.kernel"(%arg2)
// CHECK:         label = "written"
// CHECK-NEXT:    return %{{.*}}, %[[R]]#0, %[[R]]#1, %{{.*}}
// CHECK:       // PARAMETERS: merge first, taken
func.func @graph(%x: tensor<8xf32, {device = "cuda:0"}>, %w: tensor<8xf32, {device = "cuda:0"}> {mlirc.parameter}, %b: tensor<8xf32, {device = "cuda:0"}> {mlirc.parameter}) -> (tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>) {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%t: tensor<8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d0", masked = false} : (tensor<8xf32, {device = "cuda:0"}>) -> f32
    %e = "mlirc.exp"(%r) : (f32) -> f32
    "mlircx.yield"(%e) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "", label = "input"} : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %1 = "mlircx.kernel"(%w) ({
  ^bb0(%t: tensor<8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d0", masked = false} : (tensor<8xf32, {device = "cuda:0"}>) -> f32
    %e = "mlirc.exp"(%r) : (f32) -> f32
    "mlircx.yield"(%e) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "", label = "first"} : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  "mlirc.assign"(%b, %0) : (tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>) -> ()
  %v = "mlirc.view"(%w) {map = "7 - d0", offset = "7"} : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0", stride = "-1"}>
  %2 = "mlircx.kernel"(%v) ({
  ^bb0(%t: tensor<8xf32, {device = "cuda:0", stride = "-1"}>):
    %r = "mlirc.read"(%t) {map = "d0", masked = false} : (tensor<8xf32, {device = "cuda:0", stride = "-1"}>) -> f32
    %e = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%e) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "", label = "second"} : (tensor<8xf32, {device = "cuda:0", stride = "-1"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %3 = "mlircx.kernel"(%b) ({
  ^bb0(%t: tensor<8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d0", masked = false} : (tensor<8xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%r) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "", label = "written"} : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  return %0, %1, %2, %3 : tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>
}

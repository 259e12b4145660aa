// RUN: mlirc opt %s -p batch-kernels{max-reads=2} | filecheck %s

// SMALL, READ LATER: two folds of parts are one kernel in the place of the second, a view of the first's result behind it;
// the third, which is one too many, stays.
// CHECK-LABEL: func.func @folds
// CHECK:         label = "parts"
// CHECK:         label = "more parts"
// CHECK:         %[[R:.*]]:2 = "mlircx.kernel"(%{{.*}}, %{{.*}}) ({
// CHECK:           mlirc.reduce
// CHECK:           mlirc.reduce
// CHECK-NEXT:      "mlircx.yield"(%{{.*}}, %{{.*}}) {maps = ["d0", "d0"]}
// CHECK:         "mlirc.view"(%[[R]]#0)
// CHECK:         "mlircx.kernel"
// CHECK:         label = "third"
// CHECK-NEXT:    return
func.func @folds(%x: tensor<4x8xf32, {device = "cuda:0"}>) -> (tensor<1x8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>) {
  %a = "mlircx.kernel"(%x) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d0, d1", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 8", inner = "", label = "parts"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0"}>
  %1 = "mlircx.kernel"(%a) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d1, d0", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    "mlircx.yield"(%s) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "4", label = "first"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %v = "mlirc.view"(%1) {map = "d1", offset = "0"} : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<1x8xf32, {device = "cuda:0"}>
  %b = "mlircx.kernel"(%a) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d0, d1", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %e = "mlirc.exp"(%r) : (f32) -> f32
    "mlircx.yield"(%e) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 8", inner = "", label = "more parts"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0"}>
  %2 = "mlircx.kernel"(%b) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d1, d0", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    "mlircx.yield"(%s) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "4", label = "second"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %3 = "mlircx.kernel"(%b) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d1, d0", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "max"} : (f32) -> f32
    "mlircx.yield"(%s) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "4", label = "third"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  return %v, %2, %3 : tensor<1x8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>
}

// Not: the first is read between the two; another space; what is read is an argument, which may be overwritten in between.
// CHECK-LABEL: func.func @stay
// CHECK:         label = "first"
// CHECK:         label = "reader"
// CHECK:         label = "second"
// CHECK:         label = "of an argument"
func.func @stay(%x: tensor<4x8xf32, {device = "cuda:0"}>) -> (tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>) {
  %a = "mlircx.kernel"(%x) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d0, d1", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 8", inner = "", label = "parts"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0"}>
  %1 = "mlircx.kernel"(%a) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d1, d0", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    "mlircx.yield"(%s) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "4", label = "first"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %v = "mlirc.view"(%1) {map = "d1", offset = "0"} : (tensor<8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0", stride = "0, 1"}>
  %b = "mlircx.kernel"(%v) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0", stride = "0, 1"}>):
    %r = "mlirc.read"(%t) {map = "d0, d1", masked = false} : (tensor<4x8xf32, {device = "cuda:0", stride = "0, 1"}>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 8", inner = "", label = "reader"} : (tensor<4x8xf32, {device = "cuda:0", stride = "0, 1"}>) -> tensor<4x8xf32, {device = "cuda:0"}>
  %2 = "mlircx.kernel"(%b) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d1, d0", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    "mlircx.yield"(%s) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "4", label = "second"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  %3 = "mlircx.kernel"(%x) ({
  ^bb0(%t: tensor<4x8xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%t) {map = "d1, d0", masked = false} : (tensor<4x8xf32, {device = "cuda:0"}>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    "mlircx.yield"(%s) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "8", inner = "4", label = "of an argument"} : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<8xf32, {device = "cuda:0"}>
  return %2, %3 : tensor<8xf32, {device = "cuda:0"}>, tensor<8xf32, {device = "cuda:0"}>
}

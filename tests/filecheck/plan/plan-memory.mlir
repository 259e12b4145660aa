// RUN: mlirc opt %s -p plan-memory | filecheck %s

// ARENA: two buffers that live at once lie side by side; one that dies leaves its place to the next of its size.
// IN PLACE: the second kernel reads %0 where it writes, but %0 lives on; the third may write where it reads %0.
// CHECK-LABEL: func.func @arena
// CHECK-SAME:    mlirc.arena = "128"
// CHECK:         %[[A:.*]] = "mlirc.slot"() {offset = "0"} : () -> tensor<16xf32>
// CHECK-NEXT:    "mlircx.launch"(%arg0, %[[A]])
// CHECK:         %[[B:.*]] = "mlirc.slot"() {offset = "64"} : () -> tensor<16xf32>
// CHECK-NEXT:    "mlircx.launch"(%[[A]], %[[B]])
// CHECK:         %[[C:.*]] = "mlirc.slot"() {offset = "0"} : () -> tensor<16xf32>
// CHECK-NEXT:    "mlircx.launch"(%[[A]], %[[B]], %[[C]])
// CHECK:         inputs = 2 : i64
// CHECK:         %[[D:.*]] = "mlirc.allocate"() : () -> tensor<16xf32>
// CHECK-NEXT:    "mlircx.launch"(%[[C]], %[[D]])
// CHECK:         return %[[D]]
func.func @arena(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<16xf32>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<16xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "16", inner = "", label = "first"} : (tensor<16xf32>) -> tensor<16xf32>
  %1 = "mlircx.kernel"(%0) ({
  ^bb0(%a: tensor<16xf32>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<16xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "16", inner = "", label = "second"} : (tensor<16xf32>) -> tensor<16xf32>
  %2 = "mlircx.kernel"(%0, %1) ({
  ^bb0(%a: tensor<16xf32>, %b: tensor<16xf32>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<16xf32>) -> f32
    %s = "mlirc.read"(%b) {map = "d0", masked = false} : (tensor<16xf32>) -> f32
    %t = "mlirc.add"(%r, %s) : (f32, f32) -> f32
    "mlircx.yield"(%t) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "16", inner = "", label = "third"} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %3 = "mlircx.kernel"(%2) ({
  ^bb0(%a: tensor<16xf32>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<16xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "16", inner = "", label = "fourth"} : (tensor<16xf32>) -> tensor<16xf32>
  return %3 : tensor<16xf32>
}

// Not IN PLACE: the transposed element is read, which another point of the space writes.
// CHECK-LABEL: func.func @transposed
// CHECK-SAME:    mlirc.arena = "128"
// CHECK:         "mlirc.slot"() {offset = "0"}
// CHECK:         "mlirc.slot"() {offset = "64"}
func.func @transposed(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x4xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "first"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "mlircx.kernel"(%0) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d1, d0", masked = false} : (tensor<4x4xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "second"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "mlirc.matmul"(%1, %1) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// IN PLACE after a reduction: the row is read once more in the last round, where it is written. The other output is
// written in the first round, before %0 is read for the last time, and gets a slot of its own.
// CHECK-LABEL: func.func @rows
// CHECK:         %[[X:.*]] = "mlirc.slot"() {offset = "0"} : () -> tensor<4x32xf32>
// CHECK:         %[[EARLY:.*]] = "mlirc.slot"() {offset = "512"} : () -> tensor<4x32xf32>
// CHECK-NEXT:    %[[LATE:.*]] = "mlirc.slot"() {offset = "0"} : () -> tensor<4x32xf32>
// CHECK-NEXT:    "mlircx.launch"(%[[X]], %[[EARLY]], %[[LATE]])
func.func @rows(%x: tensor<4x32xf32>) -> tensor<4x4xf32> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x32xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x32xf32>) -> f32
    "mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 32", inner = "", label = "first"} : (tensor<4x32xf32>) -> tensor<4x32xf32>
  %early, %late = "mlircx.kernel"(%0) ({
  ^bb0(%a: tensor<4x32xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x32xf32>) -> f32
    %s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    %t = "mlirc.div"(%r, %s) : (f32, f32) -> f32
    "mlircx.yield"(%r, %t) {maps = ["d0, d1", "d0, d1"]} : (f32, f32) -> ()
  }) {parallel = "4", inner = "32", label = "rows"} : (tensor<4x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>)
  %v = "mlirc.view"(%late) {map = "d1, d0", offset = "0"} : (tensor<4x32xf32>) -> tensor<32x4xf32, {stride = "1, 32"}>
  %1 = "mlirc.matmul"(%early, %v) : (tensor<4x32xf32>, tensor<32x4xf32, {stride = "1, 32"}>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

// Symbolic sizes: multiples of s0 share a section of the arena, static sizes lie before it.
// CHECK-LABEL: func.func @symbolic
// CHECK-SAME:    mlirc.arena = "128*s0 + 64"
// CHECK:         "mlirc.slot"() {offset = "64"} : () -> tensor<?x32xf32, {size = "s0, 32"}>
// CHECK:         "mlirc.slot"() {offset = "0"} : () -> tensor<f32>
// CHECK:         "mlirc.release"
func.func @symbolic(%x: tensor<?x32xf32, {size = "s0, 32"}>) -> tensor<f32> {
  %0 = "mlirc.copy"(%x) : (tensor<?x32xf32, {size = "s0, 32"}>) -> tensor<?x32xf32, {size = "s0, 32"}>
  %1 = "mlircx.aten"(%0) {op = "aten.amax.default", args = "[{\22$\22: 0}]", aliases = "-1"} : (tensor<?x32xf32, {size = "s0, 32"}>) -> tensor<f32>
  %2 = "mlirc.copy"(%1) : (tensor<f32>) -> tensor<f32>
  %3 = "mlircx.aten"(%2) {op = "aten.erfinv.default", args = "[{\22$\22: 0}]", aliases = "-1"} : (tensor<f32>) -> tensor<f32>
  return %3 : tensor<f32>
}

// A view keeps what it looks into: %0 is not given away while %v lives. What ATen returns is released after its last
// use, unless it is a result, itself or through a view.
// CHECK-LABEL: func.func @views
// CHECK:         %[[A:.*]] = "mlirc.slot"() {offset = "0"}
// CHECK:         %[[V:.*]] = "mlirc.view"(%[[A]])
// CHECK:         %[[OWN:.*]] = "mlircx.aten"(%[[V]])
// CHECK-NEXT:    %[[OTHER:.*]] = "mlircx.aten"(%[[OWN]])
// CHECK-NEXT:    "mlirc.release"(%[[OWN]])
// CHECK:         %[[R:.*]] = "mlirc.view"(%[[OTHER]])
// CHECK-NOT:     "mlirc.release"
// CHECK:         return %[[R]]
func.func @views(%x: tensor<4x4xf32>) -> tensor<16xf32> {
  %0 = "mlirc.copy"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %v = "mlirc.view"(%0) {map = "", offset = "0"} : (tensor<4x4xf32>) -> tensor<16xf32>
  %1 = "mlircx.aten"(%v) {op = "aten.erfinv.default", args = "[{\22$\22: 0}]", aliases = "-1"} : (tensor<16xf32>) -> tensor<16xf32>
  %2 = "mlircx.aten"(%1) {op = "aten.erfinv.default", args = "[{\22$\22: 0}]", aliases = "-1"} : (tensor<16xf32>) -> tensor<16xf32>
  %w = "mlirc.view"(%2) {map = "d0", offset = "0"} : (tensor<16xf32>) -> tensor<16xf32>
  return %w : tensor<16xf32>
}

// ALONE: where a graph frees its arguments as it goes, what is large on a GPU is memory of its own, until its last use.
// CHECK-LABEL: func.func @backward
// CHECK:         %[[A:.*]] = "mlirc.allocate"() : () -> tensor<4096x4096xf32, {device = "cuda:0"}>
// CHECK:         "mlircx.launch"(%arg0, %[[A]])
// CHECK:         %[[R:.*]] = "mlirc.allocate"() : () -> tensor<4096x4096xf32, {device = "cuda:0"}>
// CHECK:         "mlircx.launch"(%[[A]], %[[R]])
// CHECK:         label = "exp"
// CHECK-NEXT:    "mlirc.release"(%[[A]])
// CHECK-NEXT:    return %[[R]]
func.func @backward(%x: tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4096x4096xf32, {device = "cuda:0"}>):
    %v = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%v) {maps = ["d1, d0"]} : (f32) -> ()
  }) {inner = "", label = "turn", parallel = "4096, 4096"} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}>
  %1 = "mlircx.kernel"(%0) ({
  ^bb0(%a: tensor<4096x4096xf32, {device = "cuda:0"}>):
    %v = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> f32
    %e = "mlirc.exp"(%v) : (f32) -> f32
    "mlircx.yield"(%e) {maps = ["d0, d1"]} : (f32) -> ()
  }) {inner = "", label = "exp", parallel = "4096, 4096"} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}>
  return %1 : tensor<4096x4096xf32, {device = "cuda:0"}>
}

// IN PLACE there, too: the exponentials take the memory of what they are of, as a tensor of another shape.
// CHECK-LABEL: func.func @backward_in_place
// CHECK:         %[[A:.*]] = "mlirc.allocate"() : () -> tensor<4096x4096xf32, {device = "cuda:0"}>
// CHECK:         "mlircx.launch"(%arg0, %[[A]])
// CHECK:         %[[V:.*]] = "mlirc.view"(%[[A]]) {map = "(d0 // 4096), (d0 % 4096)"
// CHECK-NEXT:    %[[B:.*]] = "mlirc.view"(%[[A]]) {map = "", offset = "0"} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<16777216xf32
// CHECK-NEXT:    "mlircx.launch"(%[[V]], %[[B]])
// CHECK:         label = "exp"
// CHECK-NOT:     "mlirc.release"
// CHECK:         "mlirc.allocate"
// CHECK-NEXT:    "mlircx.launch"(%[[B]]
// CHECK:         label = "read"
// CHECK-NEXT:    "mlirc.release"(%[[A]])
func.func @backward_in_place(%x: tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<16777216xf32, {device = "cuda:0"}> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4096x4096xf32, {device = "cuda:0"}>):
    %v = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%v) {maps = ["d1, d0"]} : (f32) -> ()
  }) {inner = "", label = "turn", parallel = "4096, 4096"} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}>
  %v = "mlirc.view"(%0) {map = "(d0 // 4096), (d0 % 4096)", offset = "0"} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<16777216xf32, {device = "cuda:0"}>
  %1 = "mlircx.kernel"(%v) ({
  ^bb0(%a: tensor<16777216xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<16777216xf32, {device = "cuda:0"}>) -> f32
    %e = "mlirc.exp"(%r) : (f32) -> f32
    "mlircx.yield"(%e) {maps = ["d0"]} : (f32) -> ()
  }) {inner = "", label = "exp", parallel = "16777216"} : (tensor<16777216xf32, {device = "cuda:0"}>) -> tensor<16777216xf32, {device = "cuda:0"}>
  %2 = "mlircx.kernel"(%1) ({
  ^bb0(%a: tensor<16777216xf32, {device = "cuda:0"}>):
    %r = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<16777216xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%r) {maps = ["d0"]} : (f32) -> ()
  }) {inner = "", label = "read", parallel = "16777216"} : (tensor<16777216xf32, {device = "cuda:0"}>) -> tensor<16777216xf32, {device = "cuda:0"}>
  return %2 : tensor<16777216xf32, {device = "cuda:0"}>
}

// ALONE, whatever the graph is for.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[A:.*]] = "mlirc.allocate"() : () -> tensor<4096x4096xf32, {device = "cuda:0"}>
// CHECK:         label = "turn"
// CHECK:         "mlirc.release"(%[[A]])
func.func @forward(%x: tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4096x4096xf32, {device = "cuda:0"}>):
    %v = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> f32
    "mlircx.yield"(%v) {maps = ["d1, d0"]} : (f32) -> ()
  }) {inner = "", label = "turn", parallel = "4096, 4096"} : (tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}>
  %1 = "mlirc.matmul"(%0, %0) : (tensor<4096x4096xf32, {device = "cuda:0"}>, tensor<4096x4096xf32, {device = "cuda:0"}>) -> tensor<4096x4096xf32, {device = "cuda:0"}>
  return %1 : tensor<4096x4096xf32, {device = "cuda:0"}>
}

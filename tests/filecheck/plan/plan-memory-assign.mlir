// RUN: mlirc opt %s -p plan-memory | filecheck %s

// TO INPUT: the kernel reads each element of the input where it writes it.
// CHECK-LABEL: func.func @in_place
// CHECK-NEXT:    "mlircx.launch"(%arg0, %arg0)
// CHECK-NOT:     "mlirc.slot"
// CHECK:         return %arg0
func.func @in_place(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {mlirc.results = ["arg0"]} {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x4xf32>) -> f32
    %n = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%n) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "neg"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  "mlirc.assign"(%x, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
  return %x : tensor<4x4xf32>
}

// The transpose reads elements after others were written: it goes to a slot, and a copy to the input.
// CHECK-LABEL: func.func @transposed
// CHECK-NEXT:    %[[T:.*]] = "mlirc.slot"()
// CHECK-NEXT:    "mlircx.launch"(%arg0, %[[T]])
// CHECK:         label = "neg"
// CHECK-NEXT:    "mlircx.launch"(%[[T]], %arg0)
// CHECK:         label = "copy"
func.func @transposed(%x: tensor<4x4xf32>) {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d1, d0", masked = false} : (tensor<4x4xf32>) -> f32
    %n = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%n) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "neg"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  "mlirc.assign"(%x, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
  return
}

// The input is read after the kernel, and must be old there.
// CHECK-LABEL: func.func @read_between
// CHECK:         "mlircx.launch"(%arg0, %[[NEW:.*]]) ({
// CHECK:         "mlircx.call"(%arg0, %arg0, %[[P:.*]]) {callee = "matmul", inputs = 2 : i64}
// CHECK-NEXT:    "mlircx.launch"(%[[NEW]], %arg0)
func.func @read_between(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x4xf32>) -> f32
    %n = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%n) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "neg"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "mlirc.matmul"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  "mlirc.assign"(%x, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
  return %1 : tensor<4x4xf32>
}

// A product goes straight into a part of an input: the view moves before it.
// CHECK-LABEL: func.func @part
// CHECK-NEXT:    %[[V:.*]] = "mlirc.view"(%arg0) {map = "", offset = "16"}
// CHECK-NEXT:    "mlircx.call"(%arg1, %arg1, %[[V]])
func.func @part(%cache: tensor<8x4xf32>, %x: tensor<4x4xf32>) {
  %0 = "mlirc.matmul"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %v = "mlirc.view"(%cache) {map = "", offset = "16"} : (tensor<8x4xf32>) -> tensor<4x4xf32>
  "mlirc.assign"(%v, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
  return
}

// OLD VALUE: two inputs are swapped.
// CHECK-LABEL: func.func @swap
// CHECK:         %[[OLD:.*]] = "mlirc.slot"()
// CHECK-NEXT:    "mlircx.launch"(%arg0, %[[OLD]])
// CHECK:         "mlircx.launch"(%arg1, %arg0)
// CHECK:         "mlircx.launch"(%[[OLD]], %arg1)
func.func @swap(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  "mlirc.assign"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> ()
  "mlirc.assign"(%y, %x) : (tensor<4xf32>, tensor<4xf32>) -> ()
  return
}

// OWN MEMORY: results of two alias groups, or a result and an input, are two memories; those of one group may be one.
// CHECK-LABEL: func.func @results
// CHECK:         %[[A:.*]] = "mlirc.allocate"()
// CHECK-NEXT:    "mlircx.call"(%arg0, %arg0, %[[A]])
// CHECK:         %[[B:.*]] = "mlirc.allocate"()
// CHECK-NEXT:    "mlircx.launch"(%[[A]], %[[B]])
// CHECK:         %[[C:.*]] = "mlirc.allocate"()
// CHECK-NEXT:    "mlircx.launch"(%arg0, %[[C]])
// CHECK:         return %[[A]], %[[A]], %[[B]], %[[C]], %arg0
func.func @results(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) attributes {mlirc.results = ["g0", "g0", "g1", "g2", "arg0"]} {
  %0 = "mlirc.matmul"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0, %0, %0, %x, %x : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// TO INPUT: what reads the new value, before the assign or after it, reads the input.
// CHECK-LABEL: func.func @read_after
// CHECK-NEXT:    "mlircx.launch"(%arg0, %arg0)
// CHECK:         "mlircx.call"(%arg0, %arg1, %[[P:.*]]) {callee = "matmul", inputs = 2 : i64}
// CHECK:         "mlircx.call"(%arg1, %arg0, %[[Q:.*]]) {callee = "matmul", inputs = 2 : i64}
// CHECK-NEXT:    return %[[P]], %[[Q]]
func.func @read_after(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x4xf32>) -> f32
    %n = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%n) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "neg"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "mlirc.matmul"(%0, %y) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  "mlirc.assign"(%x, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
  %2 = "mlirc.matmul"(%y, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1, %2 : tensor<4x4xf32>, tensor<4x4xf32>
}

// The input's first rows hold something else when the value is read: it goes to a slot.
// CHECK-LABEL: func.func @written_twice
// CHECK-NEXT:    %[[T:.*]] = "mlirc.slot"()
// CHECK-NEXT:    "mlircx.launch"(%arg0, %[[T]])
// CHECK:         "mlircx.launch"(%[[T]], %arg0)
// CHECK:         "mlircx.call"(%[[T]], %[[T]], %{{.*}}) {callee = "matmul", inputs = 2 : i64}
func.func @written_twice(%x: tensor<4x4xf32>, %y: tensor<2x4xf32>) -> tensor<4x4xf32> {
  %0 = "mlircx.kernel"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %r = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<4x4xf32>) -> f32
    %n = "mlirc.neg"(%r) : (f32) -> f32
    "mlircx.yield"(%n) {maps = ["d0, d1"]} : (f32) -> ()
  }) {parallel = "4, 4", inner = "", label = "neg"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  "mlirc.assign"(%x, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> ()
  %v = "mlirc.view"(%x) {map = "", offset = "0"} : (tensor<4x4xf32>) -> tensor<2x4xf32>
  "mlirc.assign"(%v, %y) : (tensor<2x4xf32>, tensor<2x4xf32>) -> ()
  %1 = "mlirc.matmul"(%0, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

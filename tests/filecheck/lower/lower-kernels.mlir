// RUN: mlirc-opt %s --target cpu-avx512 -p "lower-kernels"

// Two launches of one structure, whatever their labels, share a function; contiguous dimensions are one loop of full vectors.
// CHECK-LABEL: func.func @contiguous
// The body stays with the run, for whoever reads or interprets it.
// CHECK:         "mlircx.run"(%arg0, %arg1) ({
// CHECK:           mlirc.neg
// CHECK:         }) {inner = "", inputs = 1 : i64, kernel = "kernel_0", label = "negate", messages = [], parallel = "4, 8, 16", symbols = ""}
// CHECK:         "mlircx.run"(%arg1, %arg0) ({
// CHECK:           mlirc.neg
// CHECK:         }) {{{.*}}kernel = "kernel_0", label = "negate_again"
func.func @contiguous(%x: tensor<4x8x16xf32>, %y: tensor<4x8x16xf32>) attributes {mlirc.arena = "0"} {
  "mlircx.launch"(%x, %y) ({
  ^bb0(%a: tensor<4x8x16xf32>):
    %0 = "mlirc.read"(%a) {map = "d0, d1, d2", masked = false} : (tensor<4x8x16xf32>) -> f32
    %1 = "mlirc.neg"(%0) : (f32) -> f32
    "mlircx.yield"(%1) {maps = ["d0, d1, d2"]} : (f32) -> ()
  }) {parallel = "4, 8, 16", inner = "", label = "negate", inputs = 1 : i64} : (tensor<4x8x16xf32>, tensor<4x8x16xf32>) -> ()
  "mlircx.launch"(%y, %x) ({
  ^bb0(%b: tensor<4x8x16xf32>):
    %value = "mlirc.read"(%b) {map = "d0, d1, d2", masked = false} : (tensor<4x8x16xf32>) -> f32
    %result = "mlirc.neg"(%value) : (f32) -> f32
    "mlircx.yield"(%result) {maps = ["d0, d1, d2"]} : (f32) -> ()
  }) {parallel = "4, 8, 16", inner = "", label = "negate_again", inputs = 1 : i64} : (tensor<4x8x16xf32>, tensor<4x8x16xf32>) -> ()
  return
}

// A row is folded with full vectors and a masked one, and the sizes come with the call.
// CHECK-LABEL: func.func @rows
// CHECK:         "mlircx.run"(%arg0, %arg1) ({
// CHECK:         }) {{{.*}}kernel = "kernel_1"{{.*}}symbols = "s0, s1"
func.func @rows(%x: tensor<?x?xf64, {size = "s0, s1"}>, %y: tensor<?xf64, {size = "s0"}>) attributes {mlirc.arena = "0"} {
  "mlircx.launch"(%x, %y) ({
  ^bb0(%a: tensor<?x?xf64, {size = "s0, s1"}>):
    %0 = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<?x?xf64, {size = "s0, s1"}>) -> f64
    %1 = "mlirc.reduce"(%0) {kind = "sum"} : (f64) -> f64
    "mlircx.yield"(%1) {maps = ["d0"]} : (f64) -> ()
  }) {parallel = "s0", inner = "s1", label = "sum", inputs = 1 : i64} : (tensor<?x?xf64, {size = "s0, s1"}>, tensor<?xf64, {size = "s0"}>) -> ()
  return
}

// CHECK-LABEL: llvm.func internal @kernel_0_body
// CHECK:         scf.for
// CHECK-NOT:     scf.for
// CHECK:         llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-NEXT:    arith.negf %{{.*}} : vector<16xf32>
// CHECK:         llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
// CHECK-NOT:     masked

// CHECK-LABEL: func.func @kernel_0(%arg0: !llvm.ptr) -> i64
// CHECK-NOT:     GOMP_parallel
// CHECK:         llvm.call @kernel_0_body

// CHECK-LABEL: llvm.func internal @kernel_1_body
// CHECK-COUNT-4: llvm.load %{{.*}} : !llvm.ptr -> vector<8xf64>
// CHECK:         llvm.intr.masked.load %{{.*}} -> vector<8xf64>
// CHECK:         vector.reduction <add>, %{{.*}} fastmath<reassoc> : vector<8xf64> into f64
// CHECK:         llvm.store %{{.*}} : f64, !llvm.ptr

// CHECK-LABEL: func.func @kernel_1(%arg0: !llvm.ptr) -> i64
// CHECK:         llvm.call @GOMP_parallel

// CHECK: // SAME STRUCTURE: share negate_again

// RUN: mlirc-opt %s -p "to-kernels,fuse-elementwise{max-ops=8},eliminate-dead"

// ONE SPACE: a chain is one kernel.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT:    %[[K:.*]] = "mlircx.kernel"(%arg0)
// CHECK:           %[[X:.*]] = "mlirc.read"
// CHECK-NEXT:      %[[E:.*]] = "mlirc.exp"(%[[X]])
// CHECK-NEXT:      %[[N:.*]] = "mlirc.neg"(%[[E]])
// CHECK-NEXT:      "mlircx.yield"(%[[N]])
// CHECK-NEXT:    label = "exp_neg"
// CHECK-NEXT:    return %[[K]]
func.func @chain(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.neg"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// A transposed view in between becomes an index expression; the exp is computed at each point once.
// CHECK-LABEL: func.func @through_a_view
// CHECK-NEXT:    "mlircx.kernel"(%arg0, %arg1)
// CHECK:           "mlirc.read"{{.*}}map = "d1, d0"
// CHECK:         label = "exp_add", parallel = "8, 4"
// CHECK-NEXT:    return
func.func @through_a_view(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "mlirc.view"(%0) {map = "d1, d0", offset = "0"} : (tensor<4x8xf32>) -> tensor<8x4xf32, {stride = "1, 8"}>
  %2 = "mlirc.add"(%1, %y) : (tensor<8x4xf32, {stride = "1, 8"}>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// A view without an index map is a barrier.
// CHECK-LABEL: func.func @view_without_map
// CHECK:         label = "exp"
// CHECK-NEXT:    "mlirc.view"
// CHECK:         label = "neg"
func.func @view_without_map(%x: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.view"(%0) {map = "", offset = "0"} : (tensor<8xf32>) -> tensor<2x8xf32, {stride = "0, 1"}>
  %2 = "mlirc.neg"(%1) : (tensor<2x8xf32, {stride = "0, 1"}>) -> tensor<2x8xf32>
  return %2 : tensor<2x8xf32>
}

// WRITTEN ONCE: what is returned too is written by the merged kernel.
// CHECK-LABEL: func.func @also_returned
// CHECK-NEXT:    %[[K:.*]]:2 = "mlircx.kernel"
// CHECK:           %[[E:.*]] = "mlirc.exp"
// CHECK-NEXT:      %[[N:.*]] = "mlirc.neg"(%[[E]])
// CHECK-NEXT:      "mlircx.yield"(%[[E]], %[[N]]) {maps = ["d0", "d0"]}
// CHECK:         return %[[K]]#0, %[[K]]#1
func.func @also_returned(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.neg"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// WRITTEN ONCE: not where the consumer has only a part of the points.
// CHECK-LABEL: func.func @part_of_what_is_returned
// CHECK:         label = "exp"
// CHECK:         label = "neg"
func.func @part_of_what_is_returned(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.view"(%0) {map = "d0", offset = "0"} : (tensor<8xf32>) -> tensor<4xf32>
  %2 = "mlirc.neg"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %2 : tensor<8xf32>, tensor<4xf32>
}

// NO RECOMPUTE: an exp is not computed for each row again, ...
// CHECK-LABEL: func.func @broadcast_expensive
// CHECK:         label = "exp"
// CHECK:         label = "add"
func.func @broadcast_expensive(%x: tensor<8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.add"(%0, %y) : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// ... but two results that are read at the same points are one expression.
// CHECK-LABEL: func.func @two_results
// CHECK-NEXT:    "mlircx.kernel"(%arg0)
// CHECK-NOT:     "mlircx.kernel"
// CHECK:         return
func.func @two_results(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.sin"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "mlirc.cos"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %3 = "mlirc.add"(%1, %2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}

// ... a negation is.
// CHECK-LABEL: func.func @broadcast_cheap
// CHECK:         label = "neg_add"
// CHECK-NEXT:    return
func.func @broadcast_cheap(%x: tensor<8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "mlirc.neg"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.add"(%0, %y) : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// RECOMPUTE: two readers widen the bfloat16 themselves; the float32 is stored for nobody.
// CHECK-LABEL: func.func @cast_for_two
// CHECK-NEXT:    "mlircx.kernel"(%arg0)
// CHECK:         label = "exp"{{.*}} : (tensor<8xbf16>) -> tensor<8xf32>
// CHECK:         label = "mul_sum"{{.*}} : (tensor<8xbf16>, tensor<8xf32>) -> tensor<f32>
// CHECK-NEXT:    return
func.func @cast_for_two(%x: tensor<8xbf16>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>) {
  %0 = "mlirc.cast"(%x) : (tensor<8xbf16>) -> tensor<8xf32>
  %1 = "mlirc.exp"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "mlirc.mul"(%0, %y) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = "mlirc.sum"(%2) {dims = "0", keepdim = false} : (tensor<8xf32>) -> tensor<f32>
  return %1, %3 : tensor<8xf32>, tensor<f32>
}

// NO CYCLE: the sort needs the exp, and the sum needs the sort.
// CHECK-LABEL: func.func @no_cycle
// CHECK:         label = "exp"
// CHECK-NEXT:    "mlircx.aten"
// CHECK:         label = "add"
func.func @no_cycle(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1:2 = "mlircx.aten"(%0) {op = "aten.sort.default", args = "[{\22$\22: 0}]", aliases = "-1, -1"} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi64>)
  %2 = "mlirc.add"(%0, %1#0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0, %2 : tensor<8xf32>, tensor<8xf32>
}

// KEEP THE PRECISION: a bfloat16 that is only read back stays a float32; an explicit cast rounds.
// CHECK-LABEL: func.func @half
// CHECK:           %[[E:.*]] = "mlirc.exp"
// CHECK-NEXT:      "mlirc.neg"(%[[E]]) : (f32) -> f32
// CHECK:           %[[S:.*]] = "mlirc.sin"
// CHECK-NEXT:      %[[R:.*]] = "mlirc.cast"(%[[S]]) : (f32) -> bf16
// CHECK-NEXT:      %[[W:.*]] = "mlirc.cast"(%[[R]]) {implicit = true} : (bf16) -> f32
// CHECK-NEXT:      "mlirc.abs"(%[[W]])
func.func @half(%x: tensor<8xbf16>) -> (tensor<8xbf16>, tensor<8xbf16>) {
  %0 = "mlirc.exp"(%x) : (tensor<8xbf16>) -> tensor<8xbf16>
  %1 = "mlirc.neg"(%0) : (tensor<8xbf16>) -> tensor<8xbf16>
  %2 = "mlirc.cast"(%x) : (tensor<8xbf16>) -> tensor<8xf32>
  %3 = "mlirc.sin"(%2) : (tensor<8xf32>) -> tensor<8xf32>
  %4 = "mlirc.cast"(%3) : (tensor<8xf32>) -> tensor<8xbf16>
  %5 = "mlirc.abs"(%4) : (tensor<8xbf16>) -> tensor<8xbf16>
  return %1, %5 : tensor<8xbf16>, tensor<8xbf16>
}

// A part of a concatenation is computed where its mask holds.
// CHECK-LABEL: func.func @into_concat
// CHECK-NEXT:    "mlircx.kernel"(%arg0, %arg1)
// CHECK:           %[[M:.*]] = "mlirc.lt"
// CHECK-NEXT:      %[[X:.*]] = "mlirc.read"({{.*}}, %[[M]]) {map = "d0", masked = true}
// CHECK-NEXT:      %[[N:.*]] = "mlirc.neg"(%[[X]])
// CHECK:           "mlirc.select"(%[[M]], %[[N]],
func.func @into_concat(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "mlirc.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "mlirc.cat2"(%0, %y) {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// MASKED: but not an exp, whose value would mostly be thrown away.
// CHECK-LABEL: func.func @expensive_into_concat
// CHECK:         label = "exp"
// CHECK:         label = "cat"
func.func @expensive_into_concat(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "mlirc.cat2"(%0, %y) {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// LIMITS: nine ops are one too many for max-ops=8.
// CHECK-LABEL: func.func @limits
// CHECK-COUNT-8:   "mlirc.exp"
// CHECK-NEXT:      "mlircx.yield"
// CHECK:           "mlirc.exp"
// CHECK-NEXT:      "mlircx.yield"
func.func @limits(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.exp"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "mlirc.exp"(%1) : (tensor<8xf32>) -> tensor<8xf32>
  %3 = "mlirc.exp"(%2) : (tensor<8xf32>) -> tensor<8xf32>
  %4 = "mlirc.exp"(%3) : (tensor<8xf32>) -> tensor<8xf32>
  %5 = "mlirc.exp"(%4) : (tensor<8xf32>) -> tensor<8xf32>
  %6 = "mlirc.exp"(%5) : (tensor<8xf32>) -> tensor<8xf32>
  %7 = "mlirc.exp"(%6) : (tensor<8xf32>) -> tensor<8xf32>
  %8 = "mlirc.exp"(%7) : (tensor<8xf32>) -> tensor<8xf32>
  return %8 : tensor<8xf32>
}

// A later write to the argument stays behind the kernel that reads it.
// CHECK-LABEL: func.func @before_the_write
// CHECK:         label = "exp_neg"
// CHECK-NEXT:    "mlirc.assign"(%arg0, %arg1)
func.func @before_the_write(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  "mlirc.assign"(%x, %y) : (tensor<8xf32>, tensor<8xf32>) -> ()
  %1 = "mlirc.neg"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// WITH ITS ROWS: on a GPU a number a row, made of the row's sum, waits for the kernel that sums up rows.
// CHECK-LABEL: func.func @of_rows(
// CHECK:         label = "sum"
// CHECK:         label = "exp"
// CHECK:         label = "sum", parallel = ""
func.func @of_rows(%x: tensor<2048x64xf32, {device = "cuda:0"}>) -> tensor<f32, {device = "cuda:0"}> {
  %0 = "mlirc.sum"(%x) {dims = "1", keepdim = false} : (tensor<2048x64xf32, {device = "cuda:0"}>) -> tensor<2048xf32, {device = "cuda:0"}>
  %1 = "mlirc.exp"(%0) : (tensor<2048xf32, {device = "cuda:0"}>) -> tensor<2048xf32, {device = "cuda:0"}>
  %2 = "mlirc.sum"(%1) {dims = "0", keepdim = false} : (tensor<2048xf32, {device = "cuda:0"}>) -> tensor<f32, {device = "cuda:0"}>
  return %2 : tensor<f32, {device = "cuda:0"}>
}

// CHECK-LABEL: func.func @of_rows_on_a_cpu
// CHECK:         label = "sum"
// CHECK:         label = "exp_sum"
func.func @of_rows_on_a_cpu(%x: tensor<2048x64xf32>) -> tensor<f32> {
  %0 = "mlirc.sum"(%x) {dims = "1", keepdim = false} : (tensor<2048x64xf32>) -> tensor<2048xf32>
  %1 = "mlirc.exp"(%0) : (tensor<2048xf32>) -> tensor<2048xf32>
  %2 = "mlirc.sum"(%1) {dims = "0", keepdim = false} : (tensor<2048xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// What was decided, in the order of the functions and of the tries.
// CHECK:      // ONE SPACE: fuse exp -> neg, taken
// CHECK:      // WRITTEN ONCE: fuse exp -> neg, refused
// CHECK:      // NO RECOMPUTE: fuse exp -> add, refused
// CHECK:      // RECOMPUTE: recompute cast -> exp, taken
// CHECK:      // NO CYCLE: fuse exp -> add, refused
// CHECK:      // MASKED: fuse exp -> cat, refused
// CHECK:      // LIMITS: fuse exp -> exp, refused
// CHECK:      // WITH ITS ROWS: fuse exp -> sum, refused
// CHECK:      // ONE SPACE: fuse exp -> sum, taken

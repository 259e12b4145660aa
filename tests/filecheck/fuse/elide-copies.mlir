// RUN: mlirc-opt %s -p "to-kernels,elide-copies"

// CHECK-LABEL: func.func @product
// CHECK:         %[[P:.*]] = "mlirc.matmul"
// CHECK:         "mlircx.aten"(%[[P]], {{.*}}aliases = "0"{{.*}}op = "aten.index_add_.default"
func.func @product(%d: tensor<50x7xf32>, %x: tensor<7x8xf32>, %rows: tensor<7x8xf32>, %tokens: tensor<7xi64>) -> tensor<50x8xf32> {
  %0 = "mlirc.matmul"(%d, %x) : (tensor<50x7xf32>, tensor<7x8xf32>) -> tensor<50x8xf32>
  %1 = "mlircx.aten"(%0, %tokens, %rows) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_add.default"} : (tensor<50x8xf32>, tensor<7xi64>, tensor<7x8xf32>) -> tensor<50x8xf32>
  return %1 : tensor<50x8xf32>
}

// Zeros that a clean-up made one value are two again.
// CHECK-LABEL: func.func @zeros
// CHECK:         %[[A:.*]] = "mlircx.kernel"()
// CHECK:         %[[B:.*]] = "mlircx.kernel"()
// CHECK:         "mlircx.aten"(%[[B]], %arg1, %arg0) {{.*}}aten.index_add_.default
// CHECK:         "mlircx.aten"(%[[A]], %arg2, %arg0) {{.*}}aten.index_add_.default
func.func @zeros(%rows: tensor<7x8xf32>, %i: tensor<7xi64>, %j: tensor<7xi64>) -> (tensor<50x8xf32>, tensor<50x8xf32>) {
  %zero = "mlirc.constant"() {value = "0x0.0p+0"} : () -> tensor<f32>
  %wide = "mlirc.view"(%zero) {map = "", offset = "0"} : (tensor<f32>) -> tensor<50x8xf32, {stride = "0, 0"}>
  %zeros = "mlirc.copy"(%wide) : (tensor<50x8xf32, {stride = "0, 0"}>) -> tensor<50x8xf32>
  %0 = "mlircx.aten"(%zeros, %i, %rows) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_add.default"} : (tensor<50x8xf32>, tensor<7xi64>, tensor<7x8xf32>) -> tensor<50x8xf32>
  %1 = "mlircx.aten"(%zeros, %j, %rows) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_add.default"} : (tensor<50x8xf32>, tensor<7xi64>, tensor<7x8xf32>) -> tensor<50x8xf32>
  return %0, %1 : tensor<50x8xf32>, tensor<50x8xf32>
}

// An argument is the caller's, and a value that is read again must keep what it holds; a view is somebody else's memory.
// CHECK-LABEL: func.func @stay
// CHECK-NOT:     index_add_
func.func @stay(%x: tensor<8x8xf32>, %rows: tensor<7x8xf32>, %i: tensor<7xi64>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = "mlircx.aten"(%x, %i, %rows) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_add.default"} : (tensor<8x8xf32>, tensor<7xi64>, tensor<7x8xf32>) -> tensor<8x8xf32>
  %y = "mlirc.matmul"(%x, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "mlircx.aten"(%y, %i, %rows) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_add.default"} : (tensor<8x8xf32>, tensor<7xi64>, tensor<7x8xf32>) -> tensor<8x8xf32>
  return %0, %1, %y : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// TO INPUT: a cache gets two rows, one after the other, and is read, before the assign and after it.
// CHECK-LABEL: func.func @cache
// CHECK:         %[[A:.*]] = "mlircx.aten_effect"(%arg0, %arg2, %arg1) {aliases = "0", {{.*}}op = "aten.index_copy_.default"
// CHECK-NEXT:    %[[B:.*]] = "mlircx.aten_effect"(%[[A]], %arg3, %arg1) {aliases = "0", {{.*}}op = "aten.index_copy_.default"
// CHECK-NEXT:    "mlirc.matmul"(%[[B]], %[[B]])
// CHECK-NOT:     "mlirc.assign"
// CHECK:         "mlirc.matmul"
// CHECK:         return
func.func @cache(%x: tensor<8x8xf32>, %row: tensor<1x8xf32>, %i: tensor<1xi64>, %j: tensor<1xi64>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = "mlircx.aten"(%x, %i, %row) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_copy.default"} : (tensor<8x8xf32>, tensor<1xi64>, tensor<1x8xf32>) -> tensor<8x8xf32>
  %1 = "mlircx.aten"(%0, %j, %row) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_copy.default"} : (tensor<8x8xf32>, tensor<1xi64>, tensor<1x8xf32>) -> tensor<8x8xf32>
  %2 = "mlirc.matmul"(%1, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  "mlirc.assign"(%x, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  %3 = "mlirc.matmul"(%1, %2) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2, %3 : tensor<8x8xf32>, tensor<8x8xf32>
}

// Another write to the argument, which the call must not see; a value that is read after the next call has changed it.
// CHECK-LABEL: func.func @another_write
// CHECK-NOT:     index_copy_
func.func @another_write(%x: tensor<8x8xf32>, %row: tensor<1x8xf32>, %i: tensor<1xi64>) -> tensor<8x8xf32> {
  %v = "mlirc.view"(%x) {map = "", offset = "0"} : (tensor<8x8xf32>) -> tensor<1x8xf32>
  "mlirc.assign"(%v, %row) : (tensor<1x8xf32>, tensor<1x8xf32>) -> ()
  %0 = "mlircx.aten"(%x, %i, %row) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_copy.default"} : (tensor<8x8xf32>, tensor<1xi64>, tensor<1x8xf32>) -> tensor<8x8xf32>
  "mlirc.assign"(%x, %0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  %1 = "mlirc.matmul"(%0, %0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// CHECK-LABEL: func.func @read_between
// CHECK-NOT:     index_copy_
func.func @read_between(%x: tensor<8x8xf32>, %row: tensor<1x8xf32>, %i: tensor<1xi64>) -> tensor<8x8xf32> {
  %0 = "mlircx.aten"(%x, %i, %row) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_copy.default"} : (tensor<8x8xf32>, tensor<1xi64>, tensor<1x8xf32>) -> tensor<8x8xf32>
  %1 = "mlircx.aten"(%0, %i, %row) {aliases = "-1", args = "[{\22$\22: 0}, 0, {\22$\22: 1}, {\22$\22: 2}]", op = "aten.index_copy.default"} : (tensor<8x8xf32>, tensor<1xi64>, tensor<1x8xf32>) -> tensor<8x8xf32>
  "mlirc.assign"(%x, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  %2 = "mlirc.matmul"(%0, %0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

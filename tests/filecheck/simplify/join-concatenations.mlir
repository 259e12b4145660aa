// RUN: mlirc-opt %s -p "join-concatenations"

// The first operands are joined already, along the same dimension, and what was made of that counts, too; -3 is 1.
// CHECK-LABEL: func.func @graph
// CHECK:         %[[A:.*]] = "mlirc.cat4"(%arg0, %arg1, %arg2, %arg3) {dim = 1
// CHECK-NEXT:    %[[B:.*]] = "mlirc.cat2"(%[[A]], %arg4) {dim = 1
// CHECK-NEXT:    %[[C:.*]] = "mlirc.cat4"(%[[B]], %arg5, %arg0, %arg0) {dim = 1
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]]
func.func @graph(%a: tensor<2x3x4x5xf32>, %b: tensor<2x3x4x5xf32>, %c: tensor<2x3x4x5xf32>, %d: tensor<2x3x4x5xf32>, %e: tensor<2x6x4x5xf32>, %f: tensor<2x1x4x5xf32>) -> (tensor<2x12x4x5xf32>, tensor<2x18x4x5xf32>, tensor<2x25x4x5xf32>) {
  %0 = "mlirc.cat4"(%a, %b, %c, %d) {dim = 1 : i64} : (tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>) -> tensor<2x12x4x5xf32>
  %1 = "mlircx.aten"(%a, %b, %c, %d, %e) {aliases = "-1", args = "[[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, {\22$\22: 3}, {\22$\22: 4}], 1]", op = "aten.cat.default"} : (tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x6x4x5xf32>) -> tensor<2x18x4x5xf32>
  %2 = "mlircx.aten"(%a, %b, %c, %d, %e, %f) {aliases = "-1", args = "[[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 2}, {\22$\22: 3}, {\22$\22: 4}, {\22$\22: 5}, {\22$\22: 0}, {\22$\22: 0}], -3]", op = "aten.cat.default"} : (tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<2x6x4x5xf32>, tensor<2x1x4x5xf32>) -> tensor<2x25x4x5xf32>
  return %0, %1, %2 : tensor<2x12x4x5xf32>, tensor<2x18x4x5xf32>, tensor<2x25x4x5xf32>
}

// Not along another dimension, not of other operands, and not where five parts would be left.
// CHECK-LABEL: func.func @others
// CHECK:         "mlirc.cat2"
// CHECK-COUNT-3: "mlircx.aten"
// CHECK: // FEW PARTS: join aten.cat.default, taken
// CHECK: // FEW PARTS: join aten.cat.default, taken
// CHECK-NEXT: // FEW PARTS: join aten.cat.default, refused
func.func @others(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>) -> (tensor<4x2xf32>, tensor<2x10xf32>, tensor<10x2xf32>, tensor<12x2xf32>) {
  %0 = "mlirc.cat2"(%a, %b) {dim = 0 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
  %1 = "mlircx.aten"(%a, %b) {aliases = "-1", args = "[[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 0}, {\22$\22: 1}, {\22$\22: 0}], 1]", op = "aten.cat.default"} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x10xf32>
  %2 = "mlircx.aten"(%a, %b) {aliases = "-1", args = "[[{\22$\22: 1}, {\22$\22: 0}, {\22$\22: 0}, {\22$\22: 1}, {\22$\22: 0}]]", op = "aten.cat.default"} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<10x2xf32>
  %3 = "mlircx.aten"(%a, %b) {aliases = "-1", args = "[[{\22$\22: 0}, {\22$\22: 1}, {\22$\22: 0}, {\22$\22: 1}, {\22$\22: 0}, {\22$\22: 1}]]", op = "aten.cat.default"} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<12x2xf32>
  return %0, %1, %2, %3 : tensor<4x2xf32>, tensor<2x10xf32>, tensor<10x2xf32>, tensor<12x2xf32>
}

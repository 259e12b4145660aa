// RUN: mlirc-opt %s -p "generate-quantised-matmuls,canonicalize,eliminate-dead"
func.func @graph(%x: tensor<2x64xf32>, %w: tensor<32x64xi8>, %s: tensor<32x1xf32>, %many: tensor<9x64xf32>) -> (tensor<2x32xf32>, tensor<9x32xf32>) {
  %0 = "mlirc.cast"(%w) : (tensor<32x64xi8>) -> tensor<32x64xf32>
  %1 = "mlirc.mul"(%0, %s) : (tensor<32x64xf32>, tensor<32x1xf32>) -> tensor<32x64xf32>
  %2 = "mlirc.view"(%1) {map = "d1, d0", offset = "0"} : (tensor<32x64xf32>) -> tensor<64x32xf32, {stride = "1, 64"}>
  %3 = "mlirc.matmul"(%x, %2) : (tensor<2x64xf32>, tensor<64x32xf32, {stride = "1, 64"}>) -> tensor<2x32xf32>
  %4 = "mlirc.matmul"(%many, %2) : (tensor<9x64xf32>, tensor<64x32xf32, {stride = "1, 64"}>) -> tensor<9x32xf32>
  return %3, %4 : tensor<2x32xf32>, tensor<9x32xf32>
}

// CHECK: "mlircx.kernel"
// CHECK: {map = "d1, d2", masked = false} : (tensor<32x64xi8>) -> i8
// CHECK: {map = "d1, 0", masked = false} : (tensor<32x1xf32>) -> f32
// CHECK: {kind = "sum"}
// CHECK: "mlirc.matmul"
// CHECK: // IN REGISTERS: generate mlirc.matmul, taken
// CHECK: // MANY ROWS: generate mlirc.matmul, refused

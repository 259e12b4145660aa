// RUN: mlirc-opt %s -p "generate-matmuls"
func.func @graph(%x: tensor<64x96xf32>, %w: tensor<64x96xf32> {mlirc.parameter}, %v: tensor<96x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %0 = "mlirc.view"(%w) {map = "d1, d0", offset = "0"} : (tensor<64x96xf32>) -> tensor<96x64xf32, {stride = "1, 96"}>
  %1 = "mlirc.matmul"(%x, %0) : (tensor<64x96xf32>, tensor<96x64xf32, {stride = "1, 96"}>) -> tensor<64x64xf32>
  %2 = "mlirc.matmul"(%x, %v) : (tensor<64x96xf32>, tensor<96x64xf32>) -> tensor<64x64xf32>
  return %1, %2 : tensor<64x64xf32>, tensor<64x64xf32>
}

// CHECK-NOT: "mlirc.matmul"
// CHECK: "mlirc.reduce"
// CHECK: "mlirc.reduce"
// CHECK: // IN PLACE: generate mlirc.matmul, taken

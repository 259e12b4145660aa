// RUN: mlirc-opt %s -p "generate-matmuls"
// Few steps and many results, of which the second is read by an op that a kernel takes in; large rows by few columns.
func.func @graph(%a: tensor<512x8xf32>, %b: tensor<8x1000xf32>, %x: tensor<512x4096xf32>, %w: tensor<8x4096xf32> {mlirc.parameter}) -> (tensor<512x1000xf32>, tensor<512x1000xf32>, tensor<512x8xf32>) {
  %0 = "mlirc.matmul"(%a, %b) : (tensor<512x8xf32>, tensor<8x1000xf32>) -> tensor<512x1000xf32>
  %1 = "mlirc.matmul"(%a, %b) : (tensor<512x8xf32>, tensor<8x1000xf32>) -> tensor<512x1000xf32>
  %2 = "mlirc.relu"(%1) : (tensor<512x1000xf32>) -> tensor<512x1000xf32>
  %3 = "mlirc.view"(%w) {map = "d1, d0", offset = "0"} : (tensor<8x4096xf32>) -> tensor<4096x8xf32, {stride = "1, 4096"}>
  %4 = "mlirc.matmul"(%x, %3) : (tensor<512x4096xf32>, tensor<4096x8xf32, {stride = "1, 4096"}>) -> tensor<512x8xf32>
  return %0, %2, %4 : tensor<512x1000xf32>, tensor<512x1000xf32>, tensor<512x8xf32>
}

// CHECK: "mlirc.matmul"
// CHECK: "mlirc.reduce"
// CHECK: "mlirc.relu"
// CHECK: "mlirc.matmul"
// CHECK-DAG: // FOLLOWED: generate mlirc.matmul, refused
// CHECK-DAG: // FEW COLUMNS: generate mlirc.matmul, refused

// RUN: mlirc-opt %s -p "split-channel-sums"
func.func @graph(%x: tensor<2x32x8x64x64xf32, {stride = "1048576, 8, 1, 16384, 256"}>, %y: tensor<2x32x8x64x64xf32>) -> (tensor<2x32x1x1x1xf32>, tensor<2x32xf32>, tensor<2x32x1x1x1xf32>) {
%0 = "mlirc.sum"(%x) {dims = "2, 3, 4", keepdim = true} : (tensor<2x32x8x64x64xf32, {stride = "1048576, 8, 1, 16384, 256"}>) -> tensor<2x32x1x1x1xf32>
%1 = "mlirc.sum"(%x) {dims = "2, 3, 4", keepdim = false} : (tensor<2x32x8x64x64xf32, {stride = "1048576, 8, 1, 16384, 256"}>) -> tensor<2x32xf32>
%2 = "mlirc.sum"(%y) {dims = "2, 3, 4", keepdim = true} : (tensor<2x32x8x64x64xf32>) -> tensor<2x32x1x1x1xf32>
return %0, %1, %2 : tensor<2x32x1x1x1xf32>, tensor<2x32xf32>, tensor<2x32x1x1x1xf32>
}

// CHECK: %[[ROWS:.*]] = "mlirc.sum"(%arg0) {dims = "3, 4", keepdim = true}
// CHECK-SAME: tensor<2x32x8x1x1xf32>
// CHECK-NEXT: "mlirc.sum"(%[[ROWS]]) {dims = "2", keepdim = true}
// CHECK-SAME: tensor<2x32x1x1x1xf32>
// CHECK: "mlirc.sum"(%{{.*}}) {dims = "2, 3, 4", keepdim = false} : (tensor<2x32x8x1x1xf32>)
// CHECK-SAME: tensor<2x32xf32>
// CHECK: "mlirc.sum"(%arg1) {dims = "2, 3, 4", keepdim = true} : (tensor<2x32x8x64x64xf32>)
// CHECK: // SHORT RUNS: split sum, taken

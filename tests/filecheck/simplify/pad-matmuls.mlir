// RUN: mlirc-opt %s -p "pad-matmuls,eliminate-views,canonicalize,cse"

// Rows of 30522 elements are no multiple of 16 bytes: the second matrix is padded as it lies, by rows of %w.
// CHECK-LABEL: func.func @vocabulary
// CHECK:         %[[P:.*]] = "mlirc.pad"(%arg1) {{.*}} -> tensor<30528x768xbf16, {device = "cuda:0"}>
// CHECK:         "mlirc.view"(%[[P]]) {map = "d1, d0", offset = "0"}
// CHECK:         %[[M:.*]] = "mlirc.matmul"({{.*}} -> tensor<8192x30528xbf16, {device = "cuda:0"}>
// CHECK:         %[[V:.*]] = "mlirc.view"(%[[M]])
// CHECK:         "mlirc.copy"(%[[V]]) {{.*}} -> tensor<8192x30522xbf16, {device = "cuda:0"}>
func.func @vocabulary(%x: tensor<8192x768xbf16, {device = "cuda:0"}>, %w: tensor<30522x768xbf16, {device = "cuda:0"}>) -> tensor<8192x30522xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.view"(%w) {map = "d1, d0", offset = "0"} : (tensor<30522x768xbf16, {device = "cuda:0"}>) -> tensor<768x30522xbf16, {device = "cuda:0", stride = "1, 768"}>
  %1 = "mlirc.matmul"(%x, %0) : (tensor<8192x768xbf16, {device = "cuda:0"}>, tensor<768x30522xbf16, {device = "cuda:0", stride = "1, 768"}>) -> tensor<8192x30522xbf16, {device = "cuda:0"}>
  %2 = "mlirc.neg"(%1) : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<8192x30522xbf16, {device = "cuda:0"}>
  return %2 : tensor<8192x30522xbf16, {device = "cuda:0"}>
}

// One that the graph returns is written where it lies, row by row (split-unaligned).
// CHECK-LABEL: func.func @returned
// CHECK-NOT:     "mlirc.pad"
func.func @returned(%x: tensor<8192x768xbf16, {device = "cuda:0"}>, %w: tensor<30522x768xbf16, {device = "cuda:0"}>) -> tensor<16x512x30522xbf16, {device = "cuda:0"}> {
  %0 = "mlirc.view"(%w) {map = "d1, d0", offset = "0"} : (tensor<30522x768xbf16, {device = "cuda:0"}>) -> tensor<768x30522xbf16, {device = "cuda:0", stride = "1, 768"}>
  %1 = "mlirc.matmul"(%x, %0) : (tensor<8192x768xbf16, {device = "cuda:0"}>, tensor<768x30522xbf16, {device = "cuda:0", stride = "1, 768"}>) -> tensor<8192x30522xbf16, {device = "cuda:0"}>
  %2 = "mlirc.view"(%1) {map = "512*d0 + d1, d2", offset = "0"} : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<16x512x30522xbf16, {device = "cuda:0"}>
  return %2 : tensor<16x512x30522xbf16, {device = "cuda:0"}>
}


// The gradient of a bias is the sum over rows of what was padded, seen through views: it is one of the padded matrix, and
// %d is never stored.
// CHECK-LABEL: func.func @bias_gradient
// CHECK:         %[[D:.*]] = "mlirc.neg"
// CHECK:         %[[P:.*]] = "mlirc.pad"(%[[D]])
// CHECK:         "mlirc.sum"(%[[P]]) {{.*}} -> tensor<30528xbf16, {device = "cuda:0"}>
// CHECK:         "mlirc.amax"(%{{.*}}) {{.*}} : (tensor<8192x30522xbf16, {device = "cuda:0", stride = "30528, 1"}>)
func.func @bias_gradient(%g: tensor<8192x30522xbf16, {device = "cuda:0"}>, %w: tensor<30522x768xbf16, {device = "cuda:0"}>) -> (tensor<8192x768xbf16, {device = "cuda:0"}>, tensor<30522xbf16, {device = "cuda:0"}>, tensor<8192xbf16, {device = "cuda:0"}>) {
  %d = "mlirc.neg"(%g) : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<8192x30522xbf16, {device = "cuda:0"}>
  %e = "mlirc.view"(%d) {map = "512*d0 + d1, d2", offset = "0"} : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<16x512x30522xbf16, {device = "cuda:0"}>
  %f = "mlirc.view"(%e) {map = "d0//512, d0 % 512, d1", offset = "0"} : (tensor<16x512x30522xbf16, {device = "cuda:0"}>) -> tensor<8192x30522xbf16, {device = "cuda:0"}>
  %0 = "mlirc.matmul"(%f, %w) : (tensor<8192x30522xbf16, {device = "cuda:0"}>, tensor<30522x768xbf16, {device = "cuda:0"}>) -> tensor<8192x768xbf16, {device = "cuda:0"}>
  %1 = "mlirc.sum"(%f) {dims = "0", keepdim = false} : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<30522xbf16, {device = "cuda:0"}>
  %2 = "mlirc.amax"(%d) {dims = "1", keepdim = false} : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<8192xbf16, {device = "cuda:0"}>
  return %0, %1, %2 : tensor<8192x768xbf16, {device = "cuda:0"}>, tensor<30522xbf16, {device = "cuda:0"}>, tensor<8192xbf16, {device = "cuda:0"}>
}

// Its gradients: %d is padded once for both, and the gradient of the weight loses rows, which is a view.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[D:.*]] = "mlirc.pad"(%arg0) {{.*}} -> tensor<8192x30528xbf16, {device = "cuda:0"}>
// CHECK:         "mlirc.matmul"(%[[D]],
// CHECK-NOT:     "mlirc.pad"(%arg0)
// CHECK:         "mlirc.view"(%[[D]]) {map = "d1, d0", offset = "0"}
// CHECK-NOT:     "mlirc.copy"
func.func @gradients(%d: tensor<8192x30522xbf16, {device = "cuda:0"}>, %w: tensor<30522x768xbf16, {device = "cuda:0"}>, %x: tensor<8192x768xbf16, {device = "cuda:0"}>) -> (tensor<8192x768xbf16, {device = "cuda:0"}>, tensor<30522x768xbf16, {device = "cuda:0"}>) {
  %0 = "mlirc.matmul"(%d, %w) : (tensor<8192x30522xbf16, {device = "cuda:0"}>, tensor<30522x768xbf16, {device = "cuda:0"}>) -> tensor<8192x768xbf16, {device = "cuda:0"}>
  %1 = "mlirc.view"(%d) {map = "d1, d0", offset = "0"} : (tensor<8192x30522xbf16, {device = "cuda:0"}>) -> tensor<30522x8192xbf16, {device = "cuda:0", stride = "1, 30522"}>
  %2 = "mlirc.matmul"(%1, %x) : (tensor<30522x8192xbf16, {device = "cuda:0", stride = "1, 30522"}>, tensor<8192x768xbf16, {device = "cuda:0"}>) -> tensor<30522x768xbf16, {device = "cuda:0"}>
  return %0, %2 : tensor<8192x768xbf16, {device = "cuda:0"}>, tensor<30522x768xbf16, {device = "cuda:0"}>
}

// Moving the padded matrices would take longer than a product with few columns gains; a CPU has no such rule.
// CHECK-LABEL: func.func @small
// CHECK-NOT:     "mlirc.pad"
func.func @small(%x: tensor<8192x770xbf16, {device = "cuda:0"}>, %w: tensor<770x2xbf16, {device = "cuda:0"}>, %y: tensor<8192x30522xbf16>, %z: tensor<30522x768xbf16>) -> (tensor<8192x2xbf16, {device = "cuda:0"}>, tensor<8192x768xbf16>) {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<8192x770xbf16, {device = "cuda:0"}>, tensor<770x2xbf16, {device = "cuda:0"}>) -> tensor<8192x2xbf16, {device = "cuda:0"}>
  %1 = "mlirc.matmul"(%y, %z) : (tensor<8192x30522xbf16>, tensor<30522x768xbf16>) -> tensor<8192x768xbf16>
  return %0, %1 : tensor<8192x2xbf16, {device = "cuda:0"}>, tensor<8192x768xbf16>
}

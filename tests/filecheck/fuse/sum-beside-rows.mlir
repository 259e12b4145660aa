// RUN: mlirc-opt %s -p "sum-beside-rows{programs=6}"
module {
  func.func @graph(%arg0: tensor<96x300xbf16, {device = "cuda:0"}>, %arg1: tensor<4x24x300xbf16, {device = "cuda:0"}>, %arg2: tensor<300xbf16, {device = "cuda:0"}>, %arg3: tensor<4x24x1xf32, {device = "cuda:0"}>, %arg4: tensor<4x24x300xf32, {device = "cuda:0"}>) -> (tensor<4x24x300xbf16, {device = "cuda:0"}>, tensor<300xbf16, {device = "cuda:0"}>) {
    %0 = "mlirc.view"(%arg0) {map = "24*d0 + d1, d2", offset = "0"} : (tensor<96x300xbf16, {device = "cuda:0"}>) -> tensor<4x24x300xbf16, {device = "cuda:0"}>
    %1 = "mlircx.kernel"(%arg1, %arg3, %0) ({
    ^bb0(%arg5: tensor<4x24x300xbf16, {device = "cuda:0"}>, %arg6: tensor<4x24x1xf32, {device = "cuda:0"}>, %arg7: tensor<4x24x300xbf16, {device = "cuda:0"}>):
      %3 = "mlirc.read"(%arg5) {map = "d1, d2, d0", masked = false} : (tensor<4x24x300xbf16, {device = "cuda:0"}>) -> bf16
      %4 = "mlirc.cast"(%3) {implicit = true} : (bf16) -> f32
      %5 = "mlirc.read"(%arg6) {map = "d1, d2, 0", masked = false} : (tensor<4x24x1xf32, {device = "cuda:0"}>) -> f32
      %6 = "mlirc.mul"(%4, %5) : (f32, f32) -> f32
      %7 = "mlirc.read"(%arg7) {map = "d1, d2, d0", masked = false} : (tensor<4x24x300xbf16, {device = "cuda:0"}>) -> bf16
      %8 = "mlirc.cast"(%7) {implicit = true} : (bf16) -> f32
      %9 = "mlirc.mul"(%8, %6) : (f32, f32) -> f32
      %10 = "mlirc.reduce"(%9) {kind = "sum"} : (f32) -> f32
      %11 = "mlirc.constant"() {value = "0x1.0000000000000p-1"} : () -> f32
      %12 = "mlirc.mul"(%10, %11) : (f32, f32) -> f32
      %13 = "mlirc.cast"(%12) : (f32) -> bf16
      "mlircx.yield"(%13) {maps = ["d0"]} : (bf16) -> ()
    }) {inner = "4, 24", label = "columns", parallel = "300"} : (tensor<4x24x300xbf16, {device = "cuda:0"}>, tensor<4x24x1xf32, {device = "cuda:0"}>, tensor<4x24x300xbf16, {device = "cuda:0"}>) -> tensor<300xbf16, {device = "cuda:0"}>
    %2 = "mlircx.kernel"(%arg0, %arg2, %arg1, %arg3) ({
    ^bb0(%arg5: tensor<96x300xbf16, {device = "cuda:0"}>, %arg6: tensor<300xbf16, {device = "cuda:0"}>, %arg7: tensor<4x24x300xbf16, {device = "cuda:0"}>, %arg8: tensor<4x24x1xf32, {device = "cuda:0"}>):
      %3 = "mlirc.read"(%arg5) {map = "24*d0 + d1, d2", masked = false} : (tensor<96x300xbf16, {device = "cuda:0"}>) -> bf16
      %4 = "mlirc.cast"(%3) {implicit = true} : (bf16) -> f32
      %5 = "mlirc.read"(%arg6) {map = "d2", masked = false} : (tensor<300xbf16, {device = "cuda:0"}>) -> bf16
      %6 = "mlirc.cast"(%5) {implicit = true} : (bf16) -> f32
      %7 = "mlirc.mul"(%4, %6) : (f32, f32) -> f32
      %8 = "mlirc.read"(%arg7) {map = "d0, d1, d2", masked = false} : (tensor<4x24x300xbf16, {device = "cuda:0"}>) -> bf16
      %9 = "mlirc.cast"(%8) {implicit = true} : (bf16) -> f32
      %10 = "mlirc.mul"(%7, %9) : (f32, f32) -> f32
      %11 = "mlirc.reduce"(%10) {kind = "sum"} : (f32) -> f32
      %12 = "mlirc.read"(%arg8) {map = "d0, d1, 0", masked = false} : (tensor<4x24x1xf32, {device = "cuda:0"}>) -> f32
      %13 = "mlirc.mul"(%11, %12) : (f32, f32) -> f32
      %14 = "mlirc.mul"(%13, %9) : (f32, f32) -> f32
      %15 = "mlirc.sub"(%7, %14) : (f32, f32) -> f32
      %16 = "mlirc.cast"(%15) : (f32) -> bf16
      "mlircx.yield"(%16) {maps = ["d0, d1, d2"]} : (bf16) -> ()
    }) {inner = "300", label = "rows", parallel = "4, 24"} : (tensor<96x300xbf16, {device = "cuda:0"}>, tensor<300xbf16, {device = "cuda:0"}>, tensor<4x24x300xbf16, {device = "cuda:0"}>, tensor<4x24x1xf32, {device = "cuda:0"}>) -> tensor<4x24x300xbf16, {device = "cuda:0"}>
    return %2, %1 : tensor<4x24x300xbf16, {device = "cuda:0"}>, tensor<300xbf16, {device = "cuda:0"}>
  }
}

// CHECK: sums = [0, 16
// CHECK: // IN ORDER: join columns, taken

// RUN: mlirc-opt %s -p select-attention

// CHECK-LABEL: func.func @ours
// CHECK-NEXT:    "mlirc.attention"
func.func @ours(%q: tensor<2x4x8x16xbf16>) -> tensor<2x4x8x16xbf16> {
  %0:2 = "mlirc.attention"(%q, %q, %q) {causal = "lower_right", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>) -> (tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>)
  return %0#0 : tensor<2x4x8x16xbf16>
}

// CHECK-LABEL: func.func @atens
// CHECK-NEXT:    %[[A:.*]]:2 = "mlircx.aten"(%arg0, %arg0, %arg0) {aliases = "-1, -1", args = "[{\22$\22: 0}, {\22$\22: 0}, {\22$\22: 0}, 0.0, true, {\22kwargs\22: {\22scale\22: 0.25}}]", op = "aten._scaled_dot_product_flash_attention_for_cpu.default"}
// CHECK-NEXT:    return %[[A]]#0
func.func @atens(%q: tensor<2x4x8x16xf64>) -> tensor<2x4x8x16xf64> {
  %0:2 = "mlirc.attention"(%q, %q, %q) {causal = "upper_left", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>) -> (tensor<2x4x8x16xf64>, tensor<2x4x8xf64>)
  return %0#0 : tensor<2x4x8x16xf64>
}

// CHECK-LABEL: func.func @our_gradients
// CHECK-NEXT:    "mlirc.attention_backward"
func.func @our_gradients(%q: tensor<2x4x8x16xbf16>, %l: tensor<2x4x8xf32>) -> tensor<2x4x8x16xbf16> {
  %0:4 = "mlirc.attention_backward"(%q, %q, %q, %q, %q, %l) {causal = "upper_left", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>) -> (tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x17xf32>)
  return %0#1 : tensor<2x4x8x16xbf16>
}

// CHECK-LABEL: func.func @atens_gradients
// CHECK-NEXT:    %[[G:.*]]:3 = "mlircx.aten"(%arg0, %arg0, %arg0, %arg0, %arg0, %arg1) {aliases = "-1, -1, -1", args = "[{\22$\22: 0}, {\22$\22: 0}, {\22$\22: 0}, {\22$\22: 0}, {\22$\22: 0}, {\22$\22: 5}, 0.0, true, {\22kwargs\22: {\22scale\22: 0.25}}]", op = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"}
// CHECK-NEXT:    return %[[G]]#1
func.func @atens_gradients(%q: tensor<2x4x8x16xf64>, %l: tensor<2x4x8xf64>) -> tensor<2x4x8x16xf64> {
  %0:4 = "mlirc.attention_backward"(%q, %q, %q, %q, %q, %l) {causal = "upper_left", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8xf64>) -> (tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x1xf64>)
  return %0#1 : tensor<2x4x8x16xf64>
}

// CHECK:       // COVERED: generate attention, taken
// CHECK-NEXT:  // FLOAT32 OR BFLOAT16: generate attention, refused
// CHECK-NEXT:  // COVERED: generate attention_backward, taken
// CHECK-NEXT:  // FLOAT32 OR BFLOAT16: generate attention_backward, refused

// RUN: mlirc-opt %s -p choose-attention

// CHECK-LABEL: func.func @ours
// CHECK-NEXT:    "mlirc.attention"
func.func @ours(%q: tensor<2x4x8x16xbf16>) -> tensor<2x4x8x16xbf16> {
  %0:2 = "mlirc.attention"(%q, %q, %q) {causal = "lower_right", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>) -> (tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>)
  return %0#0 : tensor<2x4x8x16xbf16>
}

// CHECK-LABEL: func.func @atens
// CHECK-NEXT:    %[[A:.*]]:2 = "mlircx.aten"(%arg0, %arg0, %arg0) {aliases = "-1, -1", args = "[{\22$\22: 0}, {\22$\22: 0}, {\22$\22: 0}, 0.0, true, {\22kwargs\22: {\22scale\22: 0.25}}]", op = "aten._scaled_dot_product_flash_attention_for_cpu.default"}
// CHECK-NEXT:    return %[[A]]#0
// CHECK:       // FLOAT32 OR BFLOAT16: generate attention, refused
func.func @atens(%q: tensor<2x4x8x16xf64>) -> tensor<2x4x8x16xf64> {
  %0:2 = "mlirc.attention"(%q, %q, %q) {causal = "upper_left", scale = 2.5e-01 : f64} : (tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>, tensor<2x4x8x16xf64>) -> (tensor<2x4x8x16xf64>, tensor<2x4x8xf64>)
  return %0#0 : tensor<2x4x8x16xf64>
}

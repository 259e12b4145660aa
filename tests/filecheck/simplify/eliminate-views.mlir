// RUN: mlirc-opt %s -p "eliminate-views,canonicalize"

// Transposed twice.
// CHECK-LABEL: func.func @back_again
// CHECK-NEXT:    return %arg0
func.func @back_again(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "mlirc.view"(%x) {map = "d1, d0", offset = "0"} : (tensor<4x8xf32>) -> tensor<8x4xf32, {stride = "1, 8"}>
  %1 = "mlirc.view"(%0) {map = "d1, d0", offset = "0"} : (tensor<8x4xf32, {stride = "1, 8"}>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// A view of a view is one: maps are composed, offsets added.
// CHECK-LABEL: func.func @composed
// CHECK-NEXT:    %[[V:.*]] = "mlirc.view"(%arg0) {map = "d0 + 1, 2", offset = "10"}
// CHECK-NEXT:    return %[[V]]
func.func @composed(%x: tensor<4x8xf32>) -> tensor<3xf32, {stride = "8"}> {
  %0 = "mlirc.view"(%x) {map = "d0 + 1, d1", offset = "8"} : (tensor<4x8xf32>) -> tensor<3x8xf32>
  %1 = "mlirc.view"(%0) {map = "d0, 2", offset = "2"} : (tensor<3x8xf32>) -> tensor<3xf32, {stride = "8"}>
  return %1 : tensor<3xf32, {stride = "8"}>
}

// Split and put together again, the sizes symbols.
// CHECK-LABEL: func.func @symbolic
// CHECK-NEXT:    return %arg0
func.func @symbolic(%x: tensor<?x8xf32, {size = "s0, 8"}>) -> tensor<?x8xf32, {size = "s0, 8"}> {
  %0 = "mlirc.view"(%x) {map = "d0//8, d0 % 8", offset = "0"} : (tensor<?x8xf32, {size = "s0, 8"}>) -> tensor<?xf32, {size = "8*s0"}>
  %1 = "mlirc.view"(%0) {map = "8*d0 + d1", offset = "0"} : (tensor<?xf32, {size = "8*s0"}>) -> tensor<?x8xf32, {size = "s0, 8"}>
  return %1 : tensor<?x8xf32, {size = "s0, 8"}>
}

// Where a map is not known, the composed one is not either.
// CHECK-LABEL: func.func @without_map
// CHECK-NEXT:    "mlirc.view"(%arg0) {map = "", offset = "3"}
// CHECK-NEXT:    return
func.func @without_map(%x: tensor<8xf32>) -> tensor<4xf32, {stride = "0"}> {
  %0 = "mlirc.view"(%x) {map = "", offset = "1"} : (tensor<8xf32>) -> tensor<4x2xf32, {stride = "1, 1"}>
  %1 = "mlirc.view"(%0) {map = "2, 0", offset = "2"} : (tensor<4x2xf32, {stride = "1, 1"}>) -> tensor<4xf32, {stride = "0"}>
  return %1 : tensor<4xf32, {stride = "0"}>
}

// A copy in the same layout is the value itself, ...
// CHECK-LABEL: func.func @copy
// CHECK-NEXT:    "mlirc.exp"(%arg0)
func.func @copy(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.copy"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "mlirc.exp"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// ... unless it saves what is overwritten.
// CHECK-LABEL: func.func @saved
// CHECK-NEXT:    %[[C:.*]] = "mlirc.copy"(%arg0)
// CHECK-NEXT:    "mlirc.assign"(%arg0, %arg1)
// CHECK-NEXT:    return %[[C]]
func.func @saved(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.copy"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  "mlirc.assign"(%x, %y) : (tensor<8xf32>, tensor<8xf32>) -> ()
  return %0 : tensor<8xf32>
}

// Another layout is a copy.
// CHECK-LABEL: func.func @layout
// CHECK-NEXT:    "mlirc.copy"(%arg0)
func.func @layout(%x: tensor<4x8xf32>) -> tensor<4x8xf32, {stride = "1, 4"}> {
  %0 = "mlirc.copy"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32, {stride = "1, 4"}>
  return %0 : tensor<4x8xf32, {stride = "1, 4"}>
}

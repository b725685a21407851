%0 = sdy.manual_computation(%a)
      in_shardings=[<@mesh, [{"x"}, {"y"}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%b: tensor<32x32xf32>) {
      %1 = stablehlo.exponential %b : tensor<32x32xf32>
      %2 = "stablehlo.all_reduce"(%1) <{replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> ({
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %3 = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %3 : tensor<f32>
      }) : (tensor<32x32xf32>) -> tensor<32x32xf32>
      sdy.return %2 : tensor<32x32xf32>
    } : (tensor<64x128xf32>) -> tensor<64x32xf32>
    %4 = stablehlo.negate %0 : tensor<64x32xf32>
    return %4 : tensor<64x32xf32>

module {
  func.func @main(%sizes: memref<8xi32, #tpu.memory_space<smem>>, %out: memref<16x128xf32, #tpu.memory_space<vmem>>)
      attributes {scalar_prefetch = 1 : i64, scratch_operands = 0 : i64} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %zero = arith.constant 0 : index
    %x = vector.load %out[%zero, %zero] : memref<16x128xf32, #tpu.memory_space<vmem>>, vector<16x128xf32>
    %end:2 = scf.while (%done = %c0, %place = %c0) : (i32, i32) -> (i32, i32) {
      %open = arith.cmpi eq, %done, %c0 : i32
      scf.condition(%open) %done, %place : i32, i32
    } do {
    ^bb0(%done: i32, %place: i32):
      %index = arith.index_cast %place : i32 to index
      %size = memref.load %sizes[%index] : memref<8xi32, #tpu.memory_space<smem>>
      %grows = arith.cmpi sle, %size, %c1 : i32
      %open = arith.cmpi PREDICATE, %size, %c1 : i32
      %next = arith.addi %place, %c1 : i32
      %after = arith.select %grows, %next, %place : i32
      %over = arith.select %open, %done, %c1 : i32
      %sum = arith.addf %x, %x : vector<16x128xf32>
      scf.yield %over, %after : i32, i32
    }
    return
  }
}
